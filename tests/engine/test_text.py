"""Text deltas: valid UTF-8 across tokens, stop strings across tokens, nothing shown that is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.engine.text import TextStream


class Pieces:
    """A decoder whose token t is the t-th piece."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        return self.pieces[token_id]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def run(pieces: list[bytes], stops: tuple[str, ...], include: bool) -> tuple[list[str], str, str | None]:
    """Return the deltas, the final text, and the stop string that ended it."""
    stream = TextStream(Pieces(pieces), stops, include, skip_special=True)
    deltas: list[str] = []
    for token in range(len(pieces)):
        found = stream.find_stop(stream.push(token))
        if found is not None:
            deltas.append(stream.take_delta(ended=True))
            return deltas, stream.text, found
        deltas.append(stream.take_delta(ended=False))
    stream.finish()
    deltas.append(stream.take_delta(ended=True))
    return deltas, stream.text, None


TEXT = st.text(st.sampled_from("abAé€🦊\u200d "), max_size=20)
STOPS = st.lists(st.text(st.sampled_from("abAé🦊"), min_size=1, max_size=4), max_size=3).map(tuple)


@settings(max_examples=300, deadline=None)
@given(text=TEXT, stops=STOPS, include=st.booleans(), places=st.lists(st.integers(0, 99), max_size=12))
def test_any_cut_into_tokens(text: str, stops: tuple[str, ...], include: bool, places: list[int]) -> None:
    deltas, final, found = run(cut(text.encode(), places), stops, include)
    assert "".join(deltas) == final
    shown = ""
    for delta in deltas:
        delta.encode("utf-8")
        shown += delta
        assert final.startswith(shown)
    if found is None:
        assert final == text
        assert not any(stop in text for stop in stops)
    else:
        assert text.startswith(final)
        assert final.endswith(found) if include else text[len(final) :].startswith(found)


def test_broken_bytes_become_replacement_characters() -> None:
    deltas, final, _ = run([b"a\xf0\x9f", b"b", b"\xff", b"\xe2\x82"], (), False)
    assert final == "a\ufffdb\ufffd\ufffd"
    assert deltas[0] == "a"


def test_the_first_stop_string_in_the_text_wins() -> None:
    assert run([b"xxABC"], ("C", "B"), False)[1:] == ("xxA", "B")
    assert run([b"xxABC"], ("AB", "ABC"), False)[1:] == ("xx", "AB")


def test_what_may_become_a_stop_string_is_held_back() -> None:
    deltas, _, found = run([b"go ST", b"O", b"RE ST", b"OP more"], ("STOP",), False)
    assert deltas == ["go ", "", "STORE ", ""]
    assert found == "STOP"
