"""The whole way from prompts to a served head, on a tiny target; and every way of stopping in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Options
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError, DrafterError
from paceline.llm import LLM
from paceline.models.eagle3 import open_eagle3
from paceline.models.eagle3_export import read_provenance
from paceline.sampling.params import SamplingParams
from paceline.train import fusing, pipeline_head
from paceline.train.options import STAGES, FitOptions, TrainOptions
from paceline.train.pipeline import Pipeline
from paceline.train.pipeline_evaluate import eval_prompts
from paceline.train.regenerate import ReplySettings
from support.tiny_models import write_tiny_gguf
from support.training import Lines, write_prompts

NUM_STEPS = 20


@pytest.fixture(scope="module", autouse=True)
def unfused() -> Iterator[None]:
    """Compiling fused steps takes longer than all tests; what they compute is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "can_fuse", lambda: False)
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> TrainOptions:
    """Options of a run that takes a second or two."""
    folder = tmp_path_factory.mktemp("training")
    settings = {"num_steps": NUM_STEPS, "evaluate_every": 5, "checkpoint_every": 5, "learning_rate": 2e-2}
    return TrainOptions(
        target=str(write_tiny_gguf(folder / "tiny.gguf", seed=1)),
        out=folder / "run",
        prompts=(write_prompts(folder / "prompts.jsonl", 40),),
        threads=1,
        reply=ReplySettings(max_tokens=24, max_prompt_tokens=120),
        num_requests=8,
        state_layers=(0, 1, 2),
        draft_vocab=96,
        held_out=0.2,
        num_eval=6,
        eval_temperatures=(0.0, 1.0),
        fit=FitOptions(tokens_per_step=64, settings=settings),
    )


@pytest.fixture(scope="module")
def finished(base: TrainOptions) -> tuple[Pipeline, Lines]:
    lines = Lines()
    run = Pipeline(base, lines)
    run.run()
    return run, lines


def head_bytes(out: Path) -> bytes:
    return (out / "export" / "head" / "model.safetensors").read_bytes()


def test_every_stage_tells_what_it_did(finished: tuple[Pipeline, Lines]) -> None:
    run, lines = finished
    assert list(run.results) == list(STAGES)
    assert "40 rows with at most" in lines.text
    assert "disk: up to" in lines.text
    assert "vocabulary: 96 of 320 tokens cover" in lines.text
    assert "parity: " in lines.text
    assert [stage for stage, done, total in lines.bars if done != total] == [], "bars that did not fill"
    assert run.results["fit"].values["num_steps"] == NUM_STEPS


def test_the_head_serves_and_changes_no_reply(base: TrainOptions, finished: tuple[Pipeline, Lines]) -> None:
    """With drafts that cost nothing: so small a head is too unsure to pay for any."""
    llm = LLM(base.target, "auto", threads=1, max_model_len=200)
    head = llm._load_head(str(base.out / "export" / "head"))
    assert head is not None
    free = Eagle3Options(verify_cost=VerifyCost((1.0, 1.0)), step_cost=0.0, catch_up_cost=0.0)
    llm._ready_made["free"] = Eagle3Drafter(head, options=free)
    plain = LLM(base.target, "none", threads=1, max_model_len=200)
    drafted, expected = (
        model.generate("the and in", SamplingParams(temperature=0, max_tokens=24, drafter=name))[0].outputs[0]
        for model, name in ((llm, "free"), (plain, "none"))
    )
    assert drafted.token_ids == expected.token_ids
    assert drafted.metrics.num_draft_tokens > 0


