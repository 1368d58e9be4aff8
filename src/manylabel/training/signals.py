"""Deferred handling of signals that stop a run."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

__all__ = ["StopSignals"]

Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None


class StopSignals:
    """Record SIGTERM and Ctrl-C for later handling; a second Ctrl-C stops at once.

    Examples:
        >>> signals = StopSignals()
        >>> signals.catch()
        >>> signal.raise_signal(signal.SIGTERM)
        >>> signals.received
        <Signals.SIGTERM: 15>
        >>> signals.release()
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Handler] = {}

    def catch(self) -> None:
        """Install the handlers; only possible in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._record)

    def release(self) -> None:
        """Restore the previous handlers."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received is signal.SIGINT:
            signal.default_int_handler(number, frame)
        self.received = signal.Signals(number)
