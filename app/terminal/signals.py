"""Handlers of SIGINT, SIGTERM and SIGHUP (the terminal was closed), from the first line of the program to its last."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


class Signals:
    """The first signal stops the work, a second one ends the process at once. Outside of `stopping` there is no work to finish,
    and the first signal ends the process.

    for_good: the handlers stay after the `with` block, because the process ends soon.
    """

    def __init__(self, *, for_good: bool) -> None:
        self.received: int | None = None
        self._for_good = for_good
        self._stop: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # nohup ignores SIGHUP, so that the command outlives its terminal.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(self, *error: object) -> None:
        if not self._for_good:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Inside the `with` block the first signal calls `stop`, in the main thread."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def code(self, code: int) -> int:
        """The exit code of work that ended with `code`. After a signal it is the code of the signal, also if parts failed: the
        sender of the signal expects it, and the log and the report name the failures."""
        return code if self.received is None else 128 + self.received

    def _on(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGHUP:
            return  # both the kernel and the shell of the closed terminal send one
        if self.received is not None or self._stop is None:
            again = "" if self.received is None else ", a second signal: outputs may not be finished"
            with suppress(OSError):
                os.write(2, f"watchline: ended by {signal.Signals(number).name}{again}\n".encode())
            os._exit(128 + number)
        self.received = number
        self._stop()
