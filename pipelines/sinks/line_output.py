"""LineOutput: writes whole lines into a file, a pipe or a terminal; a stop ends a blocked write.

A write into a full pipe blocks in the kernel until its reader reads, and no stop reaches it there. So a pipe, a socket or a
terminal is written in pieces of at most PIPE_BUF bytes, each after `poll` has reported room for it: by POSIX such a piece
neither blocks nor is split. A regular file is written at once, and cut back to its last whole line if a write fails.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.errors import Stopped

POLL_MS = 100
"""Time between two looks of a blocked write at the stop."""
OPEN_S = 0.05
"""Time between two attempts to open a FIFO without a reader."""


class LineOutput:
    """Writes lines to a file descriptor. Thread: one; any thread may set `stop`."""

    def __init__(self, descriptor: int, stop: threading.Event) -> None:
        """descriptor: belongs to the caller, which closes it."""
        self._descriptor = descriptor
        self._stop = stop
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._poll = select.poll()
        if not self._regular:
            self._poll.register(descriptor, select.POLLOUT)

    def write(self, lines: Sequence[bytes]) -> None:
        """Write all lines, each with its end of line.

        :raises OSError: if they cannot be written; a regular file then ends after its last whole line.
        :raises Stopped: if `stop` was set while the reader read nothing.
        """
        if self._regular:
            self._write_file(b"".join(lines))
        else:
            for piece in _pieces(lines):
                self._write_piece(piece)

    def _write_file(self, data: bytes) -> None:
        start = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, start + data.rfind(b"\n", 0, written) + 1)
            raise

    def _write_piece(self, piece: bytes) -> None:
        while piece:
            while not self._poll.poll(POLL_MS):
                if self._stop.is_set():
                    raise Stopped
            try:
                piece = piece[os.write(self._descriptor, piece) :]
            except BlockingIOError:
                continue  # another process writes to the same pipe and was faster


def _pieces(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The lines in pieces of at most PIPE_BUF bytes: as many whole lines as fit; a longer line in several pieces."""
    piece = b""
    for line in lines:
        if len(piece) + len(line) > select.PIPE_BUF:
            if piece:
                yield piece
            piece = b""
        while len(line) > select.PIPE_BUF:
            yield line[: select.PIPE_BUF]
            line = line[select.PIPE_BUF :]
        piece += line
    if piece:
        yield piece


def opened_for_lines(path: Path, stop: threading.Event) -> int:
    """Open `path` for writing: a new or emptied file, a device, or a FIFO as soon as it has a reader. Returns the descriptor.

    :raises OSError: if it cannot be opened.
    :raises Stopped: if `stop` was set while a FIFO had no reader.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if not path.is_fifo():
        return os.open(path, flags, 0o666)
    while True:
        try:
            return os.open(path, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        if stop.wait(OPEN_S):
            raise Stopped
