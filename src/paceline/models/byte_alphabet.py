"""The printable letters in which byte-level BPE spells the 256 bytes (GPT-2, Radford et al. 2019)."""

from __future__ import annotations

from functools import cache


@cache
def letters() -> tuple[str, ...]:
    """Return the letter of each byte: itself where it prints in Latin-1, else the next one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(spare)) for byte in range(256))


@cache
def _values() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(letters())}


def spelled_bytes(token: str) -> bytes | None:
    """Return the bytes a token spells, or ``None`` when it holds a letter outside the alphabet."""
    values = _values()
    try:
        return bytes([values[letter] for letter in token])
    except KeyError:
        return None
