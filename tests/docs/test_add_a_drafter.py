"""The walk-through "add a drafter", run block by block on a tiny model."""

from __future__ import annotations

from pathlib import Path

from paceline.drafters.custom import registered_names, unregister_drafter
from support.doc_blocks import run_blocks
from support.tiny_models import write_tiny_gguf

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-a-drafter.md"


def test_the_walk_through_works(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", "q8_0", seed=3)
    namespace: dict[str, object] = {"__name__": "add_a_drafter"}
    try:
        run_blocks(PAGE, {'MODEL = "smollm2-135m"': f"MODEL = {str(model)!r}"}, namespace)
        assert "phrases" in registered_names()
    finally:
        if "phrases" in registered_names():
            unregister_drafter("phrases")
