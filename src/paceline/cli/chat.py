"""``paceline chat``: a conversation on the terminal, or over pipes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.cli import options
from paceline.errors import PacelineError, nearest_name

if TYPE_CHECKING:
    from paceline.engine.outputs import RequestMetrics
    from paceline.llm import LLM
    from paceline.sampling.params import SamplingParams

COMMANDS = {
    "/help": "this list",
    "/stats": "what speculation did for the last reply and for all of them",
    "/undo": "take back the last question and its reply",
    "/reset": "forget the conversation (the system message stays)",
    "/system TEXT": "set the system message and forget the conversation",
    "/quit": "leave (so does Ctrl-D)",
}


def chat(
    model: options.Model = options.DEFAULT_MODEL,
    drafter: options.DrafterName = "auto",
    system: options.System = None,
    max_tokens: options.MaxTokens = 512,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    top_k: options.TopK = 0,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    num_draft_tokens: options.NumDraftTokens = None,
    threads: options.Threads = None,
    context: options.Context = None,
    quant: options.QuantName = "none",
) -> None:
    """Talk to a model. The history is kept; /help lists what else can be said.

    Example: paceline chat --system "Answer in one sentence." --temperature 0.7

    Without a terminal each line of standard input is a question, and only replies go to standard output.
    """
    from paceline.sampling.params import SamplingParams

    params = SamplingParams(
        temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, max_tokens=max_tokens, seed=seed
    )
    interactive = options.is_interactive()
    llm = options.open_llm(
        model,
        drafter=drafter,
        num_draft_tokens=num_draft_tokens,
        threads=threads,
        context=context,
        quant=quant,
        watch_drift=True,
    )
    options.require_chat_template(llm)
    if interactive:
        import readline  # noqa: F401  (line editing and history for input())

        print(f"{llm.model_files.name}, drafter {drafter}. /help lists commands, Ctrl-D leaves.")
    talk(Conversation(llm, params, system), interactive)


@dataclass
class Conversation:
    """The messages so far and what their replies cost."""

    llm: LLM
    params: SamplingParams
    system: str | None = None
    turns: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[RequestMetrics] = field(default_factory=list)

    def messages(self, question: str) -> list[dict[str, str]]:
        """Return the whole conversation with ``question`` at its end."""
        said = [("system", self.system)] if self.system else []
        for asked, replied in self.turns:
            said += [("user", asked), ("assistant", replied)]
        return [{"role": role, "content": text} for role, text in [*said, ("user", question)]]

    def ask(self, question: str, say: Callable[[str], None]) -> None:
        """Stream the reply to ``say``. Ctrl-C ends it; what was said until then is kept."""
        pieces: list[str] = []
        with self.llm.stream_chat(self.messages(question), self.params) as reply:
            try:
                for piece in reply:
                    pieces.append(piece)
                    say(piece)
            except KeyboardInterrupt:
                say(" [stopped]")
        self.turns.append((question, "".join(pieces)))
        if reply.output is not None:
            self.metrics.append(reply.output.metrics)

    def stats(self) -> str:
        """Describe the last reply, and all of them in sum."""
        from paceline.cli.stats import describe_metrics

        if not self.metrics:
            return "there is no finished reply yet"
        steps = sum(m.num_verify_steps for m in self.metrics)
        tokens = sum(m.num_output_tokens for m in self.metrics)
        seconds = sum(m.total_seconds - m.queue_seconds for m in self.metrics)
        return (
            f"last: {describe_metrics(self.metrics[-1])}\n"
            f"all:  {tokens} tokens in {len(self.metrics)} replies, {tokens / seconds:.1f} tokens/s, "
            f"{tokens / steps:.2f} tokens/step, {tokens - steps} forwards saved"
        )


def talk(conversation: Conversation, interactive: bool) -> None:
    """Read and answer lines until the input ends or the user leaves."""
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            break
        except KeyboardInterrupt:
            print()
            break
        if line.startswith("/"):
            if not obey(conversation, line):
                break
        elif line:
            answer(conversation, line, interactive)


def answer(conversation: Conversation, question: str, interactive: bool) -> None:
    """Print the reply. A question that cannot be answered is an error only when nobody can ask again."""
    try:
        conversation.ask(question, lambda piece: print(piece, end="", flush=True))
        print()
    except PacelineError as error:
        if not interactive:
            raise
        print(f"{error}\n/undo or /reset makes room." if conversation.turns else str(error), file=sys.stderr)


def obey(conversation: Conversation, line: str) -> bool:
    """Carry out a command; return whether the conversation goes on."""
    command, _, argument = line.partition(" ")
    match command:
        case "/quit" | "/exit":
            return False
        case "/help":
            print("\n".join(f"{name:<14} {about}" for name, about in COMMANDS.items()))
        case "/stats":
            print(conversation.stats())
        case "/reset":
            conversation.turns.clear()
        case "/undo" if conversation.turns:
            conversation.turns.pop()
        case "/undo":
            print("there is nothing to take back", file=sys.stderr)
        case "/system":
            conversation.system = argument.strip() or None
            conversation.turns.clear()
        case _:
            known = [name.split()[0] for name in COMMANDS]
            print(f"{command} is no command{nearest_name(command, known)}; /help lists them", file=sys.stderr)
    return True
