"""Retry around a live source: a camera that goes away comes back as a new session."""

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
    """Pauses grow from `first_s`, doubling, to `most_s`; each is shortened at random by up to half, so that twenty cameras
    behind one switch do not come back in one instant. A camera that has refused the password is asked once in
    `denied_s`: some lock the user out."""

    first_s: float = 0.5
    most_s: float = 5.0
    denied_s: float = 60.0


class Reconnect:
    """Runs a source again and again until the stop. `make` gives a fresh one for each session.

    The first open decides: what no retry can mend is raised then. Everything later is an outage.
    """

    live = True

    def __init__(
        self,
        make: Callable[[], Source],
        options: RetryOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
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
            watch.interrupted(last_s, str(error.bare()))
            stop.wait(self._pause_s(error, failures))
            failures += 1

    def _pause_s(self, error: SourceError, failures: int) -> float:
        if error.denied:
            return self._options.denied_s
        longest = min(self._options.first_s * 2 ** min(failures, 16), self._options.most_s)
        return longest * (1 - self._chance() / 2)
