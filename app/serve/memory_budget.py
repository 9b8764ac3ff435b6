"""The memory that requests may hold, from their first byte to their answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.http.problems import RETRY_S
from pipelines.errors import Refused

MOST_BYTES = 768 << 20
"""Limit of bodies and decoded pictures together: forty pictures of 3840x2160."""
MOST_SHARE = 0.75
"""Most that one request counts, as a share of the limit: the largest picture leaves memory for small ones."""


class MemoryBudget:
    """Counts the memory of all requests. most: bytes. Any thread."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes that requests hold now."""
        return self._held

    def change(self, held: int, wanted: int) -> int:
        """Change the bytes that count for a request from `held` to `wanted`, or to the largest share of one request.

        Returns the bytes that count from now on.

        :raises Refused: if all requests together would hold more than the limit.
        """
        counted = min(wanted, int(MOST_SHARE * self._most))
        with self._lock:
            if counted > held and self._held + counted - held > self._most:
                raise Refused(RETRY_S, "memory")
            self._held += counted - held
        return counted


class Reservation:
    """The memory that one request holds. Any thread."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._wanted = self._counted = 0
        self._released = False

    def take(self, n: int) -> None:
        """Hold n bytes more; a negative n gives bytes back.

        :raises Refused: if requests already hold too much memory.
        """
        with self._lock:
            if self._released:
                return  # a thread still works for a request that was cancelled
            self._counted = self._budget.change(self._counted, self._wanted + n)
            self._wanted += n

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Hold n bytes more inside the `with` block.

        :raises Refused: if requests already hold too much memory.
        """
        self.take(n)
        try:
            yield
        finally:
            self.take(-n)

    def release(self) -> None:
        """Give all bytes back. Later calls of `take` change nothing."""
        with self._lock:
            self._counted = self._budget.change(self._counted, 0)
            self._wanted, self._released = 0, True
