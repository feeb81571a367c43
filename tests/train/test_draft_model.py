"""Draft models: the start is the target cut short, the loss is the law over all tokens, the run serves.

Regimes: float32; rotation of neighbours and of halves; own and shared output rows; GGUF and folder.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from paceline.errors import ConfigError, DrafterError
from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CpuExecutor
from paceline.llm import LLM
from paceline.models import rope
from paceline.models.eagle3_export import PROVENANCE_KEY
from paceline.models.gguf_file import read_gguf_header
from paceline.models.loading import load_model_files
from paceline.models.spec import RopeSpec
from paceline.sampling.params import SamplingParams
from paceline.train import draft_loss, pipeline_draft_model
from paceline.train.captured import CapturedSequence, to_bfloat16
from paceline.train.draft_loss import DraftTarget
from paceline.train.draft_model import DEFAULT_BASE, TeacherForced, _base_of, draft_model_spec, run_layers
from paceline.train.draft_start import READ_OUT, fresh_draft_model, rotating_halves, rotating_neighbours
from paceline.train.options import STAGES, FitOptions, TrainOptions
from paceline.train.pipeline import Pipeline
from paceline.train.regenerate import ReplySettings
from paceline.train.target import TargetHead
from paceline.train.teacher import load_matrix
from paceline.train.ttt import Rotary
from support.tiny_models import write_tiny_gguf, write_tiny_hf
from support.training import Lines, write_prompts

pytestmark = pytest.mark.filterwarnings("ignore::paceline.drafters.copy_check.LowAcceptanceWarning")

TOKENS = np.array([5, 9, 300, 17, 44, 9, 120, 7, 61, 33], np.int32)


@pytest.mark.parametrize("folder", [False, True])
def test_all_layers_of_the_target_are_the_target(tmp_path: Path, folder: bool) -> None:
    """So layers, rotation, norms and pairing are copied as they are meant; then a draft has fewer of them."""
    write = write_tiny_hf if folder else write_tiny_gguf
    path = write(tmp_path / ("tiny" if folder else "tiny.gguf"), seed=2)
    with load_model_files(path) as files:
        executor = CpuExecutor.load(files.spec, files.source, num_blocks=4, num_threads=1)
        spec = draft_model_spec(files.spec, files.spec.num_layers)
        model = fresh_draft_model(spec, files.spec, files.source, 0)
        embedding = load_matrix(files.source, "token_embd.weight", torch.float32)
        output = load_matrix(files.source, "output.weight", torch.float32)
    logits = executor.forward(ForwardBatch.chain(TOKENS, 0, np.arange(1, dtype=np.int32), len(TOKENS)))
    ids = torch.from_numpy(TOKENS.astype(np.int64))
    # Twice in one batch: sequences do not see each other.
    places = torch.arange(len(ids)).repeat(2)
    rotary = Rotary(spec.rope.inverse_frequencies, len(ids))
    with torch.no_grad():
        weights = model.cast(torch.float32)
        hidden = run_layers(weights, embedding[ids.repeat(2)], places, [len(ids)] * 2, rotary)
    for half in (hidden @ output.T / READ_OUT).chunk(2):
        np.testing.assert_allclose(half.numpy(), logits, atol=2e-2)


def test_layers_behind_the_target_s_add_nothing(tmp_path: Path) -> None:
    with load_model_files(write_tiny_gguf(tmp_path / "t.gguf", "gemma3")) as files:
        spec = draft_model_spec(files.spec, files.spec.num_layers + 1)
        model = fresh_draft_model(spec, files.spec, files.source, 0)
        down = load_matrix(files.source, "blk.0.ffn_down.weight", torch.float32)
    last = f"blk.{files.spec.num_layers}."
    assert not model.tensors[last + "attn_output.weight"].any()
    assert model.tensors[last + "attn_q.weight"].any()
    copied = model.tensors["blk.0.ffn_down.weight"].detach() * files.spec.embedding_scale
    torch.testing.assert_close(copied, down)  # the stream is not scaled here, so what is added is smaller
    assert spec.rope.inverse_frequencies == files.spec.ropes[files.spec.layer_ropes[0]].inverse_frequencies


def test_scaled_ropes_start_from_their_base() -> None:
    """As Llama 3.2, Qwen 2.5 with YaRN and Gemma 3 4B have them."""
    plain = rope.plain_frequencies(500000.0, 64)
    assert base_of(rope.llama3_frequencies(plain, rope.Llama3Scaling(32.0, 1.0, 4.0, 8192))) == 500000.0
    plain = rope.plain_frequencies(1000000.0, 128)
    assert base_of(rope.yarn_frequencies(plain, 1000000.0, rope.YarnScaling(4.0, 32768))) == 1000000.0
    assert base_of(rope.linear_frequencies(plain, 8.0)) == 1000000.0
    assert base_of(rope.plain_frequencies(10000.0, 2)) == DEFAULT_BASE


def base_of(frequencies: rope.Frequencies) -> float:
    return _base_of(RopeSpec(tuple(frequencies.tolist()), "half_split"))


def test_neighbours_and_halves_are_each_other_s_inverse() -> None:
    values = np.random.default_rng(0).standard_normal((32, 6)).astype(np.float32)
    np.testing.assert_array_equal(rotating_halves(rotating_neighbours(values, 16), 16), values)
    assert rotating_halves(np.arange(16, dtype=np.float32).reshape(8, 2), 8)[:, 0].tolist() == [
        0.0, 4.0, 8.0, 12.0, 2.0, 6.0, 10.0, 14.0,
    ]  # fmt: skip


# ---- what it learns ----


def make_target(size: int, ids: list[int]) -> DraftTarget:
    generator = torch.Generator().manual_seed(4)
    embedding = torch.randn((size, 16), generator=generator)
    output = torch.randn((size, 16), generator=generator)
    chosen = torch.tensor(ids)
    return DraftTarget(TargetHead(torch.ones(16), output[chosen], 1e-5), embedding, chosen)


def test_the_loss_is_the_cross_entropy_over_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_loss, "_CHUNK_ROWS", (2, 4))
    target = make_target(40, list(range(40)))
    hidden = torch.randn((11, 16), generator=torch.Generator().manual_seed(1), requires_grad=True)
    states = torch.randn((11, 16), generator=torch.Generator().manual_seed(2)).bfloat16()
    found = target.loss(hidden, states, torch.Generator())
    (gradient,) = torch.autograd.grad(found.loss, hidden)
    laws, best = target.head.laws(states)
    logits = hidden @ target.embedding.T
    expected = -(laws * logits.log_softmax(-1)).sum()
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, hidden)[0])
    assert found.matches.tolist() == (logits.argmax(-1) == best).tolist()


def test_a_restricted_loss_counts_the_other_tokens_by_a_sample() -> None:
    """They would win at serving otherwise: nothing in training would ever push them down.

    The seed is fixed. 1,024 draws of 40 tokens come far closer than the 0.2 a row that are allowed; leaving
    the others out is off by about log(60 / 20) = 1.1.
    """
    target = make_target(60, list(range(20)))
    hidden = torch.randn((30, 16), generator=torch.Generator().manual_seed(1)) * 0.2
    states = torch.randn((30, 16), generator=torch.Generator().manual_seed(2)).bfloat16()
    found = float(target.loss(hidden, states, torch.Generator().manual_seed(0)).loss) / 30
    laws, _ = target.head.laws(states)
    logits = hidden @ target.embedding.T
    full = float(-(laws * logits.log_softmax(-1)[:, :20]).sum()) / 30
    alone = float(-(laws * logits[:, :20].log_softmax(-1)).sum()) / 30
    assert abs(found - full) < 0.2
    assert full - alone > 0.8


def test_chains_are_places_on_the_target_s_own_text() -> None:
    """Two replies, of 3 and of 4 tokens: the last token of each is read by nobody."""
    rng = np.random.default_rng(0)
    items = [
        CapturedSequence(
            str(n),
            "test",
            np.arange(n, dtype=np.int32),
            to_bfloat16(rng.standard_normal((n, 16)).astype(np.float32)),
            start,
        )
        for n, start in [(5, 2), (6, 2)]
    ]
    batch = TeacherForced.make_batch(items, torch.arange(10.0).unsqueeze(1), 16)
    assert batch.embedded.flatten().tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert batch.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert batch.chain_positions.tolist() == [2, 3, 6, 7, 8]
    assert batch.chain_room.tolist() == [2, 1, 3, 2, 1]
    assert batch.pair_counts == [4, 5]
    expected = np.concatenate([items[0].states[2:4], items[1].states[2:5]])
    assert batch.target_states.view(torch.int16).numpy().view(np.uint16).tolist() == expected.tolist()


# ---- the whole way ----


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> TrainOptions:
    """Options of a run of seconds; its replies are made once."""
    folder = tmp_path_factory.mktemp("training")
    settings = {"num_steps": 16, "evaluate_every": 4, "checkpoint_every": 4}
    return TrainOptions(
        target=str(write_tiny_gguf(folder / "tiny.gguf", seed=1)),
        out=folder / "run",
        prompts=(write_prompts(folder / "prompts.jsonl", 24),),
        threads=1,
        reply=ReplySettings(max_tokens=24, max_prompt_tokens=120),
        num_requests=8,
        held_out=0.2,
        num_eval=4,
        fit=FitOptions(tokens_per_step=64, settings=settings),
        kind="draft-model",
    )


@pytest.fixture(scope="module")
def finished(base: TrainOptions) -> tuple[Pipeline, Lines]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.train.fusing.can_fuse", lambda: False)
        run = Pipeline(base, lines := Lines())
        run.run()
    return run, lines


def check_served(target: str, draft: Path) -> None:
    llm = LLM(target, f"draft_model:{draft}", threads=1, max_model_len=200)
    plain = LLM(target, "none", threads=1, max_model_len=200)
    params = SamplingParams(temperature=0, max_tokens=24)
    drafted, expected = (model.generate("the and in", params)[0].outputs[0] for model in (llm, plain))
    assert drafted.token_ids == expected.token_ids
    assert drafted.metrics.num_draft_tokens > 0


def test_a_draft_model_is_distilled_and_serves(base: TrainOptions, finished: tuple[Pipeline, Lines]) -> None:
    run, lines = finished
    assert list(run.results) == list(STAGES)
    assert [stage for stage, done, total in lines.bars if done != total] == [], "bars that did not fill"
    out = base.out / "export"
    check_served(base.target, out / "draft.gguf")
    with load_model_files(out / "draft.gguf") as files, load_model_files(base.target) as target:
        facts = json.loads(str(read_gguf_header(out / "draft.gguf").metadata[PROVENANCE_KEY]))
        assert facts["target_sha256"] == run.place.target_sha256
        assert facts["stages"]["fit"]["num_steps"] == 16
        assert (files.spec.architecture, files.spec.num_layers) == ("llama", 1)
        assert files.tokenizer.tokens == target.tokenizer.tokens
        assert files.tokenizer.eos_token_ids == target.tokenizer.eos_token_ids
        assert files.chat_template_text == target.chat_template_text
    card = (out / "README.md").read_text()
    assert run.place.target_sha256 in card
    assert "tokens_per_step" in card
    assert Pipeline(base, Lines()).run()["export"].was_done


def test_it_learns(base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path) -> None:
    replies = (base.out / "regenerate" / "replies.jsonl",)
    losses = []
    for steps, rate in [(1, 1e-9), (40, 1e-2)]:
        fit = FitOptions(tokens_per_step=64, settings={"num_steps": steps, "learning_rate": rate})
        options = replace(base, prompts=(), replies=replies, out=tmp_path / str(steps), fit=fit)
        losses.append(Pipeline(options, Lines()).run(until="fit")["fit"].values["validation"]["loss"])
    assert losses[1] < losses[0] - 0.1


def test_a_folder_becomes_a_folder(
    base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path
) -> None:
    """The replies are those of the same weights; the loss is over the 96 most frequent tokens."""
    target = write_tiny_hf(tmp_path / "tiny", seed=1)
    replies = (base.out / "regenerate" / "replies.jsonl",)
    options = replace(
        base, target=str(target), prompts=(), replies=replies, out=tmp_path / "run", draft_vocab=96
    )
    run = Pipeline(options, Lines())
    run.run()
    out = options.out / "export" / "draft"
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["provenance"]["target_sha256"] == run.place.target_sha256
    assert config["provenance"]["stages"]["fit"]["num_steps"] == 16
    check_served(options.target, out)


def test_an_interrupted_fit_ends_with_the_same_bits(
    base: TrainOptions, finished: tuple[Pipeline, Lines], tmp_path: Path
) -> None:
    replies = (base.out / "regenerate" / "replies.jsonl",)
    options = replace(base, prompts=(), replies=replies, out=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        Pipeline(options, Lines(stop_at=("fit", 10))).run(until="fit")
    Pipeline(options, Lines()).run(until="fit")
    found, expected = (
        torch.load(out / "fit" / "checkpoint.pt", weights_only=True)["head"]
        for out in (options.out, base.out)
    )
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_wrong_rotation_fails_parity(
    finished: tuple[Pipeline, Lines], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = finished
    real = pipeline_draft_model.load_draft_model

    def wrong(spec: Any, source: Any, *, halves: bool) -> Any:
        return real(spec, source, halves=not halves)

    monkeypatch.setattr(pipeline_draft_model, "load_draft_model", wrong)
    with pytest.raises(DrafterError, match="parity failed: at draft position 1"):
        pipeline_draft_model._parity(run)


def test_near_ties_are_no_difference() -> None:
    """Parity failed for a Gemma whose logits were 0.9999 correlated: 262,144 tokens make many near ties."""
    logits = torch.tensor([[3.0, 2.99, 0.0, 1.0], [3.0, 2.0, 0.0, 1.0]])
    chosen = pipeline_draft_model.settled(logits, torch.tensor([1, 1]))
    assert chosen.tolist() == [0, 1]


def test_a_draft_model_cannot_be_parallel(base: TrainOptions) -> None:
    with pytest.raises(ConfigError, match="parallel: a draft-model drafts one token after another"):
        replace(base, parallel=True)
