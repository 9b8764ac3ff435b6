"""Standard output and standard error, which may be closed, full, or a pipe without a reader.

Standard output is for results alone. The output of libraries, from Python or from native code, goes to standard error. Text
that cannot be written to standard error is lost: a run continues without it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from pipelines.errors import SinkError, UsageError, reason
from pipelines.redact import printable


class StandardOutput:
    """Standard output: a text stream for sinks (`write`, `flush`), and lines for people (`put`)."""

    def __init__(self, stream: TextIO | None) -> None:
        """stream: None if standard output is closed."""
        self._stream = stream

    def require(self, user: str) -> None:
        """user: the option or command that needs standard output.

        :raises UsageError: if standard output is closed.
        """
        if self._stream is None:
            raise UsageError(f"{user} needs standard output, which is closed")

    def write(self, text: str) -> int:
        """:raises OSError: if it cannot be written."""
        return self._opened().write(text)

    def flush(self) -> None:
        """:raises OSError: if it cannot be written."""
        self._opened().flush()

    def fileno(self) -> int:
        """The descriptor of standard output.

        :raises OSError: if it is closed or has none.
        """
        return self._opened().fileno()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def put(self, text: str = "") -> None:
        """Print a text for people: redacted, without control characters, with options worded as flags.

        :raises SinkError: if it cannot be written.
        """
        from app.terminal.wording import worded  # --help needs no options' declarations

        try:
            lines = "\n".join(printable(worded(line)) for line in text.split("\n"))
            self.write(lines.encode(self.encoding, "backslashreplace").decode(self.encoding) + "\n")
            self.flush()
        except OSError as error:
            raise SinkError(f"cannot write to standard output: {reason(error)}") from error

    def _opened(self) -> TextIO:
        if self._stream is None:
            raise OSError(errno.EBADF, "it is closed")
        return self._stream


class _Forgiving:
    """A text stream that ignores write errors."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


@contextmanager
def claimed(*, for_good: bool) -> Iterator[StandardOutput]:
    """Keep standard output for results. for_good: do not restore the streams afterwards, because the process ends soon."""
    before: Any = sys.stdout, sys.stderr
    _occupy()
    sys.stderr = _Forgiving(sys.stderr or open(os.devnull, "w"))  # noqa: SIM115
    kept = _kept(before[0])
    sys.stdout = sys.stderr
    try:
        yield StandardOutput(kept or before[0])
    finally:
        if not for_good:
            sys.stdout, sys.stderr = before
            if kept is not None:
                os.dup2(kept.fileno(), before[0].fileno())
                kept.close()


def _occupy() -> None:
    """Open each closed descriptor of 0, 1 and 2. The next opened file would get it otherwise, and printed text with it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _kept(stdout: TextIO | None) -> TextIO | None:
    """A new stream to the target of standard output; its descriptor now leads to standard error. None without a descriptor."""
    try:
        number = stdout.fileno() if stdout is not None else None
    except OSError:
        return None
    if stdout is None or number is None:
        return None
    kept = open(os.dup(number), "w", encoding=stdout.encoding, errors=stdout.errors)  # noqa: SIM115 - lives on
    os.dup2(2, number)
    return kept


def say(text: str) -> None:
    """Print a text before standard output is claimed, as --help and --version do.

    :raises SystemExit: with 1 if it cannot be written; Python itself would end with a traceback, or 120.
    """
    results = StandardOutput(sys.stdout)
    try:
        results.put(text)
    except SinkError as error:
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with suppress(OSError):
            os.write(2, f"watchline: {error}\n".encode())
        raise SystemExit(1) from None
