"""A bounded, closable hand-over between two threads, with a named overflow policy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
Overflow = Literal["block", "newest"]


class Closed(Exception):
    """The other side has closed the channel."""


class Channel(Generic[T]):
    """Holds at most `capacity` items.

    overflow="block": `put` waits for room, nothing is lost. overflow="newest": `put` never waits, the oldest item
    makes room and is returned to the putter, who accounts for it.
    """

    def __init__(self, capacity: int, overflow: Overflow) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self._capacity = capacity
        self._overflow = overflow
        self._items: deque[T] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: T) -> T | None:
        """Hand an item over; returns the item that had to make room, if any.

        :raises Closed: if the channel was closed, before or while waiting for room.
        """
        with self._changed:
            displaced = None
            if self._overflow == "block":
                self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity)
            elif len(self._items) == self._capacity and not self._closed:
                displaced = self._items.popleft()
            if self._closed:
                raise Closed
            self._items.append(item)
            self._changed.notify_all()
            return displaced

    def get(self, timeout: float | None = None) -> T:
        """Take the oldest item, waiting for one.

        :raises Closed: if the channel is closed and empty.
        :raises TimeoutError: if nothing came in `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._closed, timeout):
                raise TimeoutError(f"nothing came within {timeout} s")
            if not self._items:
                raise Closed
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def __iter__(self) -> Iterator[T]:
        """Take items until the channel is closed and empty."""
        while True:
            try:
                yield self.get()
            except Closed:
                return

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)

    def close(self) -> None:
        """End of data: what is inside can still be taken. Closing twice is fine."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
