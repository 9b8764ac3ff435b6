"""Frames from all over the sources, as the model sees them: some to calibrate with, the others to compare with."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from app import build
from app.config import Settings
from app.streams import StreamPlan
from pipelines.errors import SourceError, Stopped
from pipelines.frame import WHOLE_FRAME, Picture
from pipelines.predict.preprocess import InputArray, Preprocess
from pipelines.sources.make_source import make_source
from pipelines.sources.stream_spec import StreamSpec
from pipelines.watch import NullWatch

log = logging.getLogger("watchline.calibrate")

MOST = 144
"""Frames that are taken of all sources together; a third of them calibrates. More changed nothing, see
`pipelines.predict.models.int8`."""
LEAST = 12
"""With fewer, the comparison would say nothing."""
SOURCES = 48
"""Sources that are looked at, evenly chosen of those there are, so that each gives three frames."""
READ_S = 20.0
"""How long the sources are read, together: some 10,000 frames of 720p, or 500 of a camera."""


@dataclass(frozen=True, slots=True)
class Split:
    """Two sets of frames, (n, 3, H, W) uint8, that have none in common; and how many sources gave any."""

    calibrating: InputArray
    comparing: InputArray
    sources: int


class EvenSample:
    """Evenly spaced pictures of a stream of unknown length: every k-th, and k doubles when there are too many."""

    def __init__(self, preprocess: Preprocess, most: int) -> None:
        self._preprocess = preprocess
        self._most = most
        self._step = 1
        self._seen = 0
        self._kept: list[InputArray] = []

    def offer(self, picture: Picture) -> None:
        """Take it, or not."""
        if self._seen % self._step == 0:
            if len(self._kept) == 2 * self._most:
                del self._kept[1::2]
                self._step *= 2
            if self._seen % self._step == 0:
                row = np.zeros(self._preprocess.shape, np.uint8)
                self._preprocess(picture, WHOLE_FRAME[0], row)
                self._kept.append(row)
        self._seen += 1

    def taken(self) -> list[InputArray]:
        """At most so many of those that were offered, in their order."""
        if len(self._kept) <= self._most:
            return self._kept
        places = np.linspace(0, len(self._kept) - 1, self._most).round().astype(int)
        return [self._kept[k] for k in places]


def split(frames: Iterable[Sequence[InputArray]]) -> Split:
    """Every third of the frames calibrates. No picture is in both sets, nor twice in one."""
    sets: tuple[list[InputArray], list[InputArray]] = ([], [])
    seen: set[bytes] = set()
    sources = 0
    for one in frames:
        before = len(seen)
        for frame in one:
            key = hashlib.sha256(frame.tobytes()).digest()
            if key not in seen:
                sets[len(seen) % 3 != 1].append(frame)
                seen.add(key)
        sources += len(seen) > before
    calibrating, comparing = (np.stack(s) if s else np.empty((0, 3, 1, 1), np.uint8) for s in sets)
    return Split(calibrating, comparing, sources)


class Reading:
    """Reads the sources one after the other, for so long."""

    def __init__(self, settings: Settings, preprocess: Preprocess, stop: threading.Event) -> None:
        # Neither paced nor looped: only the pictures are needed.
        self._settings = replace(settings, realtime=False, loop=False)
        self._preprocess = preprocess
        self._stop = stop
        self.errors: list[str] = []
        """One message for each source that gave no pictures, or not all of them."""

    def frames(self, streams: Sequence[StreamPlan]) -> Split:
        """:raises Stopped: if it was to end."""
        places = np.linspace(0, len(streams) - 1, min(SOURCES, len(streams))).round().astype(int)
        chosen = [streams[k] for k in places]
        share = max(MOST // max(len(chosen), 1), 3)
        found = []
        end_s = time.monotonic() + READ_S
        for k, stream in enumerate(chosen):
            found.append(self._of(stream, share, (end_s - time.monotonic()) / (len(chosen) - k)))
            if self._stop.is_set():
                raise Stopped
        return split(found)

    def _of(self, stream: StreamPlan, most: int, limit_s: float) -> list[InputArray]:
        """Frames of one source; it is told to stop at the limit, also where it is silent."""
        spread, enough = EvenSample(self._preprocess, most), _Until(time.monotonic() + limit_s, self._stop)
        trouble = _Trouble()
        try:
            source = make_source(_read_once(stream.spec), enough, threads=build.decoders(1))
            with closing(source.frames(enough, trouble)) as captures:
                for capture in captures:
                    if not capture.corrupt:
                        spread.offer(capture.picture)
            if enough.is_set() and not source.live:
                log.info("%s: looked at as far as %.0f s of reading reach", stream.name, limit_s)
        except SourceError as error:
            trouble.last = str(error)
        if trouble.last is not None:
            self.errors.append(f"{stream.name}: {trouble.last}")
        return spread.taken()


def _read_once(spec: StreamSpec) -> StreamSpec:
    """The same stream neither paced nor looped: only its pictures are wanted."""
    return replace(spec, options=replace(spec.options, realtime=False, loop=False))


class _Trouble(NullWatch):
    """The last message of a source that gives no pictures, or not all of them."""

    def __init__(self) -> None:
        self.last: str | None = None

    def fault(self, message: str) -> None:
        self.last = message

    def interrupted(self, since_s: float, message: str) -> None:
        """A camera is tried again and again."""
        self.last = message

    def resumed(self) -> None:
        self.last = None


class _Until(threading.Event):
    """Set when another event is, and from a moment on."""

    def __init__(self, end_s: float, stop: threading.Event) -> None:
        super().__init__()
        self._end_s = end_s
        self._outer = stop

    def is_set(self) -> bool:
        return self._outer.is_set() or time.monotonic() >= self._end_s

    def wait(self, timeout: float | None = None) -> bool:
        left_s = max(self._end_s - time.monotonic(), 0.0)
        self._outer.wait(left_s if timeout is None else min(timeout, left_s))
        return self.is_set()
