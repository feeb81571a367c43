"""The tensor storage types of GGUF that Paceline reads: block sizes and numbers.

A small table of our own, because importing ``gguf`` costs 50 ms and 8 MiB at every start; a test holds it
equal to ``gguf.GGML_QUANT_SIZES``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GgmlType:
    """One storage type: ``block_size`` values are stored together in ``block_bytes`` bytes."""

    name: str
    number: int
    block_size: int
    block_bytes: int

    def row_bytes(self, columns: int) -> int:
        """Return the bytes of ``columns`` values. Raises ``ValueError`` unless they fill whole blocks."""
        if columns % self.block_size:
            raise ValueError(f"{columns} columns do not fill {self.name} blocks of {self.block_size} values")
        return columns // self.block_size * self.block_bytes


F32 = GgmlType("F32", 0, 1, 4)
F16 = GgmlType("F16", 1, 1, 2)
Q4_0 = GgmlType("Q4_0", 2, 32, 18)
Q4_1 = GgmlType("Q4_1", 3, 32, 20)
Q5_0 = GgmlType("Q5_0", 6, 32, 22)
Q5_1 = GgmlType("Q5_1", 7, 32, 24)
Q8_0 = GgmlType("Q8_0", 8, 32, 34)
Q4_K = GgmlType("Q4_K", 12, 256, 144)
Q5_K = GgmlType("Q5_K", 13, 256, 176)
Q6_K = GgmlType("Q6_K", 14, 256, 210)
BF16 = GgmlType("BF16", 30, 1, 2)

GGML_TYPES: dict[int, GgmlType] = {
    kind.number: kind for kind in (F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16)
}
"""Every supported type by the number GGUF stores."""


def ggml_type_named(name: str) -> GgmlType:
    """Return the type called ``name`` in any case (``"q4_k"``). Raises ``KeyError`` when there is none."""
    for kind in GGML_TYPES.values():
        if kind.name == name.upper():
            return kind
    raise KeyError(name)
