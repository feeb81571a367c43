"""Runs requests of several callers on one engine: whoever steps it, each gets what is theirs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Self

from paceline.engine.engine import Engine
from paceline.engine.interrupt import DeferredInterrupt
from paceline.engine.outputs import CompletionOutput, RequestOutput, StepOutput
from paceline.engine.progress import RunProgress
from paceline.engine.prompts import Prepared
from paceline.errors import ConfigError
from paceline.sampling.params import SamplingParams


class Runner:
    """An engine and an inbox for each request on it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = count()
        self._inbox: dict[str, deque[StepOutput]] = {}

    def run(self, prepared: Sequence[Prepared], use_tqdm: bool | None) -> list[RequestOutput]:
        """Run all to the end. Ctrl-C stops within one step; on any error nothing of the run stays behind."""
        numbers = [str(next(self._numbers)) for _ in prepared]
        requests = {
            f"{number}-{index}": (item.ids, params)
            for number, item in zip(numbers, prepared, strict=True)
            for index, params in enumerate(item.completions())
        }
        with DeferredInterrupt() as interrupt, RunProgress(len(requests), use_tqdm) as progress:
            try:
                for request_id, (ids, params) in requests.items():
                    self.submit(request_id, ids, params)
                done = self._finish(requests.keys(), interrupt, progress)
            finally:
                for request_id in requests:
                    self.drop(request_id)
        return [
            RequestOutput(
                number, item.text, item.ids, tuple(done[f"{number}-{i}"] for i in range(item.params.n))
            )
            for number, item in zip(numbers, prepared, strict=True)
        ]

    def open_stream(self, prepared: Prepared) -> ReplyStream:
        """Submit one request and return the iterator over its text."""
        if prepared.params.n != 1:
            raise ConfigError(f"n={prepared.params.n}: a stream has one completion; use generate")
        request_id = f"{next(self._numbers)}-0"
        self.submit(request_id, prepared.ids, prepared.params)
        return ReplyStream(self, request_id, prepared)

    def submit(self, request_id: str, ids: Sequence[int], params: SamplingParams) -> None:
        """Queue a request; raises as ``Engine.add_request``."""
        self.engine.add_request(request_id, ids, params)
        self._inbox[request_id] = deque()

    def step(self) -> None:
        """Run one step; outputs wait in their requests' inboxes."""
        for output in self.engine.step():
            self._inbox[output.request_id].append(output)

    def take(self, request_id: str) -> Iterator[StepOutput]:
        """Yield and forget what has come for a request."""
        inbox = self._inbox[request_id]
        while inbox:
            yield inbox.popleft()

    def drop(self, request_id: str) -> None:
        """Abort a request if it runs, and forget it; safe to call again."""
        self.engine.abort(request_id)
        self._inbox.pop(request_id, None)

    def _finish(
        self, request_ids: Iterable[str], interrupt: DeferredInterrupt, progress: RunProgress
    ) -> dict[str, CompletionOutput]:
        """Step until all are done; return the completions by request id."""
        waiting = dict.fromkeys(request_ids)
        done: dict[str, CompletionOutput] = {}
        while waiting:
            self.step()
            num_tokens, num_done = 0, len(done)
            for request_id in list(waiting):
                for output in self.take(request_id):
                    if output.error is not None:
                        raise output.error
                    num_tokens += len(output.token_ids)
                    if output.completion is not None:
                        index = int(request_id.rpartition("-")[2])
                        done[request_id] = replace(output.completion, index=index)
                        del waiting[request_id]
            progress.advance(num_tokens, len(done) - num_done)
            interrupt.check()
        return done


class ReplyStream:
    """Iterates over the text of one reply as it is made.

    Each delta is valid UTF-8, is never taken back, and shows no part of a stop string. ``output``: the whole
    result, once the iteration has ended. Leaving early (``close``, ``with``, or letting go of the object)
    frees what the request holds. Ctrl-C stops within one step and aborts the request.
    """

    def __init__(self, runner: Runner, request_id: str, prepared: Prepared) -> None:
        self._runner = runner
        self._request_id = request_id
        self._prepared = prepared
        self._is_open = True
        self.output: RequestOutput | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        text = ""
        while self._is_open and not text:
            text = self._advance()
        if not text:
            raise StopIteration
        return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the request now; safe to call again."""
        if self._is_open:
            self._is_open = False
            self._runner.drop(self._request_id)

    def _advance(self) -> str:
        """Run steps until one says something of this request; return its text."""
        try:
            with DeferredInterrupt() as interrupt:
                outputs = list(self._runner.take(self._request_id))
                while not outputs:
                    self._runner.step()
                    interrupt.check()
                    outputs = list(self._runner.take(self._request_id))
        except BaseException:
            self.close()
            raise
        if outputs[-1].error is not None:
            self.close()
            raise outputs[-1].error
        completion = outputs[-1].completion
        if completion is not None:
            self.close()
            item = self._prepared
            self.output = RequestOutput(self._request_id, item.text, item.ids, (completion,))
        return "".join(output.text for output in outputs)
