"""The outcomes of a stream's frames: ledger and results in frame order, although frames end in any order and thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from pipelines.frame import Result
from pipelines.monitor.ledger import StreamLedger

HELD = 64
HELD_S = 0.05
"""Results that a lane collects, and for how long, before it hands them on although more are ready."""


class Fanout(Protocol):
    """The consumers of results; `results.Results` is one."""

    def put(self, results: Sequence[Result]) -> None:
        """Hand results on without waiting."""

    @property
    def full(self) -> bool:
        """Whether `wait_for_room` would wait."""

    def wait_for_room(self, stop: threading.Event) -> None:
        """Wait until there is room for more, or `stop` is set."""


class Outcomes:
    """The outcomes of one stream. The lane and the window's thread end frames; a frame is entered in the ledger and handed to
    the consumers once all frames before it have ended.

    Results that the lane's own thread ends are collected until `publish`: consumers wake once for each batch of results.
    """

    def __init__(self, ledger: StreamLedger, results: Fanout) -> None:
        self._ledger = ledger
        self._results = results
        self._open: deque[Outcome] = deque()
        self._ended: list[Result] = []
        self._since_s = 0.0
        """When the oldest collected result ended."""
        self._lane: int | None = None
        """Identity of the lane's thread."""
        self._changed = threading.Condition()

    def add(self, result: Result) -> Outcome:
        """Note the next frame of the stream; the caller ends it later through the returned outcome. Thread: the lane's."""
        self._lane = threading.get_ident()
        outcome = Outcome(self, result)
        with self._changed:
            self._open.append(outcome)
        return outcome

    def publish(self) -> None:
        """Hand the collected results to the consumers. Any thread."""
        with self._changed:
            self._put()

    def wait(self) -> None:
        """Wait until every added frame has ended, and hand all results on."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)
            self._put()

    def _advance(self) -> None:
        """Enter ended frames in the ledger, up to the first one that is still open."""
        with self._changed:
            now_s = time.monotonic()
            if not self._ended:
                self._since_s = now_s
            while self._open and self._open[0].done:
                outcome = self._open.popleft()
                self._ledger.end(outcome.result, skipped_by_window=outcome.skipped)
                self._ended.append(outcome.result)
            if len(self._ended) >= HELD or now_s - self._since_s > HELD_S or threading.get_ident() != self._lane:
                self._put()
            self._changed.notify_all()

    def _put(self) -> None:
        """With the lock held, so that results of two threads keep their order."""
        if self._ended:
            ended, self._ended = self._ended, []
            self._results.put(ended)


class Outcome:
    """The outcome of one frame, open until it is called. Any thread, once."""

    def __init__(self, outcomes: Outcomes, result: Result) -> None:
        self.result = result
        self.done = False
        self.skipped = False
        self._outcomes = outcomes

    def __call__(self, *, drawn_s: float | None = None, skipped: bool = False) -> None:
        """End the frame. drawn_s: when the window had drawn it (monotonic); skipped: the window drew a newer one instead."""
        if drawn_s is not None:
            self.result.frame.trace.shown_s = drawn_s
        self.skipped = skipped
        self.done = True
        self._outcomes._advance()
