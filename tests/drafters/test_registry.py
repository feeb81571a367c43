"""Drafters by name: each name builds its drafter, wrong ones name the nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from paceline.drafters.auto import AutoDrafter, AutoOptions
from paceline.drafters.base import Drafter
from paceline.drafters.custom import DraftTarget, unregister_drafter
from paceline.drafters.draft_model import DraftModel, DraftModelDrafter
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Head
from paceline.drafters.ngram import NgramDrafter, NgramOptions
from paceline.drafters.registry import DRAFTER_NAMES, build_drafter, register_drafter
from paceline.drafters.suffix import SuffixDrafter, SuffixOptions
from paceline.errors import ConfigError, DrafterError, ModelFileError
from paceline.executors.base import ForwardBatch
from paceline.kv.block_pool import BlockPool
from paceline.records import FloatArray, IntArray
from paceline.theory.cost_table import CostTable, DraftCost
from support.fake_executor import FakeExecutor
from support.fake_head import LAYERS, FakeHead, all_ids

WORDS = ["<s>", "Ġone", "Ġtwo"]


def curve(second: float) -> CostTable:
    """Costs as a profile would bring them; r(2) tells them from the assumed ones."""
    drafts = {"eagle3:shipped": DraftCost(0.2, 0.05), "auto": DraftCost(0.03)}
    return CostTable(((1, 1.0), (2, second)), 0.001, draft_costs=drafts)


@dataclass
class Weights:
    """An executor that only says what it is."""

    num_layers: int = 4
    vocab_size: int = 3
    max_context: int = 64
    block_size: int = 8
    num_blocks: int = 8
    shared: list[int] = field(default_factory=list)

    def forward(self, batch: ForwardBatch) -> FloatArray:
        raise AssertionError("nothing to compute")

    def forward_with_states(
        self, batch: ForwardBatch, layers: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        raise AssertionError("no hidden states are wanted")

    def move_slots(self, source: IntArray, destination: IntArray) -> None:
        raise AssertionError("nothing to move")

    def first_layers(self, num_layers: int, num_blocks: int) -> Weights:
        self.shared.append(num_layers)
        return Weights(num_layers, num_blocks=num_blocks)


def build(spec: Any, **settings: Any) -> Drafter:
    return build_drafter(
        spec,
        target=settings.pop("target", Weights()),
        target_vocabulary=WORDS,
        num_draft_tokens=7,
        **settings,
    )


@pytest.mark.parametrize("name", [n for n in DRAFTER_NAMES if n not in ("draft_model", "eagle3")])
def test_each_name_builds_its_drafter(name: str) -> None:
    drafter = build(name)
    assert isinstance(drafter, Drafter)
    assert drafter.name == name


def test_options_reach_the_drafter() -> None:
    ngram = build("ngram", options={"max_n": 4})
    assert isinstance(ngram, NgramDrafter)
    assert ngram.options == NgramOptions(max_n=4)
    auto = build("auto", options={"confident": 0.9}, costs=curve(1.5))
    assert isinstance(auto, AutoDrafter)
    assert auto.options.confident == 0.9
    assert auto.options.verify_cost.ratios[:2] == (1.0, 1.5)
    assert auto.options.ask_cost == 0.03


def test_the_suffix_tree_counts_as_deep_as_a_draft_can_be() -> None:
    by_default, by_hand = build("suffix"), build("suffix", options={"max_depth": 20})
    assert isinstance(by_default, SuffixDrafter)
    assert isinstance(by_hand, SuffixDrafter)
    assert by_default.options.max_depth == SuffixOptions().max_match + 7
    assert by_hand.options.max_depth == 20
    mine = AutoOptions(suffix=SuffixOptions(max_depth=30))
    kept = build("auto", options={"suffix": mine.suffix})
    assert isinstance(kept, AutoDrafter)
    assert kept.options.suffix.max_depth == 30


def test_the_first_layers_of_the_target_draft() -> None:
    target = Weights()
    drafter = build("draft_model:self:2", target=target, options={"min_copy_agreement": 0.0})
    assert isinstance(drafter, DraftModelDrafter)
    assert drafter.name == "draft_model:self:2"
    assert target.shared == [2]
    assert not drafter.capabilities.can_branch
    assert drafter.capabilities.gives_probabilities


def test_a_draft_model_is_loaded_by_name() -> None:
    asked: list[str] = []

    def load(name: str) -> DraftModel:
        asked.append(name)
        return DraftModel(name, Weights(), WORDS)

    drafter = build(
        "draft_model:C:/models/a.gguf", load_draft_model=load, options={"min_copy_agreement": 0.0}
    )
    assert drafter.name == "draft_model:C:/models/a.gguf"
    assert asked == ["C:/models/a.gguf"]


def fake_head(name: str, num_blocks: int = 8) -> Eagle3Head:
    executor = FakeExecutor(vocab_size=3)
    head = FakeHead(executor, all_ids(executor), num_blocks)
    return Eagle3Head(name, head, BlockPool(num_blocks))  # type: ignore[arg-type]


def test_a_head_is_loaded_by_path_or_comes_with_the_target() -> None:
    asked: list[str] = []

    def load(name: str) -> Eagle3Head:
        asked.append(name)
        return fake_head(name or "shipped")

    named = build("eagle3:hf:org/head", load_head=load, options={"width": 2})
    shipped = build("eagle3", load_head=load, costs=curve(1.5))
    assert asked == ["hf:org/head", ""]
    assert isinstance(named, Eagle3Drafter)
    assert isinstance(shipped, Eagle3Drafter)
    assert (named.name, shipped.name) == ("eagle3:hf:org/head", "eagle3:shipped")
    assert named.options.width == 2
    assert shipped.options.verify_cost.ratios[:2] == (1.0, 1.5)
    assert (shipped.options.catch_up_cost, shipped.options.step_cost) == (0.2, 0.05)
    assert named.options.catch_up_cost != 0.2
    assert named.capabilities.state_layers == LAYERS


def test_a_target_without_a_head_says_what_to_do() -> None:
    with pytest.raises(DrafterError, match=r"no head comes with Paceline.*paceline train eagle3.*'auto'"):
        build("eagle3", load_head=lambda name: None)
    with pytest.raises(DrafterError, match="no KV blocks"):
        build("eagle3:a", load_head=lambda name: fake_head(name, num_blocks=0))


def test_auto_takes_the_shipped_head_unless_told_not_to() -> None:
    for options, layers in (({}, LAYERS), ({"use_head": False}, ())):
        auto = build("auto", load_head=fake_head, options=options, costs=curve(1.7))
        assert isinstance(auto, AutoDrafter)
        assert auto.capabilities.state_layers == layers
        assert auto.options.eagle3.verify_cost.ratios[:2] == (1.0, 1.7)
    assert build("auto", load_head=lambda name: None).capabilities.state_layers == ()


@pytest.mark.parametrize("error", [ModelFileError("it is torn"), DrafterError("not yours"), OSError("gone")])
def test_auto_does_without_a_head_that_cannot_be_used(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def load(name: str) -> Eagle3Head:
        raise error

    assert build("auto", load_head=load).capabilities.state_layers == ()
    (record,) = caplog.records
    assert f"goes on without it: {error}" in record.getMessage()
    with pytest.raises(type(error), match=str(error)):
        build("eagle3", load_head=load)


def test_a_ready_made_drafter_is_taken_as_it_is() -> None:
    drafter = NgramDrafter()
    assert build(drafter) is drafter
    with pytest.raises(ConfigError, match="'max_n' given with a ready-made drafter"):
        build(drafter, options={"max_n": 3})
    with pytest.raises(ConfigError, match="neither a name nor a Drafter"):
        build(3)


def test_a_registered_drafter_is_built_by_name() -> None:
    seen: list[DraftTarget] = []

    def build_mine(target: DraftTarget) -> Drafter:
        seen.append(target)
        return NgramDrafter()

    register_drafter("mine", build_mine)
    try:
        assert isinstance(build("mine", costs=curve(3.0)), NgramDrafter)
        assert seen[0].vocabulary == WORDS
        assert seen[0].num_draft_tokens == 7
        assert seen[0].verify_cost.ratios[:2] == (1.0, 3.0)
        with pytest.raises(ConfigError, match=r"did you mean 'mine'.*auto, mine"):
            build("mina")
        with pytest.raises(ConfigError, match="'mine' is taken"):
            register_drafter("mine", build_mine)
        with pytest.raises(ConfigError, match="takes no options"):
            build("mine", options={"a": 1})
    finally:
        unregister_drafter("mine")
    with pytest.raises(ConfigError, match="unknown"):
        build("mine")
    with pytest.raises(ConfigError, match="not registered"):
        unregister_drafter("mine")


@pytest.mark.parametrize("name", ["ngram", "draft_model", "a:b", "", "1st"])
def test_names_that_are_taken_or_no_names_cannot_be_registered(name: str) -> None:
    with pytest.raises(ConfigError, match="drafter name"):
        register_drafter(name, lambda target: NgramDrafter())


def test_an_installed_package_can_bring_a_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def load(self) -> Any:
            return lambda target: NgramDrafter()

    def find(group: str, name: str) -> list[Installed]:
        assert group == "paceline.drafters"
        return [Installed()] if name == "theirs" else []

    monkeypatch.setattr("importlib.metadata.entry_points", find)
    assert isinstance(build("theirs"), NgramDrafter)


def test_what_is_built_must_be_a_drafter() -> None:
    register_drafter("broken", lambda target: 3)  # type: ignore[arg-type, return-value]
    try:
        with pytest.raises(DrafterError, match="'broken' was built as 3"):
            build("broken")
    finally:
        unregister_drafter("broken")


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("sufix", {}, "did you mean 'suffix'"),
        ("n-gram", {}, "did you mean 'ngram'"),
        ("ngram:5", {}, "takes nothing after a colon"),
        ("draft_model", {}, "names no model"),
        ("draft_model:self:0", {}, "'0' is no layer count"),
        ("draft_model:self:two", {}, "'two' is no layer count"),
        ("draft_model:smollm2-135m", {}, "no loader"),
        ("eagle3", {}, "no loader for draft heads"),
        ("eagle3:", {}, "names no head; write eagle3 or eagle3:<path"),
        ("eagle:a", {}, "did you mean 'eagle3'"),
        ("ngram", {"maxn": 3}, "no setting 'maxn' .did you mean 'max_n'"),
        ("none", {"max_n": 3}, "takes no options"),
        ("auto", {"suffix": 3}, "suffix=3"),
    ],
)
def test_what_does_not_fit_is_named(spec: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(spec, options=options)
