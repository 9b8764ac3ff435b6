"""A bounded, closable queue between two threads, with a named overflow policy."""

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
    """A queue of at most `capacity` items. Any thread may call its methods.

    overflow: "block": `put` waits for room, and no item is dropped; "newest": `put` never waits, but drops the oldest item
    and returns it to the caller, which counts the drop.

    :raises ValueError: if capacity is less than 1.
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
        """Append an item. Returns the item that was dropped to make room, or None.

        :raises Closed: if the channel is closed, already or while the call waits for room.
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
        """Remove and return the oldest item; waits until there is one.

        timeout: seconds; None: no limit.

        :raises Closed: if the channel is closed and empty.
        :raises TimeoutError: if no item arrives within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._closed, timeout):
                raise TimeoutError(f"no item within {timeout} s")
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
        """Mark the end of the data. Items in the channel can still be taken. May be called more than once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
