"""The times of an output: every accepted frame gets one tick, strictly later than the one before."""

from __future__ import annotations

from fractions import Fraction

from pipelines.frame import DEFAULT_RATE, Frame, StreamInfo

MPEG_CLOCK = 90_000


def tick_length(info: StreamInfo, live: bool) -> Fraction:
    """Length of one tick in seconds, such that the source's own times are whole ticks and a nudge is not seen.

    A camera's clock is RTP's 1/90000. A file's time base (1/12800, 1001/30000) is kept and halved until it is 0.1 ms
    or finer: in an AVI it may be as long as a whole frame. Finer than 1 µs is cut off: x264 and mp4 count in 32 bits.
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
    """Places the frames of all sessions of one stream on one axis that starts at nought.

    Within a session `pts_s` is kept. A new session of a camera goes where its first frame arrived, counted from the
    arrival of the stream's first frame; that of a file follows one frame after the last. Thread: the owner's.
    """

    def __init__(self, info: StreamInfo, tick_s: Fraction, live: bool) -> None:
        self.tick_s = tick_s
        self.step_s = 1 / (info.rate or DEFAULT_RATE)
        """How long one frame is shown where nothing better is known."""
        self.last = -1
        """The tick given out last."""
        self._live = live
        self._session: int | None = None
        self._first_arrived_s = 0.0
        self._start_s = Fraction(0)
        self._time_s = Fraction(0)
        self._index = 0

    @property
    def end_s(self) -> Fraction:
        """When the last frame's own time is over; nought before the first frame."""
        return self.last * self.tick_s + self.step_s if self.last >= 0 else Fraction(0)

    def place(self, frame: Frame) -> int:
        """The tick of this frame. A time that is not later than the last one is nudged by one tick, never refused."""
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
        """Captured frames since the last one shown, so that made-up times do not shrink when frames are dropped."""
        return max(1, frame.index - self._index)

    def _begin(self, frame: Frame) -> None:
        pts_s = Fraction(frame.pts_s or 0)
        if self._session is None:
            # A file keeps its times, and so its sound; a camera's first shown frame is where the output begins.
            self._first_arrived_s = frame.trace.arrived_s
            self._time_s = Fraction(0) if self._live else pts_s
        elif self._live:
            self._time_s = max(Fraction(frame.trace.arrived_s - self._first_arrived_s), self.end_s)
        else:
            self._time_s = self.last * self.tick_s + self._missed(frame) * self.step_s
        self._start_s = self._time_s - pts_s
        self._session = frame.session
