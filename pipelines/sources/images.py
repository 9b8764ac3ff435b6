"""Pictures as one stream: each file is a frame, in the order of the names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import av.error

from pipelines.errors import SourceError
from pipelines.files import file_address
from pipelines.frame import Capture, StreamInfo
from pipelines.sources.opening import Limits, opened
from pipelines.sources.pixels import Pixels
from pipelines.sources.source import Watch

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"})


class ImagesSource:
    """One frame for each picture file, the first one of an animation. A file that is no picture is counted and passed over.

    Pictures have no time: `pts_s` is None. An annotated video shows each for a second.
    """

    live = False

    def __init__(self, paths: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock

    def frames(self, stop: threading.Event, watch: Watch) -> Iterator[Capture]:
        info = StreamInfo(rate=Fraction(1), frames=len(self._paths))
        pixels = Pixels()
        for path in self._paths:
            if stop.is_set():
                return
            arrived_s = self._clock()
            try:
                frame, aspect = read_picture(path, stop)
            except SourceError as error:
                watch.decode_error(str(error))
                watch.fault(str(error))
                continue
            yield Capture(pixels.picture(frame, aspect), None, arrived_s, self._clock(), info, frame.is_corrupt)


def read_picture(path: Path, stop: threading.Event) -> tuple[av.VideoFrame, Fraction | None]:
    """Decode a picture file and give its sample aspect too. The content decides what it is, not the name, and no sign in
    the name is a pattern.

    :raises SourceError: if it is none.
    """
    name, limits = file_address(path), Limits()
    try:
        with path.open("rb") as file, opened(name, stop=stop, limits=limits, file=file) as (container, stream):
            stream.codec_context.thread_count = 1
            for packet in container.demux(stream):
                for frame in packet.decode():
                    assert isinstance(frame, av.VideoFrame)
                    return frame, stream.sample_aspect_ratio
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {error.strerror}", permanent=True) from None
    raise SourceError(f"cannot read {str(path)!r}: no picture in it", permanent=True)
