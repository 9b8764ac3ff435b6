"""What a scheduler knows of each stream and of each queue of requests: what waits, and when the next one should come."""

from __future__ import annotations

import bisect
import math
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from pipelines.errors import Dropped
from pipelines.frame import Cause, Frame, Prediction

LANE_AHEAD = 2
"""Results that a live stream's lane may have before it: with more, a frame would only age there; it waits here, where a
newer one can still replace it."""
BLIND_S = 0.5
"""A live stream that has shown nothing for so long is shown a late frame."""
AFTER_S = 0.005
"""Assumed time of render and sinks until a stream has shown frames."""
FORGET = 0.98
"""How much of what a stream was served counts after a further batch: the last 50 or so decide whose turn it is. The time of
the last service alone lets streams whose phase suits the batches have twice the share of others for ever (96 streams on a
device for 53: Jain's index 0.94; so: 1.00)."""
RATE_S = 0.5
"""Arrivals of requests are remembered about so long: many enough that a burst is no rate, few enough to follow a change."""


@dataclass(slots=True, eq=False)
class Entry:
    """A submitted frame and the future that its stream waits for."""

    frame: Frame
    future: Future[Prediction]
    stream: StreamQueue | RequestQueue
    submitted_s: float
    deadline_s: float = math.inf
    """Of a request; those of cameras follow from the budget."""
    losses: int = 0
    """Engines that were lost while they ran it."""

    def drop(self, cause: Cause) -> None:
        """It will not be run, unless its submitter has cancelled it already."""
        self.frame.let_go()
        self.fail(Dropped(cause))

    def fail(self, error: BaseException) -> None:
        """It ends with this error, whether it waits or was in a batch."""
        if self.future.running() or self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def shut(self) -> None:
        """Nobody will run it any more: cancelled, or `shutdown` if it was in a batch."""
        if self.future.cancel():
            self.future.set_running_or_notify_cancel()  # else `concurrent.futures.wait` would go on waiting
        elif self.future.running():
            self.future.set_exception(Dropped("shutdown"))


@dataclass(slots=True, eq=False)
class StreamQueue:
    """One stream's frames and habits. Guarded by the scheduler's lock."""

    name: str
    live: bool
    capacity: int
    waiting: deque[Entry] = field(default_factory=deque)
    held: set[Frame] = field(default_factory=set)
    """Frames taken into batches that the lane has not finished with."""
    open: bool = True
    served_s: float = float("-inf")
    served: float = 0.0
    """Frames taken into batches, older batches counting less and less."""
    shown_s: float = float("-inf")
    last_arrival_s: float | None = None
    period_s: float | None = None
    after: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    after_s: float = AFTER_S

    @property
    def ahead(self) -> int:
        """How many frames are in batches or with the lane."""
        return len(self.held)

    @property
    def has_room(self) -> bool:
        return len(self.waiting) + self.ahead < self.capacity

    @property
    def can_come(self) -> bool:
        """Whether this stream's decoder can hand in a further frame now."""
        return self.open and self.has_room

    def expected_s(self, now: float) -> float | None:
        """When the next frame should arrive, by the period seen so far; None where nothing is to be expected: a new
        stream, or one that has missed a whole period (a camera that went away)."""
        if self.last_arrival_s is None or self.period_s is None or not self.open:
            return None
        expected = self.last_arrival_s + self.period_s
        return expected if now < expected + self.period_s else None

    def arrived(self, arrived_s: float) -> None:
        """A live frame came: learn how often they do."""
        if self.last_arrival_s is not None:
            gap = arrived_s - self.last_arrival_s
            # An eighth, as TCP smooths its round-trip time (RFC 6298): follows a change within a second at 25 fps.
            self.period_s = gap if self.period_s is None else self.period_s + (gap - self.period_s) / 8
        self.last_arrival_s = arrived_s

    def taken(self, frame: Frame, now: float) -> None:
        """One of its frames went into a batch."""
        self.held.add(frame)
        self.served += 1
        self.served_s = now

    def ended(self, frame: Frame) -> None:
        """The lane is done with one that was in a batch; nothing happens if that was another scheduler's."""
        if frame not in self.held:
            return
        self.held.remove(frame)
        trace = frame.trace
        if trace.shown_s is not None and trace.inferred_s is not None:
            if trace.shown_s - self.shown_s >= BLIND_S:
                # What was measured before has kept the stream blind, or is old. Only shown frames are measured: two slow
                # ones at the start, while fonts and encoder were opened, would drop all but two frames a second for 20 s.
                self.after.clear()
            self.shown_s = trace.shown_s
            self.after.append(trace.shown_s - trace.inferred_s)
            self.after_s = sorted(self.after)[int(0.95 * (len(self.after) - 1))]


@dataclass(slots=True, eq=False)
class RequestQueue:
    """Requests, first deadline first; of equal ones the first that came. Guarded by the scheduler's lock."""

    name: str
    capacity: int
    waiting: list[Entry] = field(default_factory=list)
    open: bool = True
    last_arrival_s: float = float("-inf")
    _arrivals: float = 0.0
    """How many came lately, older ones counting less and less."""

    @property
    def can_come(self) -> bool:
        """Whether a further request would be taken."""
        return self.open and len(self.waiting) < self.capacity

    def put(self, entry: Entry) -> None:
        bisect.insort(self.waiting, entry, key=_deadline)

    def before(self, deadline_s: float) -> int:
        """How many would be served before a new one of this deadline."""
        return bisect.bisect_right(self.waiting, deadline_s, key=_deadline)

    def forget_cancelled(self) -> None:
        """Those that their submitters have cancelled make room."""
        self.waiting[:] = [e for e in self.waiting if not e.future.cancelled()]

    def arrived(self, now: float) -> None:
        """A request came, whether it is taken or not: learn how often they do."""
        self._arrivals = self.rate(now) * RATE_S + 1
        self.last_arrival_s = now

    def rate(self, now: float) -> float:
        """Requests a second, lately. A mean of the gaps would take every burst for a flood."""
        return self._arrivals * math.exp(-(now - self.last_arrival_s) / RATE_S) / RATE_S

    def taken(self, frame: Frame, now: float) -> None:
        """One of them went into a batch. Nobody need say when it is done with."""


def _deadline(entry: Entry) -> float:
    return entry.deadline_s
