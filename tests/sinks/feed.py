"""Numbered frames in the form in which a lane gives them to a sink, and the content of the written file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from pipelines.frame import Frame, Picture, StreamInfo, Trace
from pipelines.media.local_files import file_address
from pipelines.sinks.video import VideoFile
from tests.clips import grey, level, luma, number_of

Times = Sequence[Fraction | float | None]

VFR = [Fraction(n, 30) for n in range(60)] + [Fraction(60 + 5 * n, 30) for n in range(12)]
NTSC = [Fraction(1001 * n, 30000) for n in range(60)]


def picture(number: int, size: tuple[int, int] = (64, 64), **kind: Any) -> Picture:
    """A grey picture with its number as luma."""
    return Picture(*grey(level(number), size), **kind)


def noise(number: int, size: tuple[int, int] = (160, 120)) -> Picture:
    """A picture of noise, which no encoder compresses well."""
    rng = np.random.default_rng(number)
    width, height = size
    shapes = ((height, width), (height // 2, width // 2), (height // 2, width // 2))
    return Picture(*(rng.integers(16, 236, shape, dtype=np.uint8) for shape in shapes))


def frame(number: int, pts_s: Fraction | float | None, info: StreamInfo, session: int = 0, arrived_s: float = 0) -> Frame:
    """A frame with any picture: sinks use the annotated picture."""
    time_s = None if pts_s is None else float(pts_s)
    return Frame("door", session, number, picture(0), time_s, info, Trace(arrived_s, arrived_s))


def play(sink: VideoFile, times: Times, info: StreamInfo | None = None, session: int = 0, first: int = 0) -> None:
    """Show one numbered picture for each time."""
    for number, time_s in enumerate(times, first):
        sink.show(frame(number, time_s, info or StreamInfo(), session), picture(number))


def replay(sink: VideoFile, source: Path) -> None:
    """Show every picture of a real file, with the times and hints that a source reads from it."""
    with av.open(file_address(source)) as container:
        stream = container.streams.video[0]
        info = StreamInfo(stream.time_base, stream.average_rate, sound=str(source))
        start = None
        for number, image in enumerate(container.decode(stream)):
            assert image.pts is not None
            start = image.pts if start is None else start
            planes = [np.frombuffer(memoryview(p), np.uint8).reshape(p.height, p.line_size) for p in image.planes]
            y, u, v = (rows[:, : p.width] for rows, p in zip(planes, image.planes, strict=True))
            sink.show(frame(number, (image.pts - start) * image.time_base, info), Picture(y, u, v))


def decoded(path: Path) -> Iterator[tuple[Fraction, int]]:
    """For every frame: its time on the container's clock in seconds, and its number."""
    with av.open(str(path)) as container:
        for image in container.decode(video=0):
            assert image.pts is not None
            yield image.pts * image.time_base, number_of(luma(image))


def times(path: Path) -> list[Fraction]:
    return [time_s for time_s, _ in decoded(path)]


def numbers(path: Path) -> list[int]:
    return [number for _, number in decoded(path)]


def packets(path: Path, kind: str = "audio") -> list[tuple[Fraction, bytes]]:
    """For every packet: its time in seconds and its payload."""
    with av.open(str(path)) as container:
        stream = container.streams.best(kind)  # type: ignore[arg-type]
        if stream is None:
            return []
        return [(p.pts * p.time_base, bytes(p)) for p in container.demux(stream) if p.size and p.pts is not None]


def apart(found: Iterable[Fraction], wanted: Iterable[Fraction | float]) -> float:
    """The largest difference in seconds; fails if the lengths differ."""
    return max(abs(float(a) - float(b)) for a, b in zip(found, wanted, strict=True))
