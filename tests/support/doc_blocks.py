"""Code blocks of a Markdown page, ready to be run as one program with the page's line numbers."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[str]:
    """Return the ``python`` blocks of ``page``, each preceded by as many blank lines as stand before it."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, match.start(1)) + match.group(1) for match in _BLOCK.finditer(text)]


def run_blocks(page: Path, replace: dict[str, str], namespace: dict[str, object]) -> None:
    """Run the blocks of ``page`` in ``namespace``, in order, with texts replaced (each must occur)."""
    blocks = "\0".join(python_blocks(page))
    for old, new in replace.items():
        if old not in blocks:
            raise AssertionError(f"{page.name} no longer says {old!r}")
        blocks = blocks.replace(old, new)
    for block in blocks.split("\0"):
        exec(compile(block, str(page), "exec", dont_inherit=True), namespace)
