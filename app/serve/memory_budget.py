"""How much memory requests may hold, from their first byte to their answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.http.problems import RETRY_S
from pipelines.errors import Refused

MOST_BYTES = 768 << 20
"""Bodies and decoded pictures together: forty pictures of 3840x2160."""
MOST_OF_ONE = 0.75
"""What one request counts for at most, so that the largest picture leaves room for small ones."""


class MemoryBudget:
    """The account of all requests. Any thread."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._held

    def _change(self, held: int, wanted: int) -> int:
        """What a request counts for that has held so much and wants so much; before, it counted for `held`."""
        counted = min(wanted, int(MOST_OF_ONE * self._most))
        with self._lock:
            if counted > held and self._held + counted - held > self._most:
                raise Refused(RETRY_S, "memory")
            self._held += counted - held
        return counted


class Reservation:
    """What one request holds. Any thread."""

    def __init__(self, room: MemoryBudget) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._wanted = self._counted = 0
        self._over = False

    def take(self, n: int) -> None:
        """Hold n bytes more, or -n less.

        :raises Refused: if there is no room.
        """
        with self._lock:
            if self._over:
                return  # the request was given up while a thread still worked for it
            self._counted = self._room._change(self._counted, self._wanted + n)
            self._wanted += n

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Hold n bytes more for a while.

        :raises Refused: if there is no room.
        """
        self.take(n)
        try:
            yield
        finally:
            self.take(-n)

    def release(self) -> None:
        """The request is over."""
        with self._lock:
            self._counted = self._room._change(self._counted, 0)
            self._wanted, self._over = 0, True
