"""Extends 32-bit RTP timestamps to a count that does not wrap."""

from __future__ import annotations

WRAP = 1 << 32
HALF = 1 << 31


class Unwrapped:
    """Extends 32-bit timestamps to one continuous count. A step of less than 2**31 may go forward or, with B-frames, back."""

    __slots__ = ("_after", "_count", "_highest", "_last")

    def __init__(self) -> None:
        self._last: int | None = None
        self._count = self._highest = 0
        self._after: int | None = None

    def extend(self, timestamp: int) -> int:
        """The extended value of `timestamp` (32 bits). The first timestamp is its own value; later ones may be negative."""
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
        """Accept any timestamp next: its extended value is the highest so far plus `after` ticks."""
        if self._last is not None:
            self._last, self._after = None, after
