"""The queues of the scheduler: the waiting frames of each stream and of each queue of requests, and their arrivals."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from pipelines.errors import Dropped
from pipelines.frame import Answer, Cause, Frame, Prediction, Region
from pipelines.predict.scheduling.tuning import DEFAULT, Tuning


@dataclass(slots=True, eq=False)
class Entry:
    """A submitted frame with the future of its prediction. Each of its regions is a row of a batch.

    Owner: the scheduler while it waits; then the predictor that runs it. The scheduler resets `answers` and `left` before the
    entry is in a batch; from then on only the completion thread uses them.
    """

    frame: Frame
    future: Future[Prediction]
    stream: StreamQueue | RequestQueue
    submitted_s: float
    deadline_s: float = math.inf
    """Monotonic. Of a request: its own. Of a camera's frame it follows from the budget."""
    rows: int = 1
    """Regions of the frame, at least 1."""
    losses: int = 0
    """Engines that were lost while they ran it."""
    attempt: int = 0
    """Raised at each run and at the end. Parts with another number are ignored."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """The answers of this attempt so far, by region."""
    left: int = 0
    """Rows of this attempt without an answer."""

    def begin_attempt(self, most_rows: int) -> list[Part]:
        """Begin the next run: forget the answers, and make the parts of earlier runs invalid. Returns the rows in parts of at
        most `most_rows`, the largest batch. With the scheduler's lock held."""
        self.attempt += 1
        self.answers, self.left = {}, self.rows
        if self.rows <= most_rows:
            return [Part(self, 0, self.rows, self.attempt)]
        return [Part(self, k, min(k + most_rows, self.rows), self.attempt) for k in range(0, self.rows, most_rows)]

    def drop(self, cause: Cause) -> None:
        """End it with `Dropped`, unless its submitter has cancelled it."""
        self.frame.let_go()
        self.fail(Dropped(cause))

    def succeed(self, prediction: Prediction) -> None:
        """End it with its prediction. Nothing happens if it has ended already."""
        with suppress(InvalidStateError):
            self.future.set_result(prediction)

    def fail(self, error: BaseException) -> None:
        """End it with this error, in a queue or in a batch. Nothing happens if it has ended already."""
        self.attempt += 1  # its parts in other batches are ignored
        if self.future.running() or (not self.future.done() and self.future.set_running_or_notify_cancel()):
            self.future.set_exception(error)

    def cancel(self) -> None:
        """End it at a stop: cancelled, or `Dropped("shutdown")` if it was in a batch."""
        self.attempt += 1
        if self.future.cancel():
            self.future.set_running_or_notify_cancel()  # else `concurrent.futures.wait` would go on waiting
        elif self.future.running():
            self.future.set_exception(Dropped("shutdown"))


