"""A sink that takes everything and keeps nothing: for measuring and for lanes that only log."""

from __future__ import annotations

from pipelines.frame import Frame, Picture


class NullSink:
    """Accepts every picture."""

    written = 0

    def show(self, frame: Frame, picture: Picture) -> None:
        """Nothing to do."""

    def close(self, complete: bool) -> None:
        """Nothing to finish."""
