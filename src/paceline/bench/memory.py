"""The most memory this process held at once, over a stretch of time of our choosing.

``ru_maxrss`` only ever rises, so whichever drafter runs after the largest would inherit its peak. Linux can
set its own mark back.
"""

from __future__ import annotations

from pathlib import Path

_RESET_PEAK = "5"
"""See proc(5), /proc/pid/clear_refs: sets the peak resident set back to the present one."""


def reset_peak() -> bool:
    """Begin a new stretch. Return whether the system can (Linux can)."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def peak_bytes() -> int | None:
    """Return the peak resident set since :func:`reset_peak`; ``None`` where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
