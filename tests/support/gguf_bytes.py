"""Put GGUF headers together byte by byte, right ones and wrong ones."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

U32, STRING, ARRAY = 4, 8, 9


def text(value: str | bytes) -> bytes:
    """Return a GGUF string."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def u32_entry(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", U32, value)


def string_entry(key: str, value: str) -> bytes:
    return text(key) + struct.pack("<I", STRING) + text(value)


def array_entry(key: str, kind: int, count: int, body: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, count) + body


def tensor_entry(name: str, dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    """Return one line of the tensor table; ``dims`` innermost first, as the file has them."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@dataclass
class Header:
    """A header to be spoilt: counts follow the entries unless given."""

    magic: bytes = b"GGUF"
    version: int = 3
    entries: list[bytes] = field(default_factory=lambda: [string_entry("general.architecture", "llama")])
    tensors: list[bytes] = field(default_factory=lambda: [tensor_entry("a")])
    tensor_count: int | None = None
    entry_count: int | None = None
    data: bytes = bytes(4096)

    def build(self) -> bytes:
        counts = (
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.entries) if self.entry_count is None else self.entry_count,
        )
        head = self.magic + struct.pack("<I", self.version) + struct.pack("<QQ", *counts)
        head += b"".join(self.entries) + b"".join(self.tensors)
        return head + bytes(-len(head) % 32) + self.data
