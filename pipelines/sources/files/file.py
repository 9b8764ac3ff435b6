"""Video files and FIFOs as sources."""

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
from pipelines.sources.files.truncation import TruncationCheck, ts_layout, without_index
from pipelines.sources.files.ts_gaps import TsGaps
from pipelines.sources.media_time import Timeline
from pipelines.sources.opening import Timeouts, opened
from pipelines.watch import Watch

UNINDEXED = ("mpegts", "mpeg", "mpegvideo", "h264", "hevc", "flv", "hls")
"""Formats in which the clock may be set or restarted in the middle."""
UNTIMED = ("avi",)
"""Formats that number packets in decoding order and have no presentation times."""
INDIRECT = ("hls", "concat", "dash", "image2", "imf")
"""Formats that only refer to other files."""
UNFRAMED = ("mpegts", "mpeg", "mjpeg", "jpeg_pipe")
"""Formats for which FFmpeg returns an incomplete picture without a flag; many decoders accept it without an error."""
LOSSY = ("mpegts",)
"""Formats in which a packet may be flagged because of a transmission loss, not only because the file is cut off."""
POLL_S = 0.05


class FileSource:
    """All frames of a video file. threads: of the decoder. limits: for opening and reading."""

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
            truncation = TruncationCheck(self.path) if self.path.is_file() else None
            container, stream = stack.enter_context(_opened(self.path, stop, self._limits, pipe))
            if pipe is not None:
                pipe.limit_s = self._limits.read_s
            if is_one_of(container, INDIRECT):
                truncation = None
            sound = str(self.path) if pipe is None and container.streams.audio else None
            info = stream_info(stream, sound)
            packets = demuxed(container, stream) if truncation is None else truncation.within(demuxed(container, stream))
            layout = ts_layout(self.path) if truncation is not None and is_one_of(container, LOSSY) else None
            gaps = TsGaps(self.path, layout, stream.id) if layout is not None else None
            if gaps is not None:
                packets = _recorded(packets, gaps)
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
                gaps=lambda: unframed and truncation is not None and truncation.last_is_cut,
            ):
                empty = False
                yield capture
            if stop.is_set():
                return
            lost = truncation.lost(lossy=is_one_of(container, LOSSY)) if truncation is not None else None
            if empty:
                why = f", and it {lost}" if lost else ""
                raise SourceError(f"cannot read {str(self.path)!r}: no picture in it{why}", permanent=True)
            for loss in (gaps.lost() if gaps is not None else None, lost):
                if loss:
                    watch.fault(f"{str(self.path)!r} {loss}")


def _recorded(packets: Iterator[Packet], gaps: TsGaps) -> Iterator[Packet]:
    """The same packets; each is also given to the detector of gaps."""
    for packet in packets:
        gaps.packet(packet)
        yield packet


def is_one_of(container: InputContainer, names: Collection[str]) -> bool:
    """Whether one of FFmpeg's names of the container's format is among `names`."""
    return any(name in names for name in container.format.name.split(","))


def timeline(info: StreamInfo, container: InputContainer) -> Timeline:
    """The timeline of a session, with the checks that the container's format needs."""
    return Timeline(info, leaps=not is_one_of(container, UNINDEXED), presented=not is_one_of(container, UNTIMED))


@contextmanager
def _opened(
    path: Path, stop: threading.Event, limits: Timeouts, file: Any = None
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its video stream. If it is an MP4 without an index, the error says so.

    file: an open FIFO to read instead of the path.
    """
    is_open = False  # errors after the opening already have a message
    try:
        with opened(file_address(path), stop=stop, limits=limits, options=LOCAL, file=file) as both:
            is_open = True
            yield both
    except SourceError:
        if is_open or file is not None or not without_index(path):
            raise
        raise SourceError(
            f"cannot read {str(path)!r}: an incomplete file: its index (moov), which is written last, is missing; "
            "it was cut off or is still being written",
            permanent=True,
        ) from None


def check_file(path: Path) -> None:
    """Check that a file exists and is a video, by opening it. A FIFO is not opened.

    :raises SourceError: if it is missing, empty, not a video, or a playlist with a name that is not allowed.
    """
    if not path.exists():
        raise SourceError(f"no such file: {str(path)!r}; give an existing file, folder or address", permanent=True)
    if stat.S_ISFIFO(path.stat().st_mode):
        return  # a check would consume the data of the pipe
    if path.stat().st_size == 0 and path.is_file():
        raise SourceError(f"cannot read {str(path)!r}: the file is empty", permanent=True)
    check_playlist(path)
    with _opened(path, threading.Event(), Timeouts()) as (container, stream):
        if not any(packet.size for packet in demuxed(container, stream)):
            raise SourceError(f"cannot read {str(path)!r}: no picture in it", permanent=True)


class _Pipe:
    """A FIFO as a file object for FFmpeg, with a time limit. (FFmpeg's own open of a FIFO without a writer could not be
    interrupted.)"""

    def __init__(self, path: Path, stop: threading.Event, limit_s: float) -> None:
        self.limit_s = limit_s
        """Seconds that `read` waits for data."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._stop = stop

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end of the data, or if the stop is set.

        :raises TimeoutError: if there is no data within the time limit; the end of the data is not reached then.
        """
        end_s = time.monotonic() + self.limit_s
        while not self._stop.is_set():
            ready, _, _ = select.select([self._fd], [], [], POLL_S)
            if ready:
                # Readable without data is the end: a writer had opened the other side and has closed it.
                return os.read(self._fd, size)
            if time.monotonic() > end_s:
                raise TimeoutError
        return b""

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


def _pipe(path: Path, stop: threading.Event, limit_s: float) -> _Pipe | None:
    """The opened FIFO at `path`; None if the path is not a FIFO."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            return _Pipe(path, stop, limit_s)
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {reason(error)}", permanent=True) from None
    return None
