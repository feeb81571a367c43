"""Drafters by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paceline.config import check_int
from paceline.drafters import custom
from paceline.drafters.auto import AutoDrafter, AutoOptions
from paceline.drafters.base import Drafter
from paceline.drafters.custom import BuildDrafter, DraftTarget
from paceline.drafters.draft_model import DraftModel, DraftModelDrafter, DraftModelOptions
from paceline.drafters.eagle3 import Eagle3Drafter, Eagle3Head, Eagle3Options
from paceline.drafters.ngram import NgramDrafter, NgramOptions
from paceline.drafters.none import NoneDrafter
from paceline.drafters.prediction import PredictionDrafter, PredictionOptions
from paceline.drafters.recycle import RecycleDrafter, RecycleOptions
from paceline.drafters.suffix import SuffixDrafter, SuffixOptions
from paceline.drafters.verify_cost import VerifyCost
from paceline.errors import ConfigError, DrafterError, PacelineError, nearest_name
from paceline.executors.base import Executor
from paceline.kv.block_pool import BlockPool
from paceline.theory.cost_table import CostTable

DRAFTER_NAMES = ("none", "ngram", "suffix", "recycle", "prediction", "draft_model", "eagle3", "auto")
_SELF = "self:"
_LEAST_DRAFT_DEPTH = 4
_MOST_DRAFT_DEPTH = 32

LoadDraftModel = Callable[[str], DraftModel]
LoadHead = Callable[[str], Eagle3Head | None]

logger = logging.getLogger("paceline.drafters")


def build_drafter(
    spec: str | Drafter,
    *,
    target: Executor,
    target_vocabulary: Sequence[str],
    num_draft_tokens: int,
    target_pool: BlockPool | None = None,
    load_draft_model: LoadDraftModel | None = None,
    load_head: LoadHead | None = None,
    costs: CostTable | None = None,
    options: Mapping[str, Any] | None = None,
) -> Drafter:
    """Return the drafter that ``spec`` names, or ``spec`` itself when it is one already.

    Names: ``none``, ``ngram``, ``suffix``, ``recycle``, ``prediction``, ``auto``,
    ``draft_model:<name or path>``, ``draft_model:self:N`` (the target's first N layers), ``eagle3`` (the head
    that comes with Paceline for this target), ``eagle3:<path or hf:org/repo>``, and those added with
    :func:`register_drafter` or by an installed package (see ``custom``).
    ``target_vocabulary``: text of each token id. ``num_draft_tokens``: most tokens drafted per step; sizes
    what ``suffix`` counts. ``target_pool``: the target's free KV blocks, of which the self-test of a draft
    model borrows some; without it, build before the first request runs. ``load_draft_model``: loads a draft
    model by name or path. ``load_head``: loads an EAGLE-3 head by path or hub name; called with an empty
    name it returns the target's shipped head, ``None`` when there is none. ``auto`` uses that one; when it
    cannot be loaded, a warning says so and ``auto`` does without. ``costs``: what ``auto`` and
    ``eagle3`` plan by; careful assumptions (``control/default_costs``) unless given. ``options``: fields of
    the drafter's options record.

    Raises ``ConfigError`` for an unknown name or option (naming the nearest), ``VocabularyMismatchError`` and
    ``DrafterError`` when a draft model or head does not fit the target, and what the loaders raise.
    """
    check_int("num_draft_tokens", num_draft_tokens, 0)
    given = dict(options or {})
    if not isinstance(spec, str):
        return _ready_made(spec, given)
    name, _, argument = spec.partition(":")
    if name not in DRAFTER_NAMES:
        curve = VerifyCost() if costs is None else VerifyCost.of(costs)
        about = DraftTarget(target, target_vocabulary, num_draft_tokens, curve)
        return _custom(spec, about, given)
    if name == "draft_model":
        model = _draft_model(spec, argument, target, target_vocabulary, load_draft_model)
        return DraftModelDrafter(
            model,
            target=target,
            target_vocabulary=target_vocabulary,
            target_pool=target_pool,
            options=DraftModelOptions(**given),
        )
    if name == "eagle3":
        head = _head(spec, argument, load_head)
        return Eagle3Drafter(head, options=_head_options(head, costs, given))
    if argument:
        raise ConfigError(f"drafter={spec!r}: {name!r} takes nothing after a colon; valid: {_usage()}")
    if name == "auto":
        return _auto(num_draft_tokens, load_head, costs, given)
    return _cheap_drafter(name, target.vocab_size, num_draft_tokens, given)


def _cheap_drafter(name: str, vocab_size: int, num_draft_tokens: int, given: dict[str, Any]) -> Drafter:
    """Build a drafter that needs no second model."""
    if name == "none":
        if given:
            raise ConfigError(
                f"drafter='none' takes no options, but got {', '.join(map(repr, given))}; leave them out"
            )
        return NoneDrafter()
    if name == "ngram":
        return NgramDrafter(NgramOptions(**given))
    if name == "suffix":
        return SuffixDrafter(_sized(SuffixOptions(**given), given, num_draft_tokens))
    if name == "recycle":
        return RecycleDrafter(vocab_size, RecycleOptions(**given))
    return PredictionDrafter(PredictionOptions(**given))


def _auto(
    num_draft_tokens: int,
    load_head: LoadHead | None,
    costs: CostTable | None,
    given: dict[str, Any],
) -> AutoDrafter:
    """Build ``auto``, with the target's shipped head if there is one."""
    if costs is not None:
        given.setdefault("verify_cost", VerifyCost.of(costs))
        if costs.knows("auto"):
            given.setdefault("ask_cost", costs.cost_of("auto").fixed)
    auto = AutoOptions(**given)
    if "suffix" not in given:
        auto = replace(auto, suffix=_sized(auto.suffix, {}, num_draft_tokens))
    if "eagle3" not in given:
        auto = replace(auto, eagle3=replace(auto.eagle3, verify_cost=auto.verify_cost))
    try:
        head = load_head("") if load_head is not None and auto.use_head else None
        if head is not None and "eagle3" not in given:
            auto = replace(auto, eagle3=_head_options(head, costs, {"verify_cost": auto.verify_cost}))
        drafter = Eagle3Drafter(head, options=auto.eagle3) if head else None
    except (PacelineError, OSError) as error:
        logger.warning("the shipped draft head cannot be used; auto goes on without it: %s", error)
        drafter = None
    return AutoDrafter(auto, drafter)


