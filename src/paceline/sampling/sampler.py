"""How one request turns logits into a law and a token; the same object serves the target and the drafters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.config import Acceptance
from paceline.errors import ConfigError
from paceline.records import Draft, FloatArray, IntArray, TokenLaw
from paceline.sampling import kernels
from paceline.sampling.chance import Chance
from paceline.sampling.params import SamplingParams
from paceline.sampling.processors import Processors


def resolve_acceptance(engine: Acceptance, params: SamplingParams) -> Acceptance:
    """Return the rule of a request: its own, else the engine's; ``auto`` becomes a rule.

    Temperature 0: greedy. A seed: coupled. Otherwise block, which keeps the most of a sampled chain; on
    certain drafts ``rejection`` and ``block`` do the same (see ``engine/accept.py``). Raises ``ConfigError``
    for the greedy rule at a temperature above 0, which would sample from another law.
    """
    if params.is_greedy:
        return "greedy"
    wanted = params.acceptance or engine
    if wanted == "greedy":
        raise ConfigError(
            f"acceptance='greedy' takes the argmax but temperature={params.temperature}: use 'auto'"
        )
    if wanted != "auto":
        return wanted
    return "block" if params.seed is None else "coupled"


class RequestSampler:
    """Sampling state of one request: its processors' history, its filters, its chance.

    ``rule`` is never ``auto``. Implements :class:`paceline.drafters.base.TokenSampler`.
    """

    __slots__ = ("_length", "_params", "_processors", "_vocab_size", "chance", "rule")

    def __init__(
        self,
        params: SamplingParams,
        prompt: Sequence[int],
        eos_ids: Iterable[int],
        rule: Acceptance,
        chance: Chance,
        vocab_size: int,
    ) -> None:
        self._params = params
        self._processors = Processors(params, prompt, eos_ids)
        self._length = len(prompt)
        self._vocab_size = vocab_size
        self.rule = rule
        self.chance = chance

    @property
    def root(self) -> int:
        """Position of the last committed token."""
        return self._length - 1

    def append(self, token: int) -> None:
        """Take one committed token into the history."""
        self._length += 1
        self._processors.append(token)

    def cut(self, draft: Draft) -> Draft:
        """Return ``draft`` without nodes that the request's grammar makes illegal, and what follows them."""
        return self._processors.cut(draft)

    def law(self, logits: FloatArray, path: tuple[int, ...]) -> TokenLaw:
        """Return the law of the token behind ``path``, after processors and filters."""
        params = self._params
        row = self._processors.apply(logits, path)
        return kernels.filtered_law(row, params.temperature, params.top_k, params.top_p, params.min_p)

    def choose(self, logits: FloatArray, path: tuple[int, ...]) -> int:
        """Return the token behind ``path``: the argmax, or a draw with the noise of its position."""
        if self.rule == "greedy":
            return kernels.argmax(self._processors.apply(logits, path))
        law = self.law(logits, path)
        position = self._length + len(path)
        if self.rule == "coupled":
            return self.chance.draw_coupled(law, position)
        return self.chance.draw(law, position)

    def draw(
        self, logits: FloatArray, path: tuple[int, ...], ids: IntArray | None = None
    ) -> tuple[int, TokenLaw | None]:
        """Draw a token to draft; see :class:`paceline.drafters.base.TokenSampler`."""
        if ids is not None and self._processors.applies(
            path
        ):  # they know tokens of the whole vocabulary only
            whole = np.full(self._vocab_size, -np.inf, dtype=np.float32)
            whole[ids] = logits
            logits, ids = whole, None
        if self.rule == "greedy":
            best = self.choose(logits, path)
            return (best if ids is None else int(ids[best])), None
        law = self.law(logits, path)
        if ids is not None:
            law = TokenLaw(ids[law.ids], law.probs)
        if self.rule == "coupled":
            return self.chance.draw_coupled(law, self._length + len(path)), None
        return self.chance.draw_draft(law, self.root, len(path)), law
