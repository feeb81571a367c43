"""What is measured: points of the load driver, and the engine without a server; each with a fresh one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paceline.bench.datasets import BenchPrompt
from paceline.bench.load.driver import run_load
from paceline.bench.load.endpoint import parse_endpoint
from paceline.bench.load.settings import LoadSettings
from paceline.bench.load.stream import TimedReply
from paceline.bench.load.summary import step_gaps, token_gaps
from serving import prompts
from serving.hosted import Task, conversations, hosted_engine
from serving.servers import Machine, free_port, running

OURS, PLAIN, LLAMA, ENGINE = "paceline", "paceline, no speculation", "llama-server", "engine alone"
EXTRAS: Mapping[str, Mapping[str, Any]] = {
    OURS: {},
    PLAIN: {"speculative": {"enabled": False}},
    # A prompt is sent once to each of its servers, but slots would still share its beginning.
    LLAMA: {"cache_prompt": False},
}


@dataclass(frozen=True, slots=True)
class Point:
    """One system at one width. Times in seconds.

    ``seconds``: first request to last reply. ``decode_rates``: tokens behind the first piece of each reply ÷
    the time from that piece to its end (1 ÷ TPOT); one of all replies together, or with one request at once
    one of each. ``step_gaps``: between pieces of text;
    ``token_gaps``: those divided over the tokens they bring. ``client_seconds``: the client's processor time.
    The engine alone has neither gaps nor a client.
    """

    system: str
    width: int
    repeat: int
    seconds: float
    output_tokens: int
    prompt_tokens: int
    decode_rates: tuple[float, ...] = ()
    client_seconds: float = 0.0
    ttfts: tuple[float, ...] = ()
    step_gaps: tuple[float, ...] = ()
    token_gaps: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Output tokens per second of the whole point, prompts included."""
        return self.output_tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Piece:
    """Some prompts of a point. ``later``, ``later_seconds``: tokens behind the first piece of each reply."""

    seconds: float
    output_tokens: int
    prompt_tokens: int
    later: int
    later_seconds: float
    client_seconds: float = 0.0
    replies: tuple[TimedReply, ...] = ()


Ask = Callable[[int, int], Piece]


@dataclass(frozen=True, slots=True)
class Plan:
    """``prompts_per_slot``: requests of a point ÷ its width; but width 1 asks the chat workload."""

    machine: Machine
    parts: tuple[str, ...]
    widths: tuple[int, ...]
    repeats: int
    max_tokens: int
    prompts_per_slot: int
    num_ttft: int
    num_shared: int
    length: Callable[[BenchPrompt], int]
    text_length: Callable[[str], int]


@dataclass(slots=True)
class Results:
    """``ttft``, ``shared``: one entry a repeat; of systems the times of all prompts, in their order."""

    points: list[Point] = field(default_factory=list)
    ttft: list[dict[str, tuple[float, ...]]] = field(default_factory=list)
    shared: list[tuple[float, ...]] = field(default_factory=list)
    prompt_tokens: dict[str, float] = field(default_factory=dict)


Say = Callable[[str], None]


def measure(plan: Plan, say: Say) -> Results:
    """Run all repeats; systems take turns, and who begins changes from one to the next."""
    results = Results()
    systems = [OURS, PLAIN, ENGINE, *([LLAMA] if plan.machine.llama_server else [])]
    for repeat in range(plan.repeats):
        order = [*systems[repeat % len(systems) :], *systems[: repeat % len(systems)]]
        for width in plan.widths if "load" in plan.parts else ():
            for point in _points(plan, order, width, repeat):
                results.points.append(point)
                say(f"repeat {repeat + 1}: {width} x {point.system}: {point.rate:.1f} tokens/s")
        if "ttft" in plan.parts:
            results.ttft.append(_ttfts(plan, results, repeat, [s for s in order if s in (OURS, LLAMA)]))
            say(f"repeat {repeat + 1}: times to the first token")
        if "prefix" in plan.parts:
            results.shared.append(_shared(plan, results, repeat))
            say(f"repeat {repeat + 1}: repeated system prompts")
    return results


def _points(plan: Plan, order: Sequence[str], width: int, repeat: int) -> list[Point]:
    """Ask all systems for the same prompts; with one request at once one prompt of each system at a time.

    A machine may be twice as fast a minute later, but several requests at once need all of theirs.
    """
    asked = prompts.chat_prompts() if width == 1 else prompts.mixed_prompts(width * plan.prompts_per_slot)
    size = 1 if width == 1 else len(asked)
    pieces: dict[str, list[Piece]] = {system: [] for system in order}
    with _asking(plan, order, asked, width) as ask_some:
        for turn, first in enumerate(range(0, len(asked), size)):
            begins = turn % len(order)
            for system in (*order[begins:], *order[:begins]):
                pieces[system].append(ask_some[system](first, first + size))
    return [_merged(system, width, repeat, pieces[system]) for system in order]


