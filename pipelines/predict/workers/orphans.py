"""Orphans: frames that were evicted from a lost worker while no other was ready; they wait for the next one.

Requests wait 2 s: the only worker of a service may be killed without an error for its callers, if its successor is ready in
time. A file's frames wait as long as it takes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pipelines.errors import EngineLost, Refused
from pipelines.predict.scheduling.queues import Entry

RETRY_S = 1.0
"""Seconds after which a refused caller may come back."""


class _Waiting(NamedTuple):
    entry: Entry
    error: EngineLost
    until_s: float


class Orphans:
    """Guarded by `changed`, the pool's condition."""

    def __init__(self, changed: threading.Condition, clock: Callable[[], float] = time.monotonic) -> None:
        self._changed = changed
        self._clock = clock
        self._waiting: list[_Waiting] = []

    def add(self, entry: Entry, error: EngineLost) -> None:
        """Let an entry wait. error: the loss of its worker."""
        self._waiting.append(_Waiting(entry, error, self._clock() + entry.stream.patience_s))
        self._changed.notify_all()

    def take(self) -> list[tuple[Entry, EngineLost]]:
        """All of them: a worker is ready, or the pool stops."""
        waiting, self._waiting = self._waiting, []
        return [(w.entry, w.error) for w in waiting]

    def expire(self, keep_on: Callable[[], bool]) -> None:
        """Refuse the entries as their time ends, until `keep_on` returns False. A thread of its own."""
        with self._changed:
            while keep_on():
                now = self._clock()
                for w in [w for w in self._waiting if w.until_s <= now]:
                    self._waiting.remove(w)
                    w.entry.fail(Refused(RETRY_S, "no_worker"))
                until_s = min((w.until_s for w in self._waiting), default=math.inf)
                self._changed.wait(None if until_s == math.inf else until_s - now)
