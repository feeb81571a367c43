"""Do two servers say the same? A plain one and one that speculates, or one server asked twice.

Greedy replies are compared: token ids where both tell them, else tokens, else text; log-probabilities;
finish reasons; usage. Noise is measured from the log-probabilities of tokens that both chose after the same
text: how far the plain server is from itself, and from the other one. Servers on GPUs are within noise at
best, because their kernels depend on the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import numpy as np

from paceline.bench.load.endpoint import Endpoint, find_server, make_client
from paceline.check.answers import Answer, Asker, Messages
from paceline.check.differences import Difference, first_difference, kind_of
from paceline.check.progress import Progress, silent
from paceline.config import Settings, check_float, check_int
from paceline.errors import ConfigError

LARGEST_NOISE = 0.25
"""Nats. Half-precision kernels disagree by hundredths; servers further apart do not compute the same."""
_QUANTILE = 0.99


@dataclass(frozen=True, slots=True)
class EndpointPrompt:
    """``messages``: a conversation that ends with the user's."""

    id: str
    messages: Messages


@dataclass(frozen=True, slots=True)
class EndpointSettings(Settings):
    """``baseline``: the plain server; ``None``: the same one. ``timeout``: seconds a reply may take."""

    endpoint: Endpoint
    baseline: Endpoint | None = None
    model: str | None = None
    api_key: str | None = None
    max_tokens: int = 64
    timeout: float = 120.0

    def __post_init__(self) -> None:
        check_int("max_tokens", self.max_tokens, 1)
        check_float("timeout", self.timeout, 0.01, 86400.0)


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """``noise_repeat``: largest difference of a log-probability between the plain server's two replies.
    ``noise_between``: the 99th percentile between the two servers. Both ``None`` without log-probabilities.
    ``compared_by``: token ids, tokens or text. ``num_same``: replies that are the same.
    """

    url: str
    baseline_url: str
    model: str
    num_prompts: int
    num_tokens: int
    compared_by: tuple[str, ...]
    num_same: int
    noise_repeat: float | None
    noise_between: float | None
    differences: tuple[Difference, ...]

    @property
    def num_unclear(self) -> int:
        """Prompts of which nothing can be said, because the plain server does not repeat itself."""
        unclear = {found.prompt for found in self.differences if found.kind == "baseline"}
        return len(unclear)

    @property
    def passed(self) -> bool:
        """Whether there is no bug, and something was compared."""
        return (
            not any(found.kind == "bug" for found in self.differences) and self.num_unclear < self.num_prompts
        )


@dataclass(frozen=True, slots=True)
class _Replies:
    prompt: str
    plain: Answer
    again: Answer
    other: Answer


def check_endpoints(
    settings: EndpointSettings, prompts: Sequence[EndpointPrompt], progress: Progress = silent
) -> EndpointResult:
    """Ask and compare. Raises ``EndpointError`` for a server that is down, slow, or speaks otherwise."""
    if not prompts:
        raise ConfigError("there is no prompt to check with: give at least one")
    return asyncio.run(_check(settings, prompts, progress))


async def _check(
    settings: EndpointSettings, prompts: Sequence[EndpointPrompt], progress: Progress
) -> EndpointResult:
    async with AsyncExitStack() as stack:
        other = await _asker(stack, settings, settings.endpoint)
        plain = other if settings.baseline is None else await _asker(stack, settings, settings.baseline)
        gathered = []
        for prompt in prompts:
            first, second = await plain.ask(prompt.messages), await plain.ask(prompt.messages)
            third = second if settings.baseline is None else await other.ask(prompt.messages)
            gathered.append(_Replies(prompt.id, first, second, third))
            progress("replies of servers", len(prompts))
    return _judge(gathered, plain, other, settings.baseline is None)


async def _asker(stack: AsyncExitStack, settings: EndpointSettings, endpoint: Endpoint) -> Asker:
    client = await stack.enter_async_context(make_client(endpoint, settings.api_key, settings.timeout))
    server = await find_server(client, endpoint, settings.model, settings.timeout)
    return Asker(client, server, settings.max_tokens, settings.timeout)


