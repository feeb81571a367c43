"""A list of strings that stays in the bytes of the file it came from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from paceline.errors import ModelFileError


class StringArray(Sequence[str]):
    """An array of strings kept as the file's own bytes and decoded on demand.

    A vocabulary of 262,144 tokens takes 7 MB this way and 20 MB as ``str`` objects.
    """

    __slots__ = ("_blob", "_key", "_starts")

    def __init__(self, blob: bytes, starts: array[int], key: str) -> None:
        """``starts`` [N + 1]: offset of each string in ``blob``; a string ends 8 bytes before the next."""
        self._blob = blob
        self._starts = starts
        self._key = key

    def __len__(self) -> int:
        return len(self._starts) - 1

    def raw(self, index: int) -> bytes:
        """Return the bytes of one string."""
        return self._blob[self._starts[index] : self._starts[index + 1] - 8]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        return self._decode(self.raw(position), position)

    def __iter__(self) -> Iterator[str]:
        blob, starts = self._blob, self._starts
        for index in range(len(self)):
            yield self._decode(blob[starts[index] : starts[index + 1] - 8], index)

    def _decode(self, raw: bytes, index: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(
                f"string {index} of {self._key!r} is not valid UTF-8 ({error.reason} at byte {error.start}): "
                "the file is corrupt, download it again"
            ) from error
