"""Which tokens a head learns from, and a way to look at them.

A draft step reads a token of the reply and predicts the one behind it. The first token of a reply is the
target's own (it comes from the prompt's forward), so supervision starts with the second. Tokens outside the
draft vocabulary still teach: the target's law restricted to it is the aim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline.train.rows import Row

if TYPE_CHECKING:
    from rich.text import Text

    from paceline.models.tokenizer import Tokenizer

MIN_RESPONSE = 2
"""A shorter response holds nothing to predict: its only token is the target's own."""
LEGEND = (
    "[dim]context[/] · [green]supervised[/] · [green underline]supervised, outside the draft vocabulary[/] · "
    "[red strike]left out as a loop[/]"
)


def supervised_positions(num_tokens: int, response_start: int) -> range:
    """Return the positions of the tokens that are predicted in training, none for a short response."""
    if num_tokens - response_start < MIN_RESPONSE:
        return range(0)
    return range(response_start + 1, num_tokens)


def count_supervised(rows: Iterable[Row]) -> int:
    """Return the number of supervised tokens. Raises ``ConfigError`` when there is none."""
    total = num_rows = 0
    for row in rows:
        num_rows += 1
        total += len(supervised_positions(len(row.tokens), len(row.prompt)))
    if not total:
        raise ConfigError(
            f"zero supervised tokens in {num_rows} rows: every response is empty or shorter than "
            f"{MIN_RESPONSE} tokens; look at them with --inspect, and check target, template and max_tokens"
        )
    return total


def render_row(
    row: Row, tokenizer: Tokenizer, *, kept: int | None = None, vocabulary: Sequence[int] | None = None
) -> Text:
    """Return a row's text with each token in the colour of its part in training (see ``LEGEND``).

    ``kept``: response tokens left after loops were cut, all unless given. ``vocabulary``: draft vocabulary.
    """
    from rich.text import Text

    end = len(row.prompt) + (len(row.response) if kept is None else kept)
    supervised = supervised_positions(end, len(row.prompt))
    drafted = None if vocabulary is None else set(vocabulary)
    text, decoder = Text(), tokenizer.stream(skip_special=False)
    for position, token in enumerate(row.tokens):
        if position >= end:
            style = "red strike"
        elif position in supervised:
            is_outside = drafted is not None and token not in drafted
            style = "green underline" if is_outside else "green"
        else:
            style = "dim"
        text.append(decoder.push(token), style)
    return text.append(decoder.finish(), "dim")
