"""The three roles at the end of a lane. A lane has any number of sinks, at most one screen, at most one log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pipelines.frame import Frame, Picture, Result


class Sink(Protocol):
    """A required output of one stream: every shown frame goes in. Owned by whoever made it, who closes it."""

    written: int
    """Frames that it accepted. Before the first one, and at nought again since it was removed or replaced, what stands in
    its place is not its own."""

    def show(self, frame: Frame, picture: Picture) -> None:
        """Accept one annotated picture (upright, even size). Thread: the stream's lane.

        :raises SinkError: if it cannot be written.
        """

    def close(self, complete: bool) -> None:
        """Finish the output. `complete`: the stream came to its own end. Closing twice is fine.

        :raises SinkError: if it cannot be finished.
        """


Look = Callable[[], Picture]
"""Gives the picture to show, annotated at that moment if nobody needed it before. Thread: whoever shows it."""


class Screen(Protocol):
    """A lossy output shared by all streams: it takes the newest picture of each and says what became of every one."""

    def offer(self, frame: Frame, look: Look, ended: Callable[[float | None], None]) -> None:
        """Never blocks. Thread: the stream's lane.

        `look` is called only if the picture is drawn: of a file that runs at 3000 frames/s few are.
        `ended` is called exactly once for each offer, in whatever thread: with `time.monotonic()` after the draw, or
        with None if a newer picture of the stream replaced it or the screen was closed.
        """


class Log(Protocol):
    """Takes the result of every captured frame, shown or not, in frame order within a stream. Shared by all streams."""

    written: int
    """Results that it accepted; see `Sink`."""

    def write(self, result: Result) -> None:
        """Thread: any, one at a time within a stream. After the close it changes nothing.

        :raises SinkError: if it cannot be written; once, whatever is written afterwards.
        """

    def close(self) -> None:
        """Flush and close. Closing twice is fine.

        :raises SinkError: if the last of it cannot be written, unless `write` has raised already.
        """
