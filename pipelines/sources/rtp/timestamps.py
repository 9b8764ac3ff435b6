"""RTP timestamps as a clock that does not wrap."""

from __future__ import annotations

WRAP = 1 << 32
HALF = 1 << 31


class Unwrapped:
    """Makes 32-bit timestamps one continuous count. Steps of less than half the circle go either way: B-frames go back."""

    __slots__ = ("_after", "_count", "_highest", "_last")

    def __init__(self) -> None:
        self._last: int | None = None
        self._count = self._highest = 0
        self._after: int | None = None

    def extend(self, timestamp: int) -> int:
        """`timestamp` (32 bits) on the count that began with the first one. May be negative."""
        if self._last is not None:
            self._count += (timestamp - self._last + HALF) % WRAP - HALF
        elif self._after is not None:
            self._count = self._highest + self._after
        else:
            self._count = self._highest = timestamp
        self._last = timestamp
        self._highest = max(self._highest, self._count)
        return self._count

    def restart(self, after: int) -> None:
        """The timestamps begin anywhere from now on: the next one is `after` ticks behind the highest so far."""
        if self._last is not None:
            self._last, self._after = None, after
