"""What was taken from a lost worker and waits for the next one to be ready."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pipelines.errors import EngineLost, Refused
from pipelines.predict.scheduling.queues import Entry, RequestQueue

RETRY_S = 1.0
"""When to come back where no worker is ready."""
PATIENCE_S = 2.0
"""For a request. A file's frame waits as long as it takes: a file loses none."""


class _Waiting(NamedTuple):
    entry: Entry
    error: EngineLost
    until_s: float


class Orphans:
    """Guarded by `changed`, the pool's."""

    def __init__(self, changed: threading.Condition, clock: Callable[[], float] = time.monotonic) -> None:
        self._changed = changed
        self._clock = clock
        self._waiting: list[_Waiting] = []

    def add(self, entry: Entry, error: EngineLost) -> None:
        """error: what its worker was lost with."""
        patience_s = PATIENCE_S if isinstance(entry.stream, RequestQueue) else math.inf
        self._waiting.append(_Waiting(entry, error, self._clock() + patience_s))
        self._changed.notify_all()

    def take(self) -> list[tuple[Entry, EngineLost]]:
        """All of them: a worker is ready, or the pool stops."""
        waiting, self._waiting = self._waiting, []
        return [(w.entry, w.error) for w in waiting]

    def give_up(self, keep_on: Callable[[], bool]) -> None:
        """Refuse those that have waited for long enough, until `keep_on` says no. A thread of its own."""
        with self._changed:
            while keep_on():
                now = self._clock()
                for w in [w for w in self._waiting if w.until_s <= now]:
                    self._waiting.remove(w)
                    w.entry.fail(Refused(RETRY_S, "no_worker"))
                until_s = min((w.until_s for w in self._waiting), default=math.inf)
                self._changed.wait(None if until_s == math.inf else until_s - now)
