"""A video file, or anything else that FFmpeg reads and that has an end."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from av.container import InputContainer

from pipelines.errors import SourceError
from pipelines.files import file_address
from pipelines.frame import Capture
from pipelines.sources.decode import decoded, stream_info
from pipelines.sources.opening import Limits, opened
from pipelines.sources.source import Watch
from pipelines.sources.timeline import Timeline

UNINDEXED = ("mpegts", "mpeg", "mpegvideo", "h264", "hevc", "rtsp", "flv", "hls")
"""Formats whose clock may be set or may start anew in the middle."""
POLL_S = 0.05


class FileSource:
    """Every frame of a file. `threads`: decoder threads, of the cores that are free for this file."""

    live = False

    def __init__(self, path: Path, *, threads: int = 1, limits: Limits | None = None) -> None:
        self.path = path
        self._threads = threads
        self._limits = limits or Limits()

    def frames(self, stop: threading.Event, watch: Watch) -> Iterator[Capture]:
        with ExitStack() as stack:
            pipe = _pipe(self.path, stop, self._limits.open_s)
            if pipe is not None:
                stack.enter_context(pipe)
            container, stream = stack.enter_context(
                opened(file_address(self.path), stop=stop, limits=self._limits, options=LOCAL, file=pipe)
            )
            sound = str(self.path) if pipe is None and container.streams.audio else None
            info = stream_info(stream, sound)
            timeline = Timeline(info, leaps=indexed(container))
            packets = container.demux(stream)
            empty = True
            for capture in decoded(
                packets, stream, stop=stop, watch=watch, info=info, timeline=timeline, threads=self._threads
            ):
                empty = False
                yield capture
            if empty and not stop.is_set():
                raise SourceError(f"cannot read {str(self.path)!r}: no picture in it", permanent=True)


LOCAL = {"protocol_whitelist": "file,crypto,data,pipe"}
"""A playlist on the disk may name other files on the disk, nothing on the network."""


def indexed(container: InputContainer) -> bool:
    """Whether the container keeps an index of true times."""
    return not any(name in UNINDEXED for name in container.format.name.split(","))


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
    with opened(file_address(path), stop=threading.Event(), limits=Limits(), options=LOCAL):
        pass


class _Pipe:
    """A FIFO as FFmpeg reads it, with a time limit: opening one that nobody writes could not be interrupted."""

    def __init__(self, path: Path, stop: threading.Event, limit_s: float) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._stop = stop
        self._limit_s = limit_s

    def read(self, size: int) -> bytes:
        waited_s = 0.0
        while not self._stop.is_set() and waited_s < self._limit_s:
            ready, _, _ = select.select([self._fd], [], [], POLL_S)
            if not ready:
                waited_s += POLL_S
                continue
            # Readable and empty is the end: somebody had opened the other side and has closed it.
            return os.read(self._fd, size)
        return b""

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)


def _pipe(path: Path, stop: threading.Event, limit_s: float) -> Any:
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            return _Pipe(path, stop, limit_s)
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {error.strerror}", permanent=True) from None
    return None