def _judge(gathered: Sequence[_Replies], plain: Asker, other: Asker, alone: bool) -> EndpointResult:
    repeat = _distances([(replies.plain, replies.again) for replies in gathered])
    between = _distances([(replies.plain, replies.other) for replies in gathered])
    noise_repeat = float(max(repeat)) if repeat else None
    noise_between = float(np.quantile(between, _QUANTILE)) if between else None
    noise = min(LARGEST_NOISE, max(noise_repeat or 0.0, noise_between or 0.0))
    differences: list[Difference] = []
    num_same = 0
    for replies in gathered:
        # A server that is only compared with itself has no other baseline that could excuse it.
        place = None if alone else _place(replies.plain, replies.again)
        found = _compare(replies.plain, replies.other, place, noise)
        num_same += not found
        differences += [difference.of(replies.prompt, other.url) for difference in found]
    return EndpointResult(
        other.url,
        plain.url,
        other.server.model,
        len(gathered),
        sum(_length(replies.other) for replies in gathered),
        tuple(sorted({_sequences(replies.plain, replies.other)[0] for replies in gathered})),
        num_same,
        noise_repeat,
        noise_between,
        tuple(differences),
    )


def _length(answer: Answer) -> int:
    if answer.token_ids is not None:
        return len(answer.token_ids)
    return answer.usage[1] if answer.usage else len(answer.tokens or ())


def _sequences(one: Answer, two: Answer) -> tuple[str, Sequence[object], Sequence[object]]:
    """Return the finest account of both replies: what it is, and each reply in it."""
    if one.token_ids is not None and two.token_ids is not None:
        return "token ids", one.token_ids, two.token_ids
    if one.tokens is not None and two.tokens is not None:
        return "tokens", [token.text for token in one.tokens], [token.text for token in two.tokens]
    return "text", one.text, two.text


def _place(one: Answer, two: Answer) -> int | None:
    _, first, second = _sequences(one, two)
    return first_difference(first, second)


def _distances(pairs: Sequence[tuple[Answer, Answer]]) -> list[float]:
    """Return how far the log-probabilities of equal tokens behind equal texts are apart."""
    found = []
    for one, two in pairs:
        for a, b in zip(one.tokens or (), two.tokens or (), strict=False):
            if (a.text, a.id) != (b.text, b.id):
                break
            found.append(abs(a.logprob - b.logprob))
    return found


def _compare(plain: Answer, other: Answer, repeat: int | None, noise: float) -> list[Difference]:
    """Return the differences between two replies, the first of each sort."""
    found: list[Difference] = []
    place = _place(plain, other)
    far = next((i for i, d in enumerate(_distances([(plain, other)])) if d > LARGEST_NOISE), None)
    if far is not None:
        found.append(_at(plain, other, far, repeat, noise, "logprob"))
    if place is not None:
        found.append(_at(plain, other, place, repeat, noise, "token"))
        return found
    for what in ("text", "finish_reason", "usage"):
        one, two = getattr(plain, what), getattr(other, what)
        if one != two and None not in (one, two):
            kind = "bug" if repeat is None else "baseline"
            found.append(Difference(kind, 0, texts=(str(one), str(two)), noise=noise, what=what))  # type: ignore[arg-type]
    return found


def _at(plain: Answer, other: Answer, place: int, repeat: int | None, noise: float, what: str) -> Difference:
    form = _sequences(plain, other)[0]
    if form == "text":
        kind = kind_of(place, repeat, None, noise)
        excerpts = (plain.text[place : place + 20], other.text[place : place + 20])
        return Difference(kind, place, texts=excerpts, noise=noise, what="text")
    texts = tuple(_text(answer, place) for answer in (plain, other))
    ids = tuple(_id(answer, place) for answer in (plain, other))
    gap = _gap(plain, other, place) if what == "token" else None
    kind = kind_of(place, repeat, gap, noise)
    return Difference(kind, place, (ids[0], ids[1]), (texts[0], texts[1]), gap, noise, what)  # type: ignore[arg-type]


def _text(answer: Answer, place: int) -> str:
    tokens = answer.tokens or ()
    return tokens[place].text if place < len(tokens) else ""


def _id(answer: Answer, place: int) -> int | None:
    ids = answer.token_ids or ()
    return ids[place] if place < len(ids) else None


def _gap(plain: Answer, other: Answer, place: int) -> float | None:
    """Return how much likelier the plain token was; ``None`` when the rival is not among those told."""
    if plain.tokens is None or other.tokens is None or min(len(plain.tokens), len(other.tokens)) <= place:
        return None
    mine, rival = plain.tokens[place], plain.tokens[place].top.get(other.tokens[place].text)
    return None if rival is None else max(0.0, mine.logprob - rival)
