"""Files as cameras: `Realtime` paces a file by its times, `Loop` plays it again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace

from pipelines.frame import DEFAULT_RATE, Capture
from pipelines.sources.source import Source
from pipelines.watch import Watch


class Loop:
    """The source again from its beginning whenever it ends; each turn is a session."""

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
    """Releases each frame when its time has come, counted from the first; frames without a time come at the stream's rate.

    The clock runs on whatever becomes of the frames. `arrived_s` is the release. A wait of the person at the window
    (space) does not stop it: it plays a camera.
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
