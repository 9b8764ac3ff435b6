"""A video file, or anything else that FFmpeg reads and that has an end."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from pipelines.errors import SourceError, reason
from pipelines.frame import Capture, StreamInfo
from pipelines.media.local_files import LOCAL, file_address
from pipelines.media.packets import demuxed
from pipelines.sources.decode import decoded, stream_info
from pipelines.sources.files.playlist import check_playlist
from pipelines.sources.files.truncation import Extent, ts_cells, without_index
from pipelines.sources.files.ts_gaps import TsGaps
from pipelines.sources.media_time import Timeline
from pipelines.sources.opening import Timeouts, opened
from pipelines.watch import Watch

UNINDEXED = ("mpegts", "mpeg", "mpegvideo", "h264", "hevc", "flv", "hls")
"""Formats whose clock may be set or may start anew in the middle."""
UNTIMED = ("avi",)
"""Formats that count packets, in the order of decoding, and know no time of presentation."""
SEVERAL = ("hls", "concat", "dash", "image2", "imf")
"""Formats that only name other files."""
UNFRAMED = ("mpegts", "mpeg", "mjpeg", "jpeg_pipe")
"""Formats of which FFmpeg gives out half a picture as if it were whole; many a decoder does not mind."""
LOSSY = ("mpegts",)
"""Formats in which a flagged packet may also be one that was lost on the way."""
POLL_S = 0.05


class FileSource:
    """Every frame of a file. `threads`: decoder threads, of the cores that are free for this file."""

    live = False

    def __init__(self, path: Path, *, threads: int = 1, limits: Timeouts | None = None) -> None:
        self.path = path
        self._threads = threads
        self._limits = limits or Timeouts()

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        check_playlist(self.path)
        with ExitStack() as stack:
            pipe = _pipe(self.path, stop, self._limits.open_s)
            if pipe is not None:
                stack.enter_context(pipe)
            extent = Extent(self.path) if self.path.is_file() else None
            container, stream = stack.enter_context(_opened(self.path, stop, self._limits, pipe))
            if pipe is not None:
                pipe.limit_s = self._limits.read_s
            if is_one_of(container, SEVERAL):
                extent = None
            sound = str(self.path) if pipe is None and container.streams.audio else None
            info = stream_info(stream, sound)
            packets = demuxed(container, stream) if extent is None else extent.within(demuxed(container, stream))
            cells = ts_cells(self.path) if extent is not None and is_one_of(container, LOSSY) else None
            damage = TsGaps(self.path, cells, stream.id) if cells is not None else None
            if damage is not None:
                packets = _seen(packets, damage)
            unframed = is_one_of(container, UNFRAMED)
            empty = True
            for capture in decoded(
                packets,
                stream,
                stop=stop,
                watch=watch,
                info=info,
                timeline=timeline(info, container),
                threads=self._threads,
                gaps=lambda: unframed and extent is not None and extent.torn,
            ):
                empty = False
                yield capture
            if stop.is_set():
                return
            lost = extent.lost(lossy=is_one_of(container, LOSSY)) if extent is not None else None
            if empty:
                why = f", and it {lost}" if lost else ""
                raise SourceError(f"cannot read {str(self.path)!r}: no picture in it{why}", permanent=True)
            for what in (damage.lost() if damage is not None else None, lost):
                if what:
                    watch.fault(f"{str(self.path)!r} {what}")


def _seen(packets: Iterator[Packet], damage: TsGaps) -> Iterator[Packet]:
    for packet in packets:
        damage.packet(packet)
        yield packet


def is_one_of(container: InputContainer, names: Collection[str]) -> bool:
    """Whether the container's format has one of these names of FFmpeg's."""
    return any(name in names for name in container.format.name.split(","))


def timeline(info: StreamInfo, container: InputContainer) -> Timeline:
    """The timeline of a session, as its container's times can be trusted."""
    return Timeline(info, leaps=not is_one_of(container, UNINDEXED), presented=not is_one_of(container, UNTIMED))


@contextmanager
def _opened(
    path: Path, stop: threading.Event, limits: Timeouts, file: Any = None
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its video; what FFmpeg calls invalid data is explained where its container lets it be."""
    came = False  # what happens after the opening has been explained
    try:
        with opened(file_address(path), stop=stop, limits=limits, options=LOCAL, file=file) as both:
            came = True
            yield both
    except SourceError:
        if came or file is not None or not without_index(path):
            raise
        raise SourceError(
            f"cannot read {str(path)!r}: an incomplete file: its index (moov), which is written last, is missing; "
            "it was cut off or is still being written",
            permanent=True,
        ) from None


def check_file(path: Path) -> None:
    """Open and close: is it there, is it a video.

    :raises SourceError: if not.
    """
    if not path.exists():
        raise SourceError(f"no such file: {str(path)!r}; give an existing file, folder or address", permanent=True)
    if stat.S_ISFIFO(path.stat().st_mode):
        return  # reading from a pipe to see what comes would take it away
    if path.stat().st_size == 0 and path.is_file():
        raise SourceError(f"cannot read {str(path)!r}: the file is empty", permanent=True)
    check_playlist(path)
    with _opened(path, threading.Event(), Timeouts()) as (container, stream):
        if not any(packet.size for packet in demuxed(container, stream)):
            raise SourceError(f"cannot read {str(path)!r}: no picture in it", permanent=True)


class _Pipe:
    """A FIFO as FFmpeg reads it, with a time limit: opening one that nobody writes could not be interrupted."""

    def __init__(self, path: Path, stop: threading.Event, limit_s: float) -> None:
        self.limit_s = limit_s
        """How long the writer may be silent."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._stop = stop

    def read(self, size: int) -> bytes:
        """:raises TimeoutError: if nothing came in time: an end it is not."""
        end_s = time.monotonic() + self.limit_s
        while not self._stop.is_set():
            ready, _, _ = select.select([self._fd], [], [], POLL_S)
            if ready:
                # Readable and empty is the end: somebody had opened the other side and has closed it.
                return os.read(self._fd, size)
            if time.monotonic() > end_s:
                raise TimeoutError
        return b""

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


def _pipe(path: Path, stop: threading.Event, limit_s: float) -> _Pipe | None:
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            return _Pipe(path, stop, limit_s)
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {reason(error)}", permanent=True) from None
    return None
