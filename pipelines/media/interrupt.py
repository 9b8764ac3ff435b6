"""Makes FFmpeg's blocking calls end when a stop event is set.

PyAV gives FFmpeg an interrupt callback that checks only the time, through the module attribute `av.container.core.time`.
`patches.install()` replaces that attribute by `stop_clock`. It returns the true monotonic time, except in a thread with a
set stop: there it returns a time far in the future, and a later one at each call. So the thread's open or read passes its
time limit immediately (within 4 ms for an open, 0.1 s for a read). The attribute is private: a test shows that the
replacement works with the installed PyAV.

Each returned time is later than the last because PyAV also asks for the start time of a call: a stop that was set before
the call must end it, too.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FAR_S = 1e6
"""Seconds, longer than any time limit."""


class _StopClock:
    """The replacement of the module `time` in `av.container.core`."""

    def __init__(self) -> None:
        self.stops: dict[int, threading.Event] = {}
        """Thread id -> the stop of its FFmpeg calls. Each thread changes its own entry only."""
        self._leaps = itertools.count(1)

    def monotonic(self) -> float:
        """Monotonic seconds; far in the future if the calling thread's stop is set."""
        stop = self.stops.get(threading.get_ident())
        return time.monotonic() + (FAR_S * next(self._leaps) if stop is not None and stop.is_set() else 0.0)


stop_clock = _StopClock()
"""The clock of all threads. Other modules use `interruptible`."""


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Inside the `with`, FFmpeg calls of this thread end with ExitError or InvalidDataError once `stop` is set.

    It has no effect before `patches.install()`; `opening.opened` calls that.
    """
    thread = threading.get_ident()
    outer = stop_clock.stops.get(thread)
    stop_clock.stops[thread] = stop
    try:
        yield
    finally:
        if outer is None:
            del stop_clock.stops[thread]
        else:
            stop_clock.stops[thread] = outer
