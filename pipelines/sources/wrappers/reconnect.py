"""Reconnecting live sources: after an outage the source is opened again as a new session."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.sources.source import Source
from pipelines.watch import Watch


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """Pauses between attempts. Each is shortened at random by up to half, so that twenty cameras behind one switch do not
    reconnect at the same moment."""

    first_s: float = 0.5
    """The first pause; it doubles after each failed attempt."""
    most_s: float = 5.0
    """The longest pause."""
    denied_s: float = 60.0
    """The pause after refused credentials: some cameras lock the user out after a few attempts."""


class Reconnect:
    """Reopens a live source after each failure, until the stop.

    `frames` raises only permanent errors before the first frame; every later error counts as an outage and is reported to
    the watch.
    """

    live = True

    def __init__(
        self,
        make: Callable[[], Source],
        options: RetryOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """make: creates a new source for each session. chance: random numbers from 0 to 1, for the pauses."""
        self._make = make
        self._options = options or RetryOptions()
        self._clock = clock
        self._chance = chance

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        session, failures, ever = 0, 0, False
        last_s = self._clock()
        while not stop.is_set():
            fresh = True
            error = SourceError("the stream ended")
            try:
                for capture in self._make().frames(stop, watch):
                    if fresh and ever:
                        session += 1
                    if fresh and (ever or failures):
                        watch.resumed()
                    fresh, ever, failures = False, True, 0
                    last_s = capture.decoded_s
                    yield replace(capture, session=session)
            except SourceError as caught:
                error = caught
            if stop.is_set():
                return
            if error.permanent and not ever:
                raise error
            watch.interrupted(last_s, str(error.without_traceback()))
            stop.wait(self._pause_s(error, failures))
            failures += 1

    def _pause_s(self, error: SourceError, failures: int) -> float:
        """Seconds until the next attempt, after this many failed ones."""
        if error.denied:
            return self._options.denied_s
        longest = min(self._options.first_s * 2 ** min(failures, 16), self._options.most_s)
        return longest * (1 - self._chance() / 2)
