"""Picture files as one stream: each file is a frame, in the given order."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import av
import av.error
from av.packet import Packet

from pipelines.errors import SourceError, reason
from pipelines.frame import Capture, StreamInfo
from pipelines.media import decoder_limits
from pipelines.media.local_files import file_address
from pipelines.media.packets import demuxed
from pipelines.media.pixels import Pixels
from pipelines.sources.files.jpeg import without_end
from pipelines.sources.opening import Timeouts, opened
from pipelines.watch import Watch

NO_PROTOCOLS = {"protocol_whitelist": "none"}
"""FFmpeg's option for picture files: a playlist with the name of a picture can open nothing."""


class ImagesSource:
    """One frame for each picture file; of an animation only the first picture (animations are videos: see `animated`).

    A file that is not a picture is reported to the watch and skipped. Pictures have no time: `pts_s` is None. An annotated
    video shows each for one second.
    """

    live = False

    def __init__(self, paths: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        info = StreamInfo(rate=Fraction(1), frames=len(self._paths))
        folder = os.path.commonpath([p.parent for p in self._paths]) if self._paths else ""
        pixels = Pixels()
        for path in self._paths:
            if stop.is_set():
                return
            arrived_s = self._clock()
            try:
                frame, aspect = read_picture(path, stop)
                cut = _cut(path)
            except SourceError as error:
                watch.decode_error(str(error))
                watch.fault(str(error))
                continue
            if cut:
                watch.fault(f"{str(path)!r} is truncated: its picture has no end; the rest was read")
            named = replace(info, file=str(path.relative_to(folder)))
            yield Capture(pixels.picture(frame, aspect), None, arrived_s, self._clock(), named, frame.is_corrupt)


def read_picture(path: Path, stop: threading.Event) -> tuple[av.VideoFrame, Fraction | None]:
    """Decode a picture file: (frame, sample aspect). Its content decides the format, not its name; no character of the name is
    a wildcard.

    :raises SourceError: if it cannot be read or is not a picture; permanent.
    """
    name, limits, most = file_address(path), Timeouts(), decoder_limits.PICTURE_PIXELS
    try:
        with (
            path.open("rb") as file,
            opened(name, stop=stop, limits=limits, options=NO_PROTOCOLS, file=file, most_pixels=most) as (container, stream),
        ):
            stream.codec_context.thread_count = 1
            stream.codec_context.options = decoder_limits.pixels(most)
            frame = _first(demuxed(container, stream), path)
            if frame is not None:
                return frame, stream.sample_aspect_ratio
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {reason(error)}", permanent=True) from None
    raise SourceError(f"cannot read {str(path)!r}: no picture in it", permanent=True)


def _cut(path: Path) -> bool:
    """Whether a file is a JPEG without its end. FFmpeg decodes it without an error and fills the rest with grey."""
    try:
        return path.is_file() and without_end(path)
    except OSError:
        return False  # the file was removed after it was read


def _first(packets: Iterable[Packet], path: Path) -> av.VideoFrame | None:
    """The first picture of the packets; None if they have none.

    :raises SourceError: if they cannot be decoded, or the picture is too large.
    """
    try:
        for packet in packets:
            for frame in packet.decode():
                assert isinstance(frame, av.VideoFrame)
                return frame
    except av.error.InvalidDataError:
        problem = f"no picture that can be decoded, or one of more than {decoder_limits.PICTURE_PIXELS} pixels"
        raise SourceError(f"cannot read {str(path)!r}: {problem}", permanent=True) from None
    return None


def animated(path: Path) -> bool:
    """Whether a picture file is an animation: a GIF with more than one picture, or a PNG with an animation header.

    False if it cannot be read: reading it as a picture raises the error then.
    """
    if not path.is_file():
        return False  # opening a pipe would block until it has a writer
    try:
        with path.open("rb") as file:
            head = file.read(8)
            return _animated_png(file) if head == b"\x89PNG\r\n\x1a\n" else head[:4] == b"GIF8" and _animated_gif(file)
    except (OSError, SourceError):
        return False


def _animated_png(file: BinaryIO) -> bool:
    """Whether a PNG has an animation chunk (acTL); it must stand before the first picture data."""
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind in (b"acTL", b"IDAT"):
            return bool(kind == b"acTL")
        file.seek(length + 4, 1)
    return False


def _animated_gif(file: BinaryIO) -> bool:
    """Whether a GIF has at least two pictures."""
    file.seek(0)
    with opened("a GIF", stop=threading.Event(), limits=Timeouts(), file=file) as (container, stream):
        return sum(1 for packet in islice(demuxed(container, stream), 2) if packet.size) == 2
