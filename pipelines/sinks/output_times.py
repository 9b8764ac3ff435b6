"""OutputTimeline: every accepted frame gets one tick of the output's clock, strictly later than the frame before."""

from __future__ import annotations

from fractions import Fraction

from pipelines.frame import DEFAULT_RATE, Frame, StreamInfo

MPEG_CLOCK = 90_000


def tick_length(info: StreamInfo, live: bool) -> Fraction:
    """Length of one tick in seconds: the source's own times are whole ticks, and a shift by one tick is invisible.

    A camera's clock is RTP's 1/90000. A file's time base (1/12800, 1001/30000) is halved until it is 0.1 ms or less, because in
    an AVI it may be as long as a whole frame. It is never less than 1 µs, because x264 and mp4 count in 32 bits.
    """
    per_s = MPEG_CLOCK
    if not live and info.time_base:
        per_s = info.time_base.denominator
    elif not live and info.rate:
        per_s = info.rate.numerator
    while per_s < 10_000:
        per_s *= 2
    return Fraction(1, min(per_s, 1_000_000))


class OutputTimeline:
    """Places the frames of all sessions of one stream on one time axis that starts at 0.

    Within a session `pts_s` is kept. A new session of a camera begins at the arrival of its first frame, counted from the
    arrival of the stream's first frame. A new session of a file begins one frame after the last frame. Thread: the owner's.
    """

    def __init__(self, info: StreamInfo, tick_s: Fraction, live: bool) -> None:
        self.tick_s = tick_s
        self.step_s = 1 / (info.rate or DEFAULT_RATE)
        """Seconds for which a frame is shown if the next frame's time is unknown."""
        self.last = -1
        """The tick of the last frame; -1 before the first frame."""
        self._live = live
        self._session: int | None = None
        self._first_arrived_s = 0.0
        self._start_s = Fraction(0)
        self._time_s = Fraction(0)
        self._index = 0

    @property
    def end_s(self) -> Fraction:
        """The end of the last frame, in seconds; 0 before the first frame."""
        return self.last * self.tick_s + self.step_s if self.last >= 0 else Fraction(0)

    def place(self, frame: Frame) -> int:
        """The tick of this frame. If its time is not later than that of the last frame, it gets the next tick."""
        if frame.session != self._session:
            self._begin(frame)
        elif frame.pts_s is None:
            self._time_s += self._missed(frame) * self.step_s
        else:
            self._time_s = self._start_s + Fraction(frame.pts_s)
        self._index = frame.index
        self.last = max(round(self._time_s / self.tick_s), self.last + 1)
        return self.last

    def _missed(self, frame: Frame) -> int:
        """Captured frames since the last shown one: frames without times keep their distance if frames are dropped."""
        return max(1, frame.index - self._index)

    def _begin(self, frame: Frame) -> None:
        pts_s = Fraction(frame.pts_s or 0)
        if self._session is None:
            # A file keeps its times, so that its sound fits; the output of a camera begins with its first shown frame.
            self._first_arrived_s = frame.trace.arrived_s
            self._time_s = Fraction(0) if self._live else pts_s
        elif self._live:
            self._time_s = max(Fraction(frame.trace.arrived_s - self._first_arrived_s), self.end_s)
        else:
            self._time_s = self.last * self.tick_s + self._missed(frame) * self.step_s
        self._start_s = self._time_s - pts_s
        self._session = frame.session
