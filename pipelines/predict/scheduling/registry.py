"""Registry: the queues of a scheduler by name, and the rooms in which the decoders of files wait."""

from __future__ import annotations

import threading

from pipelines.predict.scheduling.queues import Entry, RequestQueue, StreamQueue
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions

Queue = StreamQueue | RequestQueue


class Registry:
    """Open streams, closed streams with frames in progress, and queues of requests. The scheduler's `lock` guards it."""

    def __init__(self, options: SchedulerOptions, fill: int, lock: threading.Lock) -> None:
        """fill: rows of a file batch."""
        self.streams: dict[str, StreamQueue] = {}
        self.requests: dict[str, RequestQueue] = {}
        self.rooms: dict[str, threading.Condition] = {}
        """A file's decoder waits here for room. One per stream, since the end of a frame concerns one decoder: to wake all,
        with 16 files at once, cost each frame as much as everything else."""
        self.fill = fill
        self._options = options
        self._lock = lock

    def open(self, name: str, *, live: bool, budget_s: float | None) -> None:
        """See `DynamicBatchScheduler.open`."""
        budget_s = self._options.budget_s if budget_s is None else budget_s
        known = self.streams.get(name)
        if known is not None and known.open and known.live == live:
            known.budget_s = budget_s
            return
        # A file may have two batches staged or running, one filling and one in its lane's hands.
        capacity = self._live_capacity if live else (self._options.slots + 2) * self.fill
        if known is not None:
            self.streams[name] = known.reopened(live=live, capacity=capacity, budget_s=budget_s)
        else:
            self._add(StreamQueue(name, live, capacity, budget_s, self._options.tuning))

    @property
    def _live_capacity(self) -> int:
        return 1 + self._options.tuning.lane_ahead

    def _add(self, stream: StreamQueue) -> StreamQueue:
        self.streams[stream.name] = stream
        self.rooms[stream.name] = threading.Condition(self._lock)
        return stream

    def stream(self, name: str) -> StreamQueue:
        """The queue of a stream. A camera may hand in a frame after it was closed: it moved to another worker while its
        decoder was on the way to this one."""
        found = self.streams.get(name)
        if found is not None:
            return found
        o = self._options
        return self._add(StreamQueue(name, True, self._live_capacity, o.budget_s, o.tuning, open=False))

    def queue(self, name: str) -> Queue:
        """The queue of an open stream or of requests.

        :raises KeyError: if there is none.
        """
        return self.requests[name] if name in self.requests else self.streams[name]

    def adopt(self, entry: Entry) -> Queue:
        """The queue that takes an entry of another scheduler. Its stream may have been closed before this scheduler began."""
        name, old = entry.frame.stream, entry.stream
        if isinstance(old, StreamQueue) and name not in self.streams:
            self._add(StreamQueue(name, old.live, old.capacity, old.budget_s, old.tuning, open=False))
        entry.stream = self.queue(name)
        return entry.stream

    def forget(self, queue: Queue) -> None:
        """Remove a stream that is over."""
        if queue.over and self.streams.get(queue.name) is queue:
            del self.streams[queue.name], self.rooms[queue.name]

    def waiting(self, name: str) -> int:
        """Frames or requests that wait; 0 for an unknown name."""
        found = self.requests.get(name) or self.streams.get(name)
        return len(found.waiting) if found is not None else 0

    def empty(self) -> list[Entry]:
        """Take all waiting entries out of their queues."""
        queues: list[Queue] = [*self.streams.values(), *self.requests.values()]
        waiting = [entry for q in queues for entry in q.waiting]
        for q in queues:
            q.waiting.clear()
        return waiting

    def notify_rooms(self) -> None:
        """Let every decoder look for room."""
        for room in self.rooms.values():
            room.notify_all()
