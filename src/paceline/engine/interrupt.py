"""Ctrl-C between steps, never inside one, so that it leaves the engine whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class DeferredInterrupt:
    """Holds the first Ctrl-C back until :meth:`check`; a second one comes through at once.

    Does nothing outside the main thread or where the program has its own SIGINT handler.
    """

    def __init__(self) -> None:
        self._pending = False
        self._installed = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C came since the last check."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self._pending:
            raise KeyboardInterrupt
        self._pending = True
