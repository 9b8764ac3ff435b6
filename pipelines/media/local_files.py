"""Files: how FFmpeg is told of them, whether one can be written, and by whom."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path

LOCAL = {"protocol_whitelist": "file,crypto,data"}
"""FFmpeg's option for what a file on the disk may lead to, if it is a playlist: nothing on the network."""


def file_address(path: Path | str) -> str:
    """A path as FFmpeg must get it: no colon, percent or dash in a name means anything."""
    return f"file:{path}"


Identity = tuple[int, int]
"""Device and inode of a regular file."""


def identity(of: Path | int) -> Identity | None:
    """Which file a path or an open descriptor is now; None of what is no regular file.

    :raises OSError: if there is none.
    """
    found = os.stat(of)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def lost(path: Path, written: Identity | None) -> str | None:
    """What became of the regular file that is being written at `path`, if it is no longer there. Call it before the close:
    until then no other file can have its inode."""
    if written is None:
        return None
    try:
        return None if identity(path) == written else "replaced"
    except (FileNotFoundError, NotADirectoryError):
        return "removed"
    except OSError:
        return None  # a folder that may not be entered any more says nothing about the file


def try_to_write(path: Path, *, regular: bool = False) -> None:
    """See whether a file can be written at `path`; with `regular`, neither a pipe nor a device. Creates and changes nothing.

    :raises OSError, ValueError: if not.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        # Whether a file can be made there is only known by making one: it has no name, or another one for a moment.
        with tempfile.TemporaryFile(dir=path.parent):
            return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if stat.S_ISREG(mode):
        with Claim(path):
            pass
    elif regular:
        raise OSError(errno.EINVAL, "it is not a regular file")
    elif not os.access(path, os.W_OK):  # opening a pipe would wait for its reader
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


class Claim:
    """Keeps other runs from writing a regular file, until it is closed: two that write one would each destroy the other's.
    What is no regular file has no such owner, nor has one where the file system knows no locks."""

    def __init__(self, path: Path) -> None:
        """Makes the file if it is not there, and leaves its content as it is.

        :raises OSError: if another run has it, or it cannot be opened.
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
        """Let others write it. More than once is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