@contextmanager
def _asking(
    plan: Plan, systems: Sequence[str], asked: Sequence[BenchPrompt], width: int
) -> Iterator[dict[str, Ask]]:
    """Start all systems and warm them up; what it yields asks each for some of the prompts.

    Ours share a process, which forgets each time what it has met.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(hosted_engine(_task(plan, asked, width)))
        addresses = {OURS: engine.address, PLAIN: engine.address}
        if LLAMA in systems:
            addresses[LLAMA] = stack.enter_context(_server(plan.machine, LLAMA, width))
        for system, address in addresses.items():
            warm_up(address, system, width)

        def ask_one(system: str, first: int, stop: int) -> Piece:
            if system == LLAMA:
                return _asked(addresses[system], system, asked[first:stop], width, plan.max_tokens)
            engine.forget()
            if system == ENGINE:
                return Piece(**engine.run(first, stop))
            return _asked(addresses[system], system, asked[first:stop], width, plan.max_tokens)

        yield {system: partial(ask_one, system) for system in systems}


def _asked(address: str, system: str, asked: Sequence[BenchPrompt], width: int, max_tokens: int) -> Piece:
    replies, seconds, client = ask(address, system, asked, width, max_tokens)
    later = sum(reply.num_output_tokens - (reply.chunks[0].tokens or 1) for reply in replies)
    spent = sum(reply.ended - reply.chunks[0].at for reply in replies)
    return Piece(
        seconds=seconds,
        output_tokens=sum(reply.num_output_tokens for reply in replies),
        prompt_tokens=sum(reply.num_prompt_tokens or 0 for reply in replies),
        later=later,
        later_seconds=spent,
        client_seconds=client,
        replies=tuple(replies),
    )


def _merged(system: str, width: int, repeat: int, pieces: Sequence[Piece]) -> Point:
    replies = [reply for piece in pieces for reply in piece.replies]
    return Point(
        system=system,
        width=width,
        repeat=repeat,
        seconds=sum(piece.seconds for piece in pieces),
        output_tokens=sum(piece.output_tokens for piece in pieces),
        prompt_tokens=sum(piece.prompt_tokens for piece in pieces),
        decode_rates=tuple(piece.later / max(1e-9, piece.later_seconds) for piece in pieces),
        client_seconds=sum(piece.client_seconds for piece in pieces),
        ttfts=_first_times(replies),
        step_gaps=tuple(gap for reply in replies for gap in step_gaps(reply)),
        token_gaps=tuple(gap for reply in replies for gap in token_gaps(reply) or ()),
    )


def _task(plan: Plan, asked: Sequence[BenchPrompt], width: int) -> Task:
    return Task(
        model=str(plan.machine.model),
        port=free_port(),
        threads=plan.machine.threads,
        context=plan.machine.context,
        width=width,
        max_tokens=plan.max_tokens,
        warm_ups=conversations(prompts.warm_ups(width)),
        conversations=conversations(asked),
    )


def _ttfts(plan: Plan, results: Results, repeat: int, systems: Sequence[str]) -> dict[str, tuple[float, ...]]:
    asked = prompts.sized_prompts(200, plan.num_ttft, 1000 * repeat, plan.length)
    times = {}
    for system in systems:
        with _server(plan.machine, system, 1) as address:
            warm_up(address, system, 1)
            replies, _, _ = ask(address, system, asked, 1, 4)
        times[system] = _first_times(replies)
        results.prompt_tokens["ttft"] = _mean_prompt(replies)
    return times


def _shared(plan: Plan, results: Results, repeat: int) -> tuple[float, ...]:
    asked = prompts.shared_prompts(1000, plan.num_shared, 7000 + 1000 * repeat, plan.text_length)
    with _server(plan.machine, OURS, 1) as address:
        warm_up(address, OURS, 1)
        replies, _, _ = ask(address, OURS, asked, 1, 4)
    results.prompt_tokens["prefix"] = _mean_prompt(replies)
    return _first_times(replies)


def _server(machine: Machine, system: str, width: int) -> Any:
    port = free_port()
    command = machine.llama(port, width) if system == LLAMA else machine.paceline(port, width)
    return running(command, port, machine.log)


def warm_up(address: str, system: str, width: int) -> None:
    """Ask a server a few short things first."""
    asked = [prompts.WARM_UP, *prompts.warm_ups(width)]
    run_load(parse_endpoint(address), asked, _settings(system, width)(requests=width, max_tokens=8))


def _settings(system: str, width: int) -> partial[LoadSettings]:
    return partial(
        LoadSettings, concurrency=(width,), warm_up=0, temperature=0.0, extra=EXTRAS[system], timeout=600.0
    )


def ask(
    address: str, system: str, asked: Sequence[BenchPrompt], width: int, max_tokens: int
) -> tuple[list[TimedReply], float, float]:
    """Ask a server ``asked``, ``width`` at once.

    Returns the replies in the order they ended, the seconds from first to last, and the client's own. Raises
    ``SystemExit`` when a request fails.
    """
    endpoint = parse_endpoint(address)
    settings = _settings(system, width)
    began = time.process_time()
    (point,) = run_load(
        endpoint, [prompts.WARM_UP, *asked], settings(requests=len(asked), max_tokens=max_tokens)
    ).points
    if point.failed:
        raise SystemExit(f"{system} failed {len(point.failed)} requests: {point.failed[0].detail}")
    return point.replies, point.ended - point.started, time.process_time() - began


def _first_times(replies: Sequence[TimedReply]) -> tuple[float, ...]:
    return tuple(reply.chunks[0].at - reply.sent for reply in replies)


def _mean_prompt(replies: Sequence[TimedReply]) -> float:
    return sum(reply.num_prompt_tokens or 0 for reply in replies) / len(replies)


def of_systems(results: Results, width: int, repeat: int) -> dict[str, Point]:
    """Return the points of one width of one repeat, by system."""
    found: Iterator[Point] = (p for p in results.points if (p.width, p.repeat) == (width, repeat))
    return {point.system: point for point in found}
