"""Waits on sockets that end with a deadline or with the stop event."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

from pipelines.errors import SourceError, Stopped

SLICE_S = 0.05
"""Longest wait between two checks of the stop event."""


class Deadline:
    """The time limit for the opening of a session; it also ends when the stop event is set.

    :param limit_s: seconds from now.
    :param stop: ends every wait.
    :param clock: monotonic.
    """

    def __init__(self, limit_s: float, stop: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._stop = stop
        self._clock = clock
        self._end_s = clock() + limit_s

    def slice_s(self) -> float:
        """The length of the next wait in seconds, at most SLICE_S.

        :raises Stopped: if the stop event is set.
        :raises SourceError: if the deadline has passed.
        """
        if self._stop.is_set():
            raise Stopped
        left_s = self._end_s - self._clock()
        if left_s <= 0:
            raise SourceError(f"nothing came within {self._limit_s:g} s (the open timeout)")
        return min(left_s, SLICE_S)

    def part(self, shares: int) -> Deadline:
        """A deadline after one of `shares` equal parts of the remaining time."""
        left_s = max(self._end_s - self._clock(), 0)
        part = Deadline(self._limit_s, self._stop, self._clock)
        part._end_s = self._clock() + left_s / shares
        return part


def ready(readers: Sequence[socket.socket], writers: Sequence[socket.socket], timeout_s: float) -> bool:
    """Wait until a reader is readable, a writer is writable or a socket has failed. Returns False after `timeout_s` seconds."""
    if not hasattr(select, "poll"):
        return any(select.select(readers, writers, [*readers, *writers], timeout_s))
    poll = select.poll()  # unlike select it takes descriptors above 1023
    for one in {*readers, *writers}:
        poll.register(one, (select.POLLIN if one in readers else 0) | (select.POLLOUT if one in writers else 0))
    return bool(poll.poll(timeout_s * 1000))
