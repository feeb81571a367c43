"""The whole interface of a drafter.

A :class:`Drafter` is built once per engine and opens one :class:`DraftSession` per request. A session that
raises ends drafting for its request, never the request. Drafters never see the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from paceline.config import Acceptance
from paceline.control.decisions import Decision
from paceline.records import BatchLoad, Draft, FloatArray, IntArray, StepObservation, TokenLaw


@dataclass(frozen=True, slots=True)
class DrafterCapabilities:
    """What a drafter can do and needs, as data.

    ``can_branch``: drafts may be trees. ``gives_probabilities``: drafts are sampled and carry laws.
    ``num_top_tokens``: how many of the target's best successors per verified row it wants to observe.
    ``state_layers``: target layers whose incoming hidden states it wants to observe, as for
    ``Executor.forward_with_states``. ``is_adaptive``: its sessions are :class:`AdaptiveSession` objects.
    """

    can_branch: bool = False
    gives_probabilities: bool = False
    num_top_tokens: int = 0
    state_layers: tuple[int, ...] = ()
    is_adaptive: bool = False


class TokenSampler(Protocol):
    """The request's own sampling, lent to drafters that draw tokens, so that p and q see the same filters."""

    def draw(
        self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
        """Draw the token that follows the committed tokens plus ``path`` (already drafted tokens).

        ``logits`` float32 [V] are the drafter's; with ``ids`` int32 [N], rising, those of these tokens only,
        float32 [N], and no other token can be drawn. Returns the token and the law it was drawn from; the
        law is ``None`` for greedy and coupled requests, whose drafts are verified by comparing tokens.
        """
        ...


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter may know of a request when it starts.

    ``prompt_token_ids``: the prompt. ``sampler``: see :class:`TokenSampler`. ``prediction``: token ids the
    caller expects in the reply, if any (OpenAI predicted outputs). ``rule``: how drafts are accepted; never
    ``auto``. ``greedy`` and ``coupled`` compare tokens, the others weigh a sampled draft by its law.
    ``explain``: whether an adaptive session keeps a record of its last decision. ``num_others``: requests
    that will be served beside it, as far as one can tell now.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampler: TokenSampler
    prediction: tuple[int, ...] = ()
    rule: Acceptance = "greedy"
    explain: bool = False
    num_others: int = 0


class DraftSession(Protocol):
    """Drafting for one request."""

    def propose(self, budget: int) -> Draft:
        """Return a draft of at most ``budget`` nodes that continues all committed tokens; it may be empty."""
        ...

    def observe(self, step: StepObservation) -> None:
        """Learn what one step committed, also when nothing was drafted.

        Steps in which the session was not asked (it is held back, or the forward was full) are told of in one
        call before it is asked or stopped, unless it wants hidden states or likeliest tokens: then each at
        once. The first call begins with the first generated token (the prompt itself came with ``start``). A
        session that gets hidden states is also called for a step that only read a piece of the prompt (or
        read it again); such a call commits nothing.
        """
        ...

    def stop(self) -> None:
        """Release everything held for the request. Called exactly once, on cancellation too."""
        ...


class AdaptiveSession(DraftSession, Protocol):
    """A session that chooses how much to draft by what the forward holds already.

    ``spent``: what drafting has cost in this step, in one-row target forwards. ``wants_states``: whether
    it still wants the hidden states that its capabilities name; once it does not, it gets none for the rest
    of the request. ``decision``: what it chose last and why; ``None`` unless
    :attr:`DraftContext.explain` was set. ``rest``: steps to come in which it need not be asked.
    """

    spent: float

    @property
    def rest(self) -> int: ...

    @property
    def wants_states(self) -> bool: ...

    @property
    def decision(self) -> Decision | None: ...

    def meet(self, load: BatchLoad) -> None:
        """Take the load of the next forward. Called once before each :meth:`propose`."""
        ...


@runtime_checkable
class RememberingSession(Protocol):
    """A session that may know more of a prompt than it was told, from earlier requests."""

    def states_wanted_from(self, limit: int, num_requests: int) -> int:
        """Return the position from which it needs hidden states.

        The prefix cache has the tokens before ``limit``, whose states would not be computed. A lower number
        asks to leave some of them to the target; if they are many, they come from ``limit`` on all the same.
        ``num_requests``: that are there, this one included.
        """
        ...


@runtime_checkable
class Drafter(Protocol):
    """A source of draft sessions."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> DrafterCapabilities: ...

    def start(self, context: DraftContext) -> DraftSession:
        """Open a session for one request."""
        ...
