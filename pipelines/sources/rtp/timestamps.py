"""RTP timestamps as a clock that does not wrap."""

from __future__ import annotations

WRAP = 1 << 32
HALF = 1 << 31


class Unwrapped:
    """Makes 32-bit timestamps one continuous count. Steps of less than half the circle go either way: B-frames go back.

    One object lives as long as one numbering does: after a restart the timestamps begin anywhere.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: int | None = None

    def extend(self, timestamp: int) -> int:
        """`timestamp` (32 bits) on the count that began with the first one. May be negative."""
        if self._last is None:
            self._last = timestamp
        else:
            self._last += (timestamp - self._last + HALF) % WRAP - HALF
        return self._last
