"""Makes FFmpeg's blocking calls end when a stop is set.

PyAV gives FFmpeg an interrupt callback that looks only at the time, through the module attribute `av.container.core.time`.
The object that stands there from the first import of this module on answers the true monotonic time, but for a thread
whose stop is set a time far ahead, each time farther: its open or read ends at once (4 ms for an open, 0.1 s for a read
at the most; without it a read ends only with its time limit). It is a private name: a test shows that it works with the
PyAV at hand.

Farther each time, because the start of a call is asked for, too: a stop that was set before the call must end it as well.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import av.container.core as core

FAR_S = 1e6
"""Later than any time limit."""


class _Clock:
    def __init__(self) -> None:
        self._stops: dict[int, threading.Event] = {}
        self._leaps = itertools.count(1)

    def monotonic(self) -> float:
        stop = self._stops.get(threading.get_ident())
        return time.monotonic() + (FAR_S * next(self._leaps) if stop is not None and stop.is_set() else 0.0)


_clock = _Clock()
core.time = _clock  # type: ignore[attr-defined]


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Within the `with`, FFmpeg's calls of this thread end with ExitError or InvalidDataError when `stop` is set."""
    thread = threading.get_ident()
    outer = _clock._stops.get(thread)
    _clock._stops[thread] = stop
    try:
        yield
    finally:
        if outer is None:
            del _clock._stops[thread]
        else:
            _clock._stops[thread] = outer
