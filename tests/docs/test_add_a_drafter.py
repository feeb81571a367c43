"""The walk-through "add a drafter" and the page on drafters, run block by block on a tiny model."""

from __future__ import annotations

from pathlib import Path

from paceline import LLM
from paceline.drafters.custom import registered_names, unregister_drafter
from paceline.drafters.ngram import NgramOptions
from support.doc_blocks import run_blocks
from support.tiny_models import write_tiny_gguf

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_walk_through_works(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    namespace: dict[str, object] = {"__name__": "add_a_drafter"}
    try:
        page = DOCS / "add-a-drafter.md"
        run_blocks(page, {'MODEL = "smollm2-135m"': f"MODEL = {str(model)!r}"}, namespace)
        assert "phrases" in registered_names()
    finally:
        if "phrases" in registered_names():
            unregister_drafter("phrases")


def test_options_are_set_on_a_drafter(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    namespace: dict[str, object] = {"__name__": "drafters"}
    run_blocks(DOCS / "drafters.md", {'"smollm2-135m"': repr(str(model))}, namespace)
    llm = namespace["llm"]
    assert isinstance(llm, LLM)
    assert llm.settings["drafter"] == "ngram"
    options = getattr(llm.engine.drafter("ngram"), "options", None)
    assert options == NgramOptions(min_n=3, max_n=8)
