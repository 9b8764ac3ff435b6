"""Local files: their addresses for FFmpeg, checks whether they can be written, and locks against other writers."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path

LOCAL = {"protocol_whitelist": "file,crypto,data"}
"""FFmpeg's option for files on the disk: a playlist among them may open local files, but nothing on the network."""


def file_address(path: Path | str) -> str:
    """A path in the form that FFmpeg needs, in which a colon, percent sign or dash has no special meaning."""
    return f"file:{path}"


Identity = tuple[int, int]
"""Device and inode of a regular file."""


def identity(file: Path | int) -> Identity | None:
    """The identity of the file that a path or an open descriptor refers to now; None if it is not a regular file.

    :raises OSError: if there is no such file.
    """
    found = os.stat(file)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def lost(path: Path, written: Identity | None) -> str | None:
    """Whether a file that is being written is still at `path`: "replaced" by another file, "removed", or None if it is there.

    written: the identity of the file at its opening; None if it is not regular. Call it before the file is closed: until
    then no other file can get its inode.
    """
    if written is None:
        return None
    try:
        return None if identity(path) == written else "replaced"
    except (FileNotFoundError, NotADirectoryError):
        return "removed"
    except OSError:
        return None  # the folder cannot be entered any more: nothing is known about the file


def try_to_write(path: Path, *, regular: bool = False) -> None:
    """Check that a file can be written at `path`. Creates and changes nothing.

    regular: refuse pipes and devices.

    :raises OSError: if it cannot be written.
    :raises ValueError: if the path is malformed (a null byte).
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        # Only creating a file shows whether one can be created there; this one has no name, or briefly another one.
        with tempfile.TemporaryFile(dir=path.parent):
            return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if stat.S_ISREG(mode):
        with Claim(path):
            pass
    elif regular:
        raise OSError(errno.EINVAL, "it is not a regular file")
    elif not os.access(path, os.W_OK):  # not by opening it: a pipe would block until it has a reader
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


class Claim:
    """A lock on a regular file until it is closed, so that two runs cannot write, and destroy, the same file.

    There is no lock on pipes and devices, nor on a file system without locks: then it does nothing.
    """

    def __init__(self, path: Path) -> None:
        """Creates the file if it does not exist; does not change its content.

        :raises OSError: if another run holds the lock, or the file cannot be opened.
        """
        self._fd: int | None = None
        if path.exists() and not path.is_file():
            return
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OSError(errno.EBUSY, "another run is writing it") from None
        except OSError:
            self.close()

    def close(self) -> None:
        """Release the lock. May be called more than once."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
