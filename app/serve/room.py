"""How much memory requests may hold, from their first byte to their answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.serve.problems import RETRY_S
from pipelines.errors import Refused

MOST_BYTES = 768 << 20
"""Bodies and decoded pictures together: forty pictures of 3840x2160."""


class Room:
    """The account of all requests. Any thread."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._held

    def _take(self, n: int, own: int) -> None:
        """n bytes more for who holds `own` already."""
        with self._lock:
            # What is too large for all of the room still gets through when nobody else is there.
            if self._held > own and self._held + n > self._most:
                raise Refused(RETRY_S, "full")
            self._held += n

    def _give(self, n: int) -> None:
        with self._lock:
            self._held -= n


class Holding:
    """What one request holds. Any thread."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._held = 0
        self._over = False

    def take(self, n: int) -> None:
        """Hold n bytes more.

        :raises Refused: if there is no room.
        """
        with self._lock:
            if self._over:
                return  # the request was given up while a thread still worked for it
            self._room._take(n, self._held)
            self._held += n

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Hold n bytes more for a while.

        :raises Refused: if there is no room.
        """
        self.take(n)
        try:
            yield
        finally:
            with self._lock:
                if not self._over:
                    self._room._give(n)
                    self._held -= n

    def release(self) -> None:
        """The request is over."""
        with self._lock:
            self._room._give(self._held)
            self._held, self._over = 0, True