def _head_options(head: Eagle3Head, costs: CostTable | None, given: dict[str, Any]) -> Eagle3Options:
    """Return the options of a head: what the caller chose, then what was measured."""
    if costs is not None:
        given.setdefault("verify_cost", VerifyCost.of(costs))
        name = f"eagle3:{head.name}"
        if costs.knows(name):
            drafting = costs.cost_of(name)
            given.setdefault("step_cost", drafting.per_level)
            given.setdefault("catch_up_cost", drafting.fixed)
    return Eagle3Options(**given)


def _head(spec: str, argument: str, load_head: LoadHead | None) -> Eagle3Head:
    """Load the head that ``argument`` names; the shipped one when it is empty."""
    if spec.endswith(":"):
        raise ConfigError(f"drafter={spec!r} names no head; write eagle3 or eagle3:<path or hf:org/repo>")
    if load_head is None:
        raise ConfigError(f"drafter={spec!r}: no loader for draft heads was given; pass load_head")
    head = load_head(argument)
    if head is None:
        raise DrafterError(
            f"drafter={spec!r}: no head comes with Paceline for this model; name one "
            "(eagle3:<path or hf:org/repo>), train one (paceline train eagle3), or use drafter='auto'"
        )
    return head


def _sized(options: SuffixOptions, given: Mapping[str, Any], num_draft_tokens: int) -> SuffixOptions:
    """Let the suffix tree count as deep as a longest match plus a whole draft, unless the caller chose."""
    if "max_depth" in given:
        return options
    depth = options.max_match + min(max(num_draft_tokens, _LEAST_DRAFT_DEPTH), _MOST_DRAFT_DEPTH)
    return replace(options, max_depth=depth)


def _draft_model(
    spec: str,
    argument: str,
    target: Executor,
    target_vocabulary: Sequence[str],
    load_draft_model: LoadDraftModel | None,
) -> DraftModel:
    """Load the draft model that ``argument`` names."""
    if not argument:
        raise ConfigError(
            f"drafter={spec!r} names no model; write draft_model:<name or path> or draft_model:self:N"
        )
    if argument.startswith(_SELF):
        layers = argument.removeprefix(_SELF)
        if not (layers.isascii() and layers.isdigit() and int(layers) >= 1):
            raise ConfigError(
                f"drafter={spec!r}: {layers!r} is no layer count; write e.g. draft_model:self:8"
            )
        executor = target.first_layers(int(layers), target.num_blocks)
        return DraftModel(argument, executor, target_vocabulary)
    if load_draft_model is None:
        raise ConfigError(f"drafter={spec!r}: no loader for draft models was given; pass load_draft_model")
    return load_draft_model(argument)


def register_drafter(name: str, build: BuildDrafter) -> None:
    """Make ``name`` a valid drafter of this process; ``build`` gets a :class:`DraftTarget`.

    Raises ``ConfigError`` for a name that is taken or no plain name.
    """
    custom.register_drafter(name, build, taken=DRAFTER_NAMES)


def _custom(name: str, target: DraftTarget, given: Mapping[str, Any]) -> Drafter:
    """Build a registered or installed drafter."""
    drafter = custom.build_custom(name, target)
    if drafter is None:
        near = nearest_name(name.partition(":")[0], (*DRAFTER_NAMES, *custom.registered_names()))
        raise ConfigError(f"drafter={name!r} is unknown{near}; valid: {_usage()}")
    if given:
        raise ConfigError(f"drafter={name!r} takes no options, but got {', '.join(map(repr, given))}")
    return drafter


def _ready_made(drafter: object, given: Mapping[str, Any]) -> Drafter:
    """Check an object that claims to be a drafter."""
    if not isinstance(drafter, Drafter):
        raise ConfigError(
            f"drafter={drafter!r} is neither a name nor a Drafter (an object with name, capabilities and "
            f"start); valid names: {_usage()}"
        )
    if given:
        raise ConfigError(
            f"options {', '.join(map(repr, given))} given with a ready-made drafter; set them on it instead"
        )
    return drafter


def _usage() -> str:
    forms = {"draft_model": "draft_model:<name, path or self:N>", "eagle3": "eagle3[:<path or hf:org/repo>]"}
    return ", ".join(forms.get(name, name) for name in (*DRAFTER_NAMES, *custom.registered_names()))
