"""Wrappers that play files like cameras: `Realtime` paces a file by its times, `Loop` repeats it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace

from pipelines.frame import DEFAULT_RATE, Capture
from pipelines.sources.source import Source
from pipelines.watch import Watch


class Loop:
    """Restarts a source each time it ends; each pass is a session of its own. Ends if a pass has no frames."""

    def __init__(self, source: Source) -> None:
        self.live = source.live
        self._source = source

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        session = 0
        while not stop.is_set():
            empty = True
            for capture in self._source.frames(stop, watch):
                empty = False
                yield replace(capture, session=session)
            if empty:
                return
            session += 1


class Realtime:
    """Delays each frame of a file until its time, counted from the first; a frame without a time follows at the stream's rate.

    Time does not wait for slow frames, nor for a pause in the window (space): the file behaves like a camera. `arrived_s` and
    `decoded_s` of a capture are set to its release.
    """

    live = True

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        start_s: float | None = None
        session, due_s = 0, 0.0
        for capture in self._source.frames(stop, watch):
            period_s = float(1 / (capture.info.rate or DEFAULT_RATE))
            if start_s is None or capture.session != session:
                start_s = self._clock() if start_s is None else start_s + due_s + period_s
                session, due_s = capture.session, 0.0
            elif capture.pts_s is None:
                due_s += period_s
            if capture.pts_s is not None:
                due_s = capture.pts_s
            if stop.wait(max(start_s + due_s - self._clock(), 0.0)):
                return
            now = self._clock()
            yield replace(capture, arrived_s=now, decoded_s=now)
