"""The three roles behind a lane: required sinks and screens take pictures, consumers take results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, Protocol

from pipelines.frame import Frame, Picture, Result


class Sink(Protocol):
    """A required output of one stream: it gets every shown frame. Its maker owns it and closes it."""

    written: int
    """Frames that it accepted. 0 before the first one, and again after its file was removed or replaced."""

    def show(self, frame: Frame, picture: Picture) -> None:
        """Accept one annotated picture (upright, even size). Thread: the stream's lane.

        :raises SinkError: if it cannot be written.
        """

    def close(self, complete: bool) -> None:
        """Finish the output. `complete`: the stream came to its own end. Closing twice is fine.

        :raises SinkError: if it cannot be finished.
        """


Look = Callable[[], Picture]
"""Gives the picture to show. Unless a sink needed the annotated picture before, it is drawn now, in the calling thread."""


class Screen(Protocol):
    """A lossy output shared by all streams: it takes the newest picture of each stream and reports the end of every offer."""

    def offer(self, frame: Frame, look: Look, ended: Callable[[float | None], None]) -> None:
        """Never blocks. Thread: the stream's lane.

        `look` is called only if the picture is drawn: a file that runs at 3000 frames/s has few of them drawn.
        `ended` is called exactly once for each offer, in any thread: with `time.monotonic()` after the draw, or
        with None if a newer picture of the stream replaced it or the screen was closed.
        """

    def forget(self, stream: str) -> None:
        """The stream was removed: show nothing of it any more. Any thread; an unknown name is fine."""


Policy = Literal["block", "newest"]
"""block: the consumer gets every result; when its channel is full, lanes wait. newest: it gets the newest result of each
stream, the others are counted as skipped."""


class Consumer:
    """Base class: takes the results of all streams, in frame order within a stream, in a thread of its own.

    One file with `take` is a consumer. It cannot delay another consumer, a window or a stop.
    """

    name: str = "consumer"
    """Names its thread, its faults and its figures."""
    policy: ClassVar[Policy] = "block"

    def take(self, results: Sequence[Result]) -> None:
        """Handle one or more results, each exactly once. Thread: consume:NAME.

        :raises SinkError: if it cannot go on. It gets no further results; any other error has the same effect.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """Make a blocked `take` return soon: the session stops and no longer waits. Any thread."""

    def close(self) -> None:
        """Finish after the last result. Thread: consume:NAME.

        :raises SinkError: if the last results cannot be kept.
        """
