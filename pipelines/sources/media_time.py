"""Presentation times that start at 0 and strictly rise, even if the times of the container do not."""

from __future__ import annotations

from fractions import Fraction

from pipelines.frame import DEFAULT_RATE, StreamInfo

JUMP_S = 10.0
"""Seconds. In a format without an index, a larger step ahead is a clock error: the stream's clock was set, or two recordings
were joined. In a file with an index it is a long still picture."""
LATE_STEP = Fraction(1, 100)
"""Fraction of a frame period by which time rises for a late picture. If a key picture is missing, decoders return pictures of
the next group before those of the last one; a whole period for each would make the clock run ahead permanently."""


class Timeline:
    """Media time of one session.

    A frame without a time is placed one period after the last frame. So is a frame with a time that goes back, or that leaps
    ahead if `leaps` is False. The offset that this needs is kept for the following frames, and is removed as soon as the
    original clock fits again: one wrong time stamp, or a late picture, does not shift the later frames.

    leaps: accept steps ahead of more than JUMP_S.
    presented: False if the container has no presentation times. FFmpeg then derives them from the decoding times, and they
    are wrong if it does not know the order of presentation (H.264 with B-frames in AVI).
    """

    def __init__(self, info: StreamInfo, *, leaps: bool, presented: bool = True) -> None:
        self._time_base = info.time_base
        self._period = 1 / (info.rate or DEFAULT_RATE)
        self._choice = _TimestampChoice(presented)
        self._leaps = leaps
        self._origin: Fraction | None = None
        self._offset = Fraction(0)
        self._last: Fraction | None = None

    def seconds(self, pts: int | None, dts: int | None = None, *, late: bool = False) -> float | None:
        """Seconds of a frame since the session's first frame.

        pts: its presentation time. dts: the decoding time of the packet after which the decoder returned it; this rises even
        if pictures are not decoded in the order of presentation. Both in units of the stream's time base. late: the picture
        may be late, so a time that goes back does not mean that the clock was set.
        """
        self._last = self._next(self._choice.best(pts, dts), late)
        return float(self._last)

    def _next(self, pts: int | None, late: bool) -> Fraction:
        """The time of the next frame in seconds; updates the offset."""
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
        """Whether `t` is a plausible time after the last frame."""
        if self._last is None:
            return True
        return t > self._last and (self._leaps or t - self._last <= JUMP_S)


class _TimestampChoice:
    """Chooses between a frame's presentation and decoding time: the presentation time, until it has gone back more often than
    the decoding time (FFmpeg's `guess_correct_pts`)."""

    def __init__(self, presented: bool) -> None:
        self._presented = presented
        self._faults = {"pts": 0, "dts": 0}
        self._last: dict[str, int] = {}

    def best(self, pts: int | None, dts: int | None) -> int | None:
        """The more reliable of the two times; None if the frame has neither."""
        if not self._presented:
            return dts
        self._count_faults("dts", dts)
        self._count_faults("pts", pts)
        if pts is not None and (dts is None or self._faults["pts"] <= self._faults["dts"]):
            return pts
        return dts

    def _count_faults(self, name: str, stamp: int | None) -> None:
        """Count a time that did not rise."""
        if stamp is None:
            return
        self._faults[name] += name in self._last and stamp <= self._last[name]
        self._last[name] = stamp
