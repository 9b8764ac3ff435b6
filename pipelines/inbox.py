"""The frames of one stream on their way through the predictor, in frame order, each with its future."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from pipelines.channel import Closed
from pipelines.frame import Frame, Prediction

Submitted = tuple[Frame, Future[Prediction]]


class Inbox:
    """Between a stream's decoder, which puts frames, and its lane, which iterates over them: bounded and closable.

    The lane is woken once for each frame, when the oldest frame's future is done. A channel followed by a wait for the future
    would wake it twice, which costs every thread that wants the interpreter at a thousand frames a second.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[Submitted] = deque()
        self._closed = False
        lock = threading.Lock()
        self._oldest_done = threading.Condition(lock)
        self._room = threading.Condition(lock)

    def put(self, frame: Frame, future: Future[Prediction]) -> None:
        """Append a frame, waiting for room.

        :raises Closed: if the inbox was closed, before or while waiting.
        """
        with self._room:
            self._room.wait_for(lambda: self._closed or len(self._items) < self._capacity)
            if self._closed:
                raise Closed
            self._items.append((frame, future))
        future.add_done_callback(self._done)

    @property
    def ready(self) -> bool:
        """Whether the oldest frame's future is done. A glance without the lock, which may be out of date."""
        try:
            return self._items[0][1].done()
        except IndexError:
            return False

    def _done(self, future: Future[Prediction]) -> None:
        """Thread: that which completed the future."""
        with self._oldest_done:
            if self._items and self._items[0][1] is future:
                self._oldest_done.notify()

    def __iter__(self) -> Iterator[Submitted]:
        """Yield every frame once its future is done and all frames before it were taken, until closed and empty."""
        while True:
            with self._oldest_done:
                self._oldest_done.wait_for(lambda: self._items[0][1].done() if self._items else self._closed)
                if not self._items:
                    return
                item = self._items.popleft()
                self._room.notify()
            yield item

    def close(self) -> None:
        """No further frame will be put; those inside can still be taken. Closing twice is fine."""
        with self._room:
            self._closed = True
            self._room.notify_all()
            self._oldest_done.notify_all()
