"""The same promises on the native executor: a tiny target, a tiny random head, bits compared.

A random head is rarely right, so it drafts wide from the few tokens that the target's replies are made of.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline import LLM, SamplingParams
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Head, Eagle3Options
from paceline.drafters.verify_cost import VerifyCost
from paceline.engine.outputs import CompletionOutput
from paceline.errors import DrafterError, ModelFileError, PacelineError
from paceline.models import shipped_heads
from paceline.models.eagle3_export_gguf import convert_head
from paceline.models.loading import load_model_files
from support.eagle3_heads import tiny_head, write_head
from support.tiny_models import write_tiny_gguf

FREE = VerifyCost((1.0, 1.0001, 1.0002))
SHAPES = {
    "tree": Eagle3Options(verify_cost=FREE, step_cost=0.0, catch_up_cost=0.0, width=8, max_depth=3),
    "chain": Eagle3Options(verify_cost=FREE, step_cost=0.0, catch_up_cost=0.0, width=1, max_depth=8),
    "drawn": Eagle3Options(verify_cost=FREE, step_cost=0.0, catch_up_cost=0.0, sampling="chain"),
}
PROMPTS = ["the rest of the world is in the hand of", "on and on and on", "x", "a " * 90]
PARAMS = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 1.0, "seed": 7, "top_p": 0.95},
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("eagle3") / "tiny.gguf", "gemma3", "q8_0", seed=3)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Path:
    params = [SamplingParams(**chosen, max_tokens=60, ignore_eos=True) for chosen in PARAMS.values()]
    llm = LLM(target, drafter="none", threads=1)
    said = Counter(
        token
        for chosen in params
        for output in llm.generate(PROMPTS, chosen)
        for token in output.outputs[0].token_ids
    )
    ids = np.array(sorted(token for token, _ in said.most_common(12)), np.int32)
    few = replace(tiny_head("plain", seed=5, draft_vocab_size=len(ids)), draft_to_target=ids)
    return write_head(tmp_path_factory.mktemp("eagle3") / "head", few)


def opened(target: Path, head: Path, **settings: int) -> tuple[LLM, dict[str, Eagle3Drafter]]:
    """Return an engine that knows one drafter per shape, which share the head's cache."""
    llm = LLM(target, drafter="none", threads=1, record_logit_hashes=True, **settings)
    loaded = llm._load_head(str(head))
    assert isinstance(loaded, Eagle3Head)
    drafters = {name: Eagle3Drafter(loaded, options=options) for name, options in SHAPES.items()}
    llm._ready_made.update(drafters)
    return llm, drafters


def replies(llm: LLM, params: list[SamplingParams]) -> list[CompletionOutput]:
    outputs = llm.generate(PROMPTS, params)
    llm.engine.check_integrity()
    assert llm.engine.num_free_blocks == llm.executor.num_blocks
    return [output.outputs[0] for output in outputs]


@pytest.mark.parametrize("sampling", PARAMS)
@pytest.mark.parametrize(
    "sizes",
    [{}, {"max_batch_tokens": 32, "kv_cache_tokens": 192, "max_model_len": 160}],
    ids=["roomy", "tight"],
)
def test_replies_are_bit_identical(target: Path, head: Path, sampling: str, sizes: dict[str, int]) -> None:
    """One batch holds a request of every shape; tight: prompts in chunks, and requests that give way."""
    llm, drafters = opened(target, head, **sizes)
    common = PARAMS[sampling] | {"max_tokens": 60, "ignore_eos": True}
    plain = replies(llm, [SamplingParams(**common, drafter="none")] * len(PROMPTS))
    kept = 0
    for turn in range(3):
        names = [[*SHAPES, "none"][(turn + place) % 4] for place in range(len(PROMPTS))]
        params = [
            SamplingParams(**common, drafter=name, num_draft_tokens=None if name == "none" else 5 + 9 * turn)
            for name in names
        ]
        drafted = replies(llm, params)
        for one, other in zip(plain, drafted, strict=True):
            assert one.token_ids == other.token_ids
            assert one.text == other.text
            assert one.logit_hashes == other.logit_hashes
            kept += other.metrics.num_accepted_tokens
    assert kept > 10
    if sizes:
        assert sum(reply.metrics.num_preemptions for reply in drafted) > 0
    for drafter in drafters.values():
        assert drafter.num_free_blocks == drafter.head.executor.num_blocks


