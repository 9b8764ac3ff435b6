"""The few kinds of error that Watchline raises itself.

Each message is one sentence for a person: what was given, what is allowed, what to do. Anything else that
escapes a thread is a fault of the program and comes out at the top with the thread's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pipelines.frame import Cause


class WatchlineError(Exception):
    """Base of all errors that carry a message for the person at the command line."""


class UsageError(WatchlineError):
    """What was asked for cannot be done: unknown model, impossible output, wrong value. Known before the first frame."""


class SourceError(WatchlineError):
    """A source could not be opened or read.

    `permanent` says that no retry can mend it (malformed URL, unknown host, 401, 403, 404, not a video);
    `denied` narrows it to refused credentials (401, 403), which a camera may mend later.
    """

    def __init__(self, message: str, *, permanent: bool = False, denied: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.denied = denied

    def bare(self) -> SourceError:
        """The same error without the way that it came. Who keeps an error keeps every frame of that way, and with them the
        session's decoder and pictures, 7 MB or more; a session that keeps its own error even keeps itself."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class SinkError(WatchlineError):
    """An output could not be written: disk full, container refused, folder gone."""


class EngineError(WatchlineError):
    """The engine broke its contract: wrong number of rows, values that are not numbers."""


class EngineLost(EngineError):
    """The engine is gone with all that it was given: its process died, or answered nothing for far too long."""


class Stopped(Exception):
    """What was being begun was told to stop before it was ready. No error: whoever told it knows why."""


class Dropped(Exception):
    """The outcome of a frame that will not be shown; `cause` is the ledger's."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


class Refused(Exception):
    """A request that was not taken, at once: so many wait already ("full"), pictures in work hold all the memory that they may
    ("memory"), it could not be answered before its deadline ("deadline"), or no worker is ready ("no_worker").
    `retry_after_s`: when the same request would be taken, if nothing else came.
    """

    def __init__(self, retry_after_s: float, why: Literal["full", "memory", "deadline", "no_worker"]) -> None:
        super().__init__(f"refused: {why}; try again in {retry_after_s:.3f} s")
        self.retry_after_s = retry_after_s
        self.why = why


def reason(error: BaseException) -> str:
    """What went wrong in a few words: those of the system, without the name or the address that libraries put into their own
    text; else the first line of that text; else the kind of error."""
    said = getattr(error, "strerror", None) or str(error)
    return next((line for line in said.splitlines() if line.strip()), type(error).__name__)
