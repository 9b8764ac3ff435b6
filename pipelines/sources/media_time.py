"""Presentation times as a person expects them: from 0, strictly rising, whatever the container says."""

from __future__ import annotations

from fractions import Fraction

from pipelines.frame import DEFAULT_RATE, StreamInfo

JUMP_S = 10.0
"""A step ahead of more than this is a broken clock in a format without an index: a stream's clock was set, or two
recordings were joined. In a file with an index it is a long still picture."""
LATE_STEP = Fraction(1, 100)
"""Of a period: by so much time rises for a picture that comes too late. Where a key picture is missing, decoders hand those
of the next group out before those of the last one; a period for each would let the clock run ahead for good."""


class Timeline:
    """Media time of one session.

    A frame without a time gets the next one by the rate. A time that goes back, or leaps ahead where `leaps` are not
    believed, goes on one period after the last; the offset that this needs holds for what follows, and is taken back as
    soon as the first clock fits again: one wrong stamp shifts nothing. Nor do pictures that come too late.

    presented: False if the container holds no times of presentation. FFmpeg makes some up from those of decoding then, and
    wrong ones where it does not know which packet is shown when (H.264 with B-frames in AVI).
    """

    def __init__(self, info: StreamInfo, *, leaps: bool, presented: bool = True) -> None:
        self._time_base = info.time_base
        self._period = 1 / (info.rate or DEFAULT_RATE)
        self._stamps = _Stamps(presented)
        self._leaps = leaps
        self._origin: Fraction | None = None
        self._offset = Fraction(0)
        self._last: Fraction | None = None

    def seconds(self, pts: int | None, dts: int | None = None, *, late: bool = False) -> float | None:
        """Seconds since the session's first frame. dts: of the packet after which the frame came out, which rises where
        pictures are shown in another order than they are decoded, too. late: if its time goes back, then because the picture
        comes too late."""
        self._last = self._next(self._stamps.best(pts, dts), late)
        return float(self._last)

    def _next(self, pts: int | None, late: bool) -> Fraction:
        expected = self._last + self._period if self._last is not None else Fraction(0)
        if pts is None or self._time_base is None:
            return expected
        stamp = pts * self._time_base
        if self._origin is None:
            self._origin = stamp - expected
        for offset in (Fraction(0), self._offset):
            t = stamp - self._origin + offset
            if self._fits(t):
                self._offset = offset
                return t
        if late and self._last is not None and t <= self._last:
            return self._last + LATE_STEP * self._period
        self._offset = expected - (stamp - self._origin)
        return expected

    def _fits(self, t: Fraction) -> bool:
        if self._last is None:
            return True
        return t > self._last and (self._leaps or t - self._last <= JUMP_S)


class _Stamps:
    """Which of a frame's two times is to be believed: that of presentation until it has gone back more often than the other
    one (FFmpeg's `guess_correct_pts`)."""

    def __init__(self, presented: bool) -> None:
        self._presented = presented
        self._faults = {"pts": 0, "dts": 0}
        self._last: dict[str, int] = {}

    def best(self, pts: int | None, dts: int | None) -> int | None:
        """The time to go by; None if there is none."""
        if not self._presented:
            return dts
        self._look("dts", dts)
        self._look("pts", pts)
        if pts is not None and (dts is None or self._faults["pts"] <= self._faults["dts"]):
            return pts
        return dts

    def _look(self, name: str, stamp: int | None) -> None:
        if stamp is None:
            return
        self._faults[name] += name in self._last and stamp <= self._last[name]
        self._last[name] = stamp
