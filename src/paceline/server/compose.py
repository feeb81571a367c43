"""Compose replies: whole ones as JSON, streamed ones as frames of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from paceline.engine.outputs import CompletionOutput, StepOutput
from paceline.models.tokenizer import Tokenizer
from paceline.server import replies
from paceline.server.calls import CallPiece, CallReader
from paceline.server.errors import ApiError, as_api_error
from paceline.server.frames import DONE, frame
from paceline.server.job import Job, Part
from paceline.server.pieces import Piece, Pieces
from paceline.server.plain_chunks import PLACE, PlainChunks
from paceline.server.schema import ChatRequest, CompletionRequest
from paceline.server.tools import ToolUse

Interface = Literal["chat", "completions"]


@dataclass
class Composer:
    """One HTTP request's reply. ``use``: what it may call. ``echoes``: by prompt, the text to repeat in front
    of the reply.
    """

    request: ChatRequest | CompletionRequest
    job: Job
    head: replies.Head
    tokenizer: Tokenizer
    use: ToolUse | None = None
    echoes: Sequence[str] = ()
    _num_ended: int = 0
    _pieces: dict[int, Pieces] = field(default_factory=dict)
    _lengths: dict[int, int] = field(default_factory=dict)
    _readers: dict[int, CallReader] = field(default_factory=dict)

    @property
    def is_chat(self) -> bool:
        return isinstance(self.request, ChatRequest)

    @property
    def needs_pieces(self) -> bool:
        request = self.request
        return bool(request.num_logprobs is not None or request.stream_tokens or request.include_token_origin)

    @property
    def num_completions(self) -> int:
        return self.request.n or 1

    # ---- whole ----

    async def whole(self) -> dict[str, Any]:
        """Wait for the end; return the reply. Raises ``ApiError``."""
        shown: dict[int, list[Piece]] = {part.index: [] for part in self.job.parts}
        rejected: dict[int, list[str]] = {part.index: [] for part in self.job.parts}
        async for steps in self.job.steps():
            for part, step in steps:
                if self.needs_pieces:
                    shown[part.index] += self._pieces_of(part).push(step)
                    rejected[part.index] += self._words(step.rejected)
        choices = [self._choice(part, shown[part.index], rejected[part.index]) for part in self.job.parts]
        reply = self.head.object(self.request.NAME)
        reply["choices"] = choices
        reply["usage"] = self._usage(ended=True)
        reply["metrics"] = replies.reply_metrics(self.job.parts)
        return reply

    def _choice(self, part: Part, pieces: list[Piece], rejected: list[str]) -> dict[str, Any]:
        assert part.done is not None
        echo = self._echo(part)
        text = echo + part.done.text
        choice: dict[str, Any] = {"index": part.index}
        if self.is_chat:
            choice["message"] = self._message(part, text)
        else:
            choice["text"] = text
        choice["logprobs"] = self._logprobs(pieces, len(echo))
        choice["finish_reason"] = self._finish_reason(part, part.done)
        choice["stop_reason"] = replies.stop_reason(part.done)
        if self.request.include_token_origin:
            choice["token_origins"] = replies.origins(pieces)
            choice["rejected_draft_tokens"] = rejected
        if self.request.return_token_ids:
            choice["token_ids"] = part.done.token_ids
            choice["prompt_token_ids"] = part.prompt
        return choice

    # ---- streamed ----

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the frames of the reply. A failure is the last event before the end of the stream.

        The opening, which has no token, waits for the first step: clients take the first chunk's time for
        that of the first token (``vllm bench serve`` does).
        """
        opening = b"".join(self._opening())
        try:
            async for steps in self.job.steps():
                frames = [data for part, step in steps for data in self._frames(part, step)]
                data, opening = opening + b"".join(frames), b""
                if data:
                    yield data
        except ApiError as error:
            yield frame(error.body) + DONE
            return
        except Exception as error:
            yield frame(as_api_error(error).body) + DONE
            raise
        yield self._closing()

    def lend(self, write: Callable[[bytes], bool]) -> None:
        """Let frames be made where steps come from and given to ``write``, until it returns False;
        :meth:`stream` yields the rest. For replies of one part with plain chunks, once begun.
        """

        def take(part: Part, step: StepOutput) -> bool:
            return not step.text or write(self._plain_chunk(part, step.text))

        if self._is_plain and len(self.job.parts) == 1:
            self.job.lend(take)

    def _opening(self) -> Iterator[bytes]:
        for part in self.job.parts:
            if self.is_chat:
                yield self._chunk(part, {"role": "assistant", "content": ""})
            elif echo := self._echo(part):
                yield self._chunk(part, echo)

    def _frames(self, part: Part, step: StepOutput) -> Iterator[bytes]:
        if self._is_plain and step.completion is None:
            if step.text:
                yield self._plain_chunk(part, step.text)
        elif not self.needs_pieces:
            if step.text or self.request.return_token_ids:
                delta, extra = self._delta(part, step.text), self._ids(step)
                if delta or extra:  # the tags of calls are nothing to see
                    yield self._chunk(part, delta, extra=extra)
        else:
            yield from self._piece_frames(part, step)
        if step.completion is not None:
            if self.use is not None and (rest := self._reader(part).end()):
                yield self._chunk(part, {"content": rest})
            yield self._end_of(part, step.completion)

    def _end_of(self, part: Part, reply: CompletionOutput) -> bytes:
        """Return a choice's last chunk. The last one of all has the metrics, if no usage chunk follows."""
        self._num_ended += 1
        is_last = self._num_ended == len(self.job.parts) and not self.request.wants_usage
        return self._chunk(
            part,
            {} if self.is_chat else "",
            finish=self._finish_reason(part, reply),
            extra={"stop_reason": replies.stop_reason(reply)},
            metrics=replies.reply_metrics(self.job.parts) if is_last else None,
        )

    def _piece_frames(self, part: Part, step: StepOutput) -> Iterator[bytes]:
        """Yield one frame for the step, or one per token that shows text."""
        pieces = self._pieces_of(part).push(step)
        groups = [[piece] for piece in pieces] if self.request.stream_tokens else [pieces]
        extra = self._ids(step)
        if self.request.include_token_origin:
            extra["rejected_draft_tokens"] = self._words(step.rejected)
        for group in groups:
            text = "".join(piece.text for piece in group)
            if not text and not (group and self.request.num_logprobs is not None) and not extra:
                continue
            if self.request.include_token_origin:
                extra["token_origins"] = replies.origins(group)
            logprobs = self._logprobs(group, self._lengths.get(part.index, 0))
            self._lengths[part.index] = self._lengths.get(part.index, 0) + len(text)
            yield self._chunk(part, self._delta(part, text), logprobs=logprobs, extra=extra)
            extra = {}

    def _closing(self) -> bytes:
        """Return the end of the stream. A chunk without choices comes only to those who asked for it."""
        if not self.request.wants_usage:
            return DONE
        last = self.head.object(self._chunk_name)
        last["choices"] = []
        last["usage"] = self._usage(ended=True)
        last["metrics"] = replies.reply_metrics(self.job.parts)
        return frame(last) + DONE

    @cached_property
    def _is_plain(self) -> bool:
        """Whether chunks before the end differ in nothing but their text and the usage so far."""
        return not (self.needs_pieces or self.request.return_token_ids) and self.use is None

    @cached_property
    def _plain(self) -> PlainChunks:
        return PlainChunks(self.job.parts, self.num_completions, self.request.wants_running_usage)

    def _plain_chunk(self, part: Part, text: str) -> bytes:
        """Return what ``_chunk`` does for a piece of text alone."""
        return self._plain.chunk(part, text, lambda: self._chunk_data(part, self._delta(part, PLACE)))

    def _chunk(
        self,
        part: Part,
        delta: dict[str, Any] | str,
        *,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
        metrics: dict[str, Any] | None = None,
    ) -> bytes:
        data = self._chunk_data(part, delta, finish, logprobs, extra)
        if metrics is not None:
            data["metrics"] = metrics
        return frame(data)

    def _chunk_data(
        self,
        part: Part,
        delta: dict[str, Any] | str,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": part.index}
        choice["delta" if self.is_chat else "text"] = delta
        choice["logprobs"] = logprobs
        choice["finish_reason"] = finish
        data = self.head.object(self._chunk_name)
        data["choices"] = [{**choice, **(extra or {})}]
        if self.request.wants_running_usage:
            data["usage"] = self._usage(ended=False)
        elif self.request.wants_usage:
            data["usage"] = None
        return data

    # ---- both ----

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def _usage(self, ended: bool) -> dict[str, Any]:
        counts_prediction = ended and self.request.prediction is not None
        return replies.usage(self.job.parts, self.num_completions, counts_prediction)

    def _delta(self, part: Part, text: str) -> dict[str, Any] | str:
        if self.use is not None:
            return self._call_delta(part, text)
        return {"content": text} if self.is_chat else text

    def _reader(self, part: Part) -> CallReader:
        assert self.use is not None
        return self._readers.setdefault(part.index, CallReader(self.use))

    def _message(self, part: Part, text: str) -> dict[str, Any]:
        """Return the message of a whole reply: its text, and the calls behind it."""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self.use is not None:
            reader = self._reader(part)
            found = reader.push(text)
            message["content"] = found.text + reader.end() or (None if self.use.is_forced else "")
            if found.calls:
                message["content"] = found.text or None
                message["tool_calls"] = [self._call(part, piece) for piece in found.calls]
        return message

    def _call_delta(self, part: Part, text: str) -> dict[str, Any]:
        """Return what a piece of text adds: to the text, or to calls, whose id and name come once."""
        found = self._reader(part).push(text)
        delta: dict[str, Any] = {"content": found.text} if found.text else {}
        if found.calls:
            delta["tool_calls"] = [
                {"index": piece.index, **self._call(part, piece)}
                if piece.name is not None
                else {"index": piece.index, "function": {"arguments": piece.arguments}}
                for piece in found.calls
            ]
        return delta

    def _call(self, part: Part, piece: CallPiece) -> dict[str, Any]:
        function = {"name": piece.name, "arguments": piece.arguments}
        return {"id": f"call_{part.request_id}-{piece.index}", "type": "function", "function": function}

    def _finish_reason(self, part: Part, reply: CompletionOutput) -> str:
        reason = replies.finish_reason(reply)
        has_called = self.use is not None and self._reader(part).has_called
        return "tool_calls" if has_called and reason == "stop" else reason

    def _echo(self, part: Part) -> str:
        return self.echoes[part.index // self.num_completions] if self.echoes else ""

    def _ids(self, step: StepOutput) -> dict[str, Any]:
        return {"token_ids": step.token_ids} if self.request.return_token_ids else {}

    def _words(self, tokens: Sequence[int]) -> list[str]:
        raw = [self.tokenizer.token_bytes(token, skip_special=False) for token in tokens]
        return [word.decode("utf-8", "replace") for word in raw]

    def _logprobs(self, pieces: Sequence[Piece], offset: int) -> dict[str, Any] | None:
        wanted = self.request.num_logprobs
        if wanted is None:
            return None
        if self.is_chat:
            skips = self.request.skip_special_tokens is not False
            return replies.chat_logprobs(pieces, self.tokenizer, wanted, skips)
        return replies.completion_logprobs(pieces, self.tokenizer, wanted, offset)

    def _pieces_of(self, part: Part) -> Pieces:
        found = self._pieces.get(part.index)
        if found is None:
            params = part.params
            self._lengths[part.index] = len(self._echo(part))
            found = self._pieces[part.index] = Pieces(
                self.tokenizer, params.skip_special_tokens, params.include_stop_str_in_output
            )
        return found