def test_a_cancelled_stream_gives_the_heads_blocks_back(target: Path, head: Path) -> None:
    llm, drafters = opened(target, head)
    stream = llm.stream(PROMPTS[0], SamplingParams(max_tokens=50, ignore_eos=True, drafter="tree"))
    next(stream)
    next(stream)
    assert drafters["tree"].num_free_blocks < drafters["tree"].head.executor.num_blocks
    stream.close()
    llm.engine.check_integrity()
    assert drafters["tree"].num_free_blocks == drafters["tree"].head.executor.num_blocks


def test_a_head_is_named_shipped_or_missing(
    target: Path,
    head: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "paceline")  # tests of the command line leave it at INFO
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    plain = LLM(target, drafter="none", threads=1).generate(PROMPTS[0], params)[0].outputs[0]
    with pytest.raises(DrafterError, match="no head comes with Paceline"):
        LLM(target, drafter="eagle3", threads=1)
    named = LLM(target, drafter=f"eagle3:{head}", threads=1)
    assert named.generate(PROMPTS[0], params)[0].outputs[0].token_ids == plain.token_ids
    with load_model_files(target) as files:
        known = {shipped_heads.target_fingerprint(files.spec, files.source): "head"}
    (tmp_path / "index.json").write_text(json.dumps(known))
    monkeypatch.setattr(shipped_heads.shipped_head, "__defaults__", (tmp_path,))
    (tmp_path / "head").symlink_to(head)
    for name in ("eagle3", "auto"):
        llm = LLM(target, drafter=name, threads=1)
        assert llm.engine.drafter(name).capabilities.state_layers == (2, 3, 4)
        assert llm.generate(PROMPTS[0], params)[0].outputs[0].token_ids == plain.token_ids
    llm.start_afresh()
    assert len(llm._heads) == 1  # it is not read again
    assert not caplog.records
    (tmp_path / "head").unlink()
    wrong = write_head(tmp_path / "head", tiny_head("plain", seed=5, target_hidden_size=96))
    assert LLM(target, threads=1).engine.drafter("auto").capabilities.state_layers == ()
    (record,) = caplog.records
    assert "auto goes on without it" in record.getMessage()
    with pytest.raises(DrafterError, match="states of 96 values"):
        LLM(target, drafter=f"eagle3:{wrong}", threads=1)


def test_a_shipped_file_is_used_and_a_damaged_one_told_of_once(
    target: Path,
    head: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Heads ship as a folder with ``head.gguf`` and a card; a broken installation must not stop ``auto``."""
    caplog.set_level(logging.WARNING, "paceline")
    with load_model_files(target) as files:
        known = {shipped_heads.target_fingerprint(files.spec, files.source): "tiny"}
    (tmp_path / "index.json").write_text(json.dumps(known))
    monkeypatch.setattr(shipped_heads.shipped_head, "__defaults__", (tmp_path,))
    file = convert_head(head, tmp_path / "tiny" / "head.gguf", quant="q8_0", state_layers=(2, 3, 4))
    (tmp_path / "tiny" / "README.md").write_text("# A card")
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    plain = LLM(target, drafter="none", threads=1).generate(PROMPTS[0], params)[0].outputs[0]
    for name in ("eagle3", "auto", f"eagle3:{file.parent}", f"eagle3:{file}"):
        llm = LLM(target, drafter=name, threads=1)
        assert llm.engine.drafter(name).capabilities.state_layers == (2, 3, 4)
        assert llm.generate(PROMPTS[0], params)[0].outputs[0].token_ids == plain.token_ids
    assert not caplog.records
    whole = file.read_bytes()
    damages: list[tuple[bytes, str]] = [(whole[:-100], "truncated"), (b"", "not a GGUF file")]
    for data, message in damages:
        file.write_bytes(data)
        caplog.clear()
        llm = LLM(target, threads=1)
        assert llm.generate(PROMPTS, params)[0].outputs[0].token_ids == plain.token_ids
        (record,) = caplog.records
        assert "auto goes on without it" in record.getMessage() and message in record.getMessage()
        with pytest.raises(ModelFileError, match=message):
            LLM(target, drafter="eagle3", threads=1)
    file.unlink()
    caplog.clear()
    LLM(target, threads=1)
    assert len(caplog.records) == 1
    with pytest.raises(PacelineError, match=r"neither config\.json nor a GGUF file"):
        LLM(target, drafter="eagle3", threads=1)
