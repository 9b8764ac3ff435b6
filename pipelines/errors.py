"""The exceptions that Watchline itself raises.

Each message is one sentence for a person and names the given value, the allowed values, and the remedy. Any other
exception that escapes a thread is a bug; it is raised at the top with the thread's name as a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pipelines.frame import Cause


class WatchlineError(Exception):
    """Base of all errors that carry a message for the person at the command line."""


class UsageError(WatchlineError):
    """A request that cannot be met: unknown model, impossible output, wrong value. Raised before the first frame."""


class SourceError(WatchlineError):
    """A source could not be opened or read.

    permanent: no retry can succeed (malformed URL, unknown host, 401, 403, 404, not a video).
    denied: the credentials were refused (401, 403); the camera may accept them later.
    """

    def __init__(self, message: str, *, permanent: bool = False, denied: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.denied = denied

    def without_traceback(self) -> SourceError:
        """This error without its traceback, context and cause.

        Call it before an error is stored: its traceback refers to every stack frame and so to the session's decoder and
        pictures, 7 MB or more. A session that stores its own error would even keep itself alive.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class SinkError(WatchlineError):
    """An output could not be written: disk full, container refused, folder gone."""


class EngineError(WatchlineError):
    """The engine broke its contract: wrong number of rows, values that are not numbers."""


class EngineLost(EngineError):
    """The engine and all batches given to it are lost: its process died, or has not answered within its time limit."""


class Stopped(Exception):
    """A start was stopped before it finished. This is not a failure: the caller asked for the stop."""


class Dropped(Exception):
    """The outcome of a dropped frame; `cause` is the reason that the ledger counts."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


class Refused(Exception):
    """A request was refused immediately.

    why: "full" if the queue is full, "memory" if the pictures in work use all the memory that they may, "deadline" if the
    request could not be answered before its deadline, "no_worker" if no worker is ready.
    retry_after_s: seconds until the same request would be accepted if no other arrives.
    """

    def __init__(self, retry_after_s: float, why: Literal["full", "memory", "deadline", "no_worker"]) -> None:
        super().__init__(f"refused: {why}; try again in {retry_after_s:.3f} s")
        self.retry_after_s = retry_after_s
        self.why = why


def reason(error: BaseException) -> str:
    """The reason of an error in a few words: the system's text if there is one, because it does not contain the file name or
    address that libraries put into their own; else the first line of the error's text; else the name of its class."""
    text = getattr(error, "strerror", None) or str(error)
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)