def test_the_export_says_where_it_comes_from(base: TrainOptions, finished: tuple[Pipeline, Lines]) -> None:
    run, _ = finished
    folder = base.out / "export" / "head"
    facts = read_provenance(folder)
    assert facts["target_sha256"] == run.place.target_sha256
    assert list(facts["data"]) == ["prompts.jsonl"]
    assert facts["seed"] == 0
    assert facts["stages"]["fit"]["num_steps"] == NUM_STEPS
    assert {row["temperature"] for row in facts["stages"]["evaluate"]["served"]} == {0.0, 1.0}
    card = (folder / "README.md").read_text()
    for part in ("tokens_per_step", facts["target_sha256"], facts["data"]["prompts.jsonl"], "covers", "drop"):
        assert part in card
    files = open_eagle3(folder, run.place.spec)
    files.source.close()
    assert files.draft_to_target.tolist() == run.draft_vocabulary().draft_to_target.tolist()
    assert files.spec.layers_of(2) == (0, 1, 2)
    config = json.loads((folder / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["architectures"] == ["LlamaForCausalLM"]


def test_every_family_has_a_name_for_other_engines() -> None:
    from paceline.models.families import FAMILIES

    assert set(pipeline_head.VERIFIERS) == set(FAMILIES)


def test_a_finished_run_is_taken_from_disk(base: TrainOptions, finished: tuple[Pipeline, Lines]) -> None:
    before = {path: path.stat().st_mtime_ns for path in base.out.rglob("*") if path.name != ".lock"}
    again = Pipeline(base, lines := Lines())
    results = again.run()
    assert all(result.was_done for result in results.values())
    assert {path: path.stat().st_mtime_ns for path in base.out.rglob("*") if path.name != ".lock"} == before
    assert "fit: done before" in lines.text


@pytest.mark.parametrize("stop", [10, 13])
def test_an_interrupted_fit_ends_with_the_same_bits(
    base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path, stop: int
) -> None:
    """10 + 10 steps are 20 steps: Ctrl-C at a checkpoint, and behind one, which loses the steps since."""
    replies = (base.out / "regenerate" / "replies.jsonl",)
    options = replace(base, prompts=(), replies=replies, out=tmp_path / "run")
    run = Pipeline(options, Lines(stop_at=("fit", stop)))
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert not (tmp_path / "run" / "fit" / "head").exists()
    Pipeline(options, Lines()).run()
    assert head_bytes(options.out) == head_bytes(base.out)


@pytest.mark.parametrize("stage", ["regenerate", "capture", "evaluate", "parity"])
def test_an_interrupted_stage_is_resumed(
    base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path, stage: str
) -> None:
    options = replace(base, out=tmp_path / "run", eval_temperatures=(0.0,))
    with pytest.raises(KeyboardInterrupt):
        Pipeline(options, Lines(stop_at=(stage, 1))).run()
    marker = json.loads((options.out / stage / "stage.json").read_text())
    assert "result" not in marker
    results = Pipeline(options, Lines()).run()
    assert not results[stage].was_done
    assert head_bytes(options.out) == head_bytes(base.out)


def test_prompts_to_evaluate_with_are_spread_over_a_sorted_file(base: TrainOptions, tmp_path: Path) -> None:
    """Taking the first ones judged a head by translation alone, since the file began with it."""
    path = tmp_path / "questions.jsonl"
    rows = [{"turns": [f"{task} {i}"], "category": task} for task in ("a", "b", "c") for i in range(20)]
    rows.append({"turns": ["the " * 500], "category": "long"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Pipeline(replace(base, eval_prompts=path, num_eval=6, out=tmp_path / "run"), Lines())
    assert [prompt.source for prompt in eval_prompts(run)] == ["a", "a", "b", "b", "c", "c"]


def test_a_parallel_head_is_measured_and_not_exported(
    base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path
) -> None:
    """The same replies, fitted serially and in parallel, so that both figures can be compared."""
    replies = (base.out / "regenerate" / "replies.jsonl",)
    options = replace(base, prompts=(), replies=replies, out=tmp_path / "run", parallel=True)
    run = Pipeline(options, lines := Lines())
    results = run.run()
    assert list(results) == list(STAGES[: STAGES.index("fit") + 1])
    figures = results["fit"].values["validation"]
    assert f"simulated tokens_per_step {figures['tokens_per_step']:.3f}; stopped behind fit" in lines.text
    assert "its export is refused" in lines.text
    assert len(figures["agreement"]) == len(finished[0].results["fit"].values["validation"]["agreement"])
    assert not (options.out / "fit" / "head").exists()
    assert not (options.out / "export").exists()
    serial = replace(options, parallel=False)
    with pytest.raises(ConfigError, match="parallel: was True, is None"):
        Pipeline(serial, Lines()).run()


def test_other_settings_are_refused_until_redone(
    base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path
) -> None:
    options = replace(base, out=tmp_path / "run")
    Pipeline(options, Lines()).run(until="vocabulary")
    other = replace(options, draft_vocab=64)
    with pytest.raises(ConfigError, match=r"size: was 96, is 64.*--redo vocabulary"):
        Pipeline(other, Lines()).run(until="vocabulary")
    results = Pipeline(other, Lines()).run(until="vocabulary", redo_from="vocabulary")
    assert results["capture"].was_done
    assert results["vocabulary"].values["size"] == 64


def test_states_of_another_layer_fail_parity(
    base: TrainOptions, finished: tuple[Pipeline, Lines], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most common mistake of all: the layer ids are off by one, and nothing else notices."""
    run, _ = finished
    monkeypatch.setattr(run.place, "layers", (1, 2, 0, 2))
    with pytest.raises(DrafterError, match="rows have other states in the engine"):
        pipeline_head._parity(run)


def test_a_head_served_with_other_weights_fails_parity(
    finished: tuple[Pipeline, Lines], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained is not what is served: the trainer's side gets permuted output rows."""
    run, _ = finished
    real = pipeline_head.read_head

    def changed(folder: Path, target: Any) -> Any:
        head, ids = real(folder, target)
        order = np.random.default_rng(0).permutation(head.spec.draft_vocab_size)
        values = head.tensors["output.weight"].detach().numpy()[order]
        head.load_tensors({"output.weight": values})
        return head, ids

    monkeypatch.setattr(pipeline_head, "read_head", changed)
    with pytest.raises(DrafterError, match="at draft position 1 trainer and engine choose alike in"):
        pipeline_head._parity(run)


def test_replies_without_supervised_tokens_are_an_error(base: TrainOptions, tmp_path: Path) -> None:
    row = {
        "id": "a",
        "source": "s",
        "prompt_token_ids": [3, 4],
        "response_token_ids": [2],
        "temperature": 0.0,
    }
    path = tmp_path / "replies.jsonl"
    path.write_text(json.dumps(row) + "\n")
    options = replace(base, prompts=(), replies=(path,), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="zero supervised tokens"):
        Pipeline(options, Lines()).run()


def test_wrong_settings_of_the_fit_are_refused_before_anything_is_done(
    base: TrainOptions, tmp_path: Path
) -> None:
    """Hours of generation must not end with a misspelt name."""
    fit = FitOptions(settings={"optimiser": "adamw"})
    with pytest.raises(ConfigError, match=r"no setting 'optimiser' \(did you mean 'optimizer'\?\)"):
        Pipeline(replace(base, out=tmp_path / "run", fit=fit), Lines()).run()
    assert not (tmp_path / "run" / "regenerate").exists()


def test_what_cannot_fit_is_refused_before_anything_is_done(
    base: TrainOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.train import resources

    options = replace(base, out=tmp_path / "run")
    monkeypatch.setattr(resources, "free_bytes", lambda folder: 10**9)
    with pytest.raises(ConfigError, match="on the disk of"):
        Pipeline(options, Lines()).run()
    monkeypatch.undo()
    monkeypatch.setattr(resources, "available_memory", lambda: 10**6)
    with pytest.raises(ConfigError, match="of memory, but"):
        Pipeline(options, Lines()).run()
    assert not (tmp_path / "run" / "regenerate").exists()
