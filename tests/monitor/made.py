"""A clock that stands, and frames with known times."""

from __future__ import annotations

from pipelines.frame import Cause, Frame, Picture, Prediction, Result, Status, StreamInfo, Trace
from pipelines.monitor.ledger import StreamLedger
from tests.clips import grey

BUDGET_S = 0.05


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def frame(index: int, arrived_s: float, total_s: float = 0.01) -> Frame:
    """A frame with stages that take 1 to 6 parts of the total, in the order of STAGES."""
    parts = [total_s * n / 21 for n in (1, 2, 3, 4, 5, 6)]
    stamps = [arrived_s + sum(parts[:k]) for k in range(7)]
    trace = Trace(stamps[0], stamps[1], stamps[2], stamps[3], stamps[4], stamps[4], stamps[5], arrived_s + total_s)
    return Frame("door", 0, index, Picture(*grey(16, (4, 4))), None, StreamInfo(), trace)


def end(ledger: StreamLedger, status: Status, arrived_s: float, total_s: float = 0.01, cause: Cause | None = None) -> None:
    """Capture a frame and end it."""
    index = ledger.capture(arrived_s)
    prediction = Prediction({}, 0, 1) if status == "ok" else None
    ledger.end(Result(frame(index, arrived_s, total_s), status, prediction, cause))