@dataclass(slots=True, eq=False)
class Part:
    """Rows first:stop of an entry in one batch. A frame with more regions than the largest batch has several parts."""

    entry: Entry
    first: int
    stop: int
    attempt: int

    @property
    def rows(self) -> int:
        return self.stop - self.first

    @property
    def frame(self) -> Frame:
        return self.entry.frame

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of these rows."""
        regions = self.entry.frame.regions
        return regions if self.rows == len(regions) else regions[self.first : self.stop]

    @property
    def valid(self) -> bool:
        """Whether the entry still waits for this part: it has not failed, and was not requeued."""
        return self.attempt == self.entry.attempt


@dataclass(slots=True, eq=False)
class StreamQueue:
    """One stream: its waiting frames, its arrivals and its time after the engine. Guarded by the scheduler's lock."""

    name: str
    live: bool
    capacity: int
    """Frames that wait, are in batches or with the lane, at most."""
    budget_s: float = 0.050
    """Latency budget of a live frame, from its arrival."""
    tuning: Tuning = DEFAULT
    waiting: deque[Entry] = field(default_factory=deque)
    held: set[Frame] = field(default_factory=set)
    """Frames in batches, or with the lane and not yet finished."""
    open: bool = True
    served_s: float = float("-inf")
    served: float = 0.0
    """Frames taken into batches; older batches count less and less."""
    shown_s: float = float("-inf")
    last_arrival_s: float | None = None
    period_s: float | None = None
    rows: int = 1
    """Rows of the last frame."""
    after: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    after_s: float = 0.0
    """Time of render and sinks: the 95th percentile of the last shown frames."""

    def __post_init__(self) -> None:
        self.after_s = self.tuning.after_s

    @property
    def patience_s(self) -> float:
        """How long a frame of a lost worker waits for the next worker: a camera's frame would be old by then, a file loses
        none."""
        return 0.0 if self.live else math.inf

    @property
    def ahead(self) -> int:
        """Frames in batches or with the lane."""
        return len(self.held)

    @property
    def has_room(self) -> bool:
        return len(self.waiting) + self.ahead < self.capacity

    @property
    def can_come(self) -> bool:
        """Whether this stream's decoder can hand in a further frame now."""
        return self.open and self.has_room

    @property
    def over(self) -> bool:
        """Whether the stream is closed and its last frame has ended."""
        return not (self.open or self.waiting or self.held)

    def reopened(self, *, live: bool, capacity: int, budget_s: float) -> StreamQueue:
        """A fresh queue of the same name that takes over the frames of this closed one."""
        fresh = StreamQueue(self.name, live, capacity, budget_s, self.tuning, self.waiting, self.held)
        for entry in fresh.waiting:
            entry.stream = fresh
        return fresh

    def expected_s(self, now: float) -> float | None:
        """Time of the next arrival by the mean period; None for a new stream, and for one that has missed a whole period (a
        camera that went away)."""
        if self.last_arrival_s is None or self.period_s is None or not self.open:
            return None
        expected = self.last_arrival_s + self.period_s
        return expected if now < expected + self.period_s else None

    def arrived(self, arrived_s: float) -> None:
        """Count a live frame: update the mean period."""
        if self.last_arrival_s is not None:
            gap = arrived_s - self.last_arrival_s
            # An eighth, as TCP smooths its round-trip time (RFC 6298): follows a change within a second at 25 fps.
            self.period_s = gap if self.period_s is None else self.period_s + (gap - self.period_s) / 8
        self.last_arrival_s = arrived_s

    def take(self, frame: Frame, now: float) -> None:
        """Count a frame that goes into a batch."""
        self.held.add(frame)
        self.served += 1
        self.served_s = now

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that was in a batch. A frame of another scheduler is ignored."""
        if frame not in self.held:
            return
        self.held.remove(frame)
        trace = frame.trace
        if trace.shown_s is not None and trace.inferred_s is not None:
            if trace.shown_s - self.shown_s >= self.tuning.blind_s:
                # The earlier measurements have kept the stream blind, or are old. Only shown frames are measured: two slow
                # ones at the start, while fonts and encoder were opened, would drop all but two frames a second for 20 s.
                self.after.clear()
            self.shown_s = trace.shown_s
            self.after.append(trace.shown_s - trace.inferred_s)
            self.after_s = sorted(self.after)[int(0.95 * (len(self.after) - 1))]


@dataclass(slots=True, eq=False)
class RequestQueue:
    """Requests ordered by deadline, equal deadlines by arrival. Guarded by the scheduler's lock."""

    name: str
    capacity: int
    """Requests that wait, at most."""
    tuning: Tuning = DEFAULT
    waiting: list[Entry] = field(default_factory=list)
    open: bool = True
    last_arrival_s: float = float("-inf")
    patience_s: ClassVar[float] = 2.0
    """How long a request of a lost worker waits for the next worker. A worker that was killed is usually back by then."""
    _arrivals: float = 0.0
    """Rows that came lately; older ones count less and less."""

    @property
    def can_come(self) -> bool:
        """Whether a further request would be taken."""
        return self.open and len(self.waiting) < self.capacity

    @property
    def over(self) -> bool:
        """Whether the queue is closed and empty."""
        return not (self.open or self.waiting)

    def put(self, entry: Entry) -> None:
        bisect.insort(self.waiting, entry, key=_deadline)

    def rows_before(self, deadline_s: float) -> int:
        """Rows that would run before a new request of this deadline."""
        return sum(e.rows for e in self.waiting[: bisect.bisect_right(self.waiting, deadline_s, key=_deadline)])

    def forget_cancelled(self) -> None:
        """Remove requests that their submitters have cancelled."""
        self.waiting[:] = [e for e in self.waiting if not e.future.cancelled()]

    def arrived(self, now: float, rows: int = 1) -> None:
        """Count a request, taken or refused, and its rows: update the arrival rate."""
        self._arrivals = self.rate(now) * self.tuning.arrivals_s + rows
        self.last_arrival_s = now

    def rate(self, now: float) -> float:
        """Rows per second, lately. A mean of the gaps would take every burst for a flood."""
        memory_s = self.tuning.arrivals_s
        return self._arrivals * math.exp(-(now - self.last_arrival_s) / memory_s) / memory_s

    def take(self, frame: Frame, now: float) -> None:
        """Requests need no account of their frames: `finish` is not called for them."""


def _deadline(entry: Entry) -> float:
    return entry.deadline_s


def detached(parts: Iterable[Part]) -> list[Entry]:
    """The entries of these parts that have not ended, each once. No part of their attempt counts any more."""
    entries: list[Entry] = []
    for part in parts:
        if part.valid:
            part.entry.attempt += 1
            entries.append(part.entry)
    return entries


def rows_of(entries: list[Entry]) -> int:
    """Rows of several frames."""
    return sum(e.rows for e in entries)
