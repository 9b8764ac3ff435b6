"""Pictures as one stream: each file is a frame, in the order of the names."""

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
from pipelines.sources.opening import PICTURES, Timeouts, opened
from pipelines.watch import Watch

SUFFIXES = frozenset(PICTURES)
ALONE = {"protocol_whitelist": "none"}
"""A playlist that has the name of a picture opens nothing."""


class ImagesSource:
    """One frame for each picture file, the first one of an animation (which is a film: see `animated`). A file that is no
    picture is counted and passed over.

    Pictures have no time: `pts_s` is None. An annotated video shows each for a second.
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
                watch.fault(f"{str(path)!r} is truncated: its picture has no end; what is there was read")
            named = replace(info, file=str(path.relative_to(folder)))
            yield Capture(pixels.picture(frame, aspect), None, arrived_s, self._clock(), named, frame.is_corrupt)


def read_picture(path: Path, stop: threading.Event) -> tuple[av.VideoFrame, Fraction | None]:
    """Decode a picture file and give its sample aspect too. The content decides what it is, not the name, and no sign in
    the name is a pattern.

    :raises SourceError: if it is none.
    """
    name, limits = file_address(path), Timeouts()
    try:
        with (
            path.open("rb") as file,
            opened(name, stop=stop, limits=limits, options=ALONE, file=file, most_pixels=decoder_limits.PICTURE_PIXELS) as (
                container,
                stream,
            ),
        ):
            stream.codec_context.thread_count = 1
            stream.codec_context.options = decoder_limits.pixels(decoder_limits.PICTURE_PIXELS)
            frame = _first(demuxed(container, stream), path)
            if frame is not None:
                return frame, stream.sample_aspect_ratio
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {reason(error)}", permanent=True) from None
    raise SourceError(f"cannot read {str(path)!r}: no picture in it", permanent=True)


def _cut(path: Path) -> bool:
    """Whether the end of a picture is missing that FFmpeg gives out as if it were whole: it fills the rest with grey."""
    try:
        return path.is_file() and without_end(path)
    except OSError:
        return False  # taken away since it was read


def _first(packets: Iterable[Packet], path: Path) -> av.VideoFrame | None:
    """The first picture of the packets.

    :raises SourceError: if they are none.
    """
    try:
        for packet in packets:
            for frame in packet.decode():
                assert isinstance(frame, av.VideoFrame)
                return frame
    except av.error.InvalidDataError:
        what = f"no picture that can be decoded, or one of more than {decoder_limits.PICTURE_PIXELS} pixels"
        raise SourceError(f"cannot read {str(path)!r}: {what}", permanent=True) from None
    return None


def animated(path: Path) -> bool:
    """Whether a picture file is a film: a GIF or PNG of more than one picture, or one that says that it is.

    A file that cannot be read is none; reading it as a picture will say why.
    """
    if not path.is_file():
        return False  # opening a pipe would wait for its writer
    try:
        with path.open("rb") as file:
            head = file.read(8)
            return _animated_png(file) if head == b"\x89PNG\r\n\x1a\n" else head[:4] == b"GIF8" and _animated_gif(file)
    except (OSError, SourceError):
        return False


def _animated_png(file: BinaryIO) -> bool:
    """An animation says so before its first picture data."""
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind in (b"acTL", b"IDAT"):
            return bool(kind == b"acTL")
        file.seek(length + 4, 1)
    return False


def _animated_gif(file: BinaryIO) -> bool:
    file.seek(0)
    with opened("a GIF", stop=threading.Event(), limits=Timeouts(), file=file) as (container, stream):
        return sum(1 for packet in islice(demuxed(container, stream), 2) if packet.size) == 2
