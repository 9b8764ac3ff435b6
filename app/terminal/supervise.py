"""The main thread of a command: it waits for the work in another thread, and ends the process if a stop takes too long."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from app.terminal.exit_codes import FAILED
from app.terminal.signals import Signals

log = logging.getLogger("watchline")

LOOK_S = 0.1
"""Interval at which the main thread checks the work. Signal handlers run between two checks: the kernel may give a signal to
another thread, for example after the machine was suspended, and then it does not wake the main thread."""


class Work(Protocol):
    """Work in a thread of its own."""

    thread: threading.Thread

    @property
    def stopped_s(self) -> float | None:
        """When it was told to stop (monotonic); None before."""

    def hanging(self) -> Sequence[str]:
        """Names of the threads that have not ended."""


def wait_for_end(
    work: Work,
    signals: Signals,
    patience_s: float,
    *,
    look: Callable[[], None] | None = None,
    last: Callable[[], None] = lambda: None,
) -> None:
    """Wait until the work has ended. If a stop takes longer than `patience_s`, name the threads that hang, call `last` and end
    the process. Thread: main.

    look: called again and again meanwhile, in place of a wait. last: finishes outputs and removes unfinished files.
    """
    while work.thread.is_alive():
        if look is None:
            work.thread.join(LOOK_S)
        else:
            look()
        if work.stopped_s is not None and time.monotonic() - work.stopped_s > patience_s:
            log.error("still running after %.1f s: %s", patience_s, ", ".join(work.hanging()))
            last()
            os._exit(signals.code(FAILED))
