"""A trial: several live streams for some seconds, on a predictor that is ready, and the figures of their frames."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from app import build
from app.bench.ideal import jain
from app.bench.player import make_camera
from app.config import Settings
from app.machine.machine import Usage, Used
from app.streams import StreamPlan
from pipelines.crew import Crew
from pipelines.errors import SourceError
from pipelines.frame import CAUSES, Result
from pipelines.lane import Lane, Outputs
from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.predict.interface import Predictor

LEAD_S = 0.3
"""Time to open the streams before the first frames are due; each stream adds OPEN_S."""
OPEN_S = 0.03
CAMERA_S = 3.0
"""The longest time until a camera sends."""
SETTLE_S = 1.5
"""Time at the beginning that is not counted, or half of the counted time if that is less: the scheduler still has the estimates
of the trial before."""
AFTER_S = 0.2
"""Streams go on for this time after the counted time, so that the last counted frames are served like all others."""


class Counted:
    """Takes the results of all lanes and accounts for the frames of the counted time, as a run's monitor does for all frames.

    Threads: the lanes; `between` is set before they start.
    """

    def __init__(self, names: Sequence[str], budget_s: float, between: tuple[float, float]) -> None:
        self.monitor = LatencyMonitor(budget_s)
        self._between = between
        self._ledgers = {name: self.monitor.open(name, live=True) for name in names}

    def put(self, results: Sequence[Result]) -> None:
        """Account for the frames that arrived in the counted time."""
        for result in results:
            if self._between[0] <= result.frame.trace.arrived_s < self._between[1]:
                ledger = self._ledgers[result.frame.stream]
                ledger.capture(result.frame.trace.arrived_s)
                ledger.end(result)

    full = False

    def wait_for_room(self, stop: threading.Event) -> None:
        """There is always room."""

    def batch(self, size: int, seconds: float) -> None:
        """A batch ended. Thread: the predictor's completion."""
        if self._between[0] <= time.monotonic() < self._between[1]:
            self.monitor.batch(size, seconds)


@dataclass(frozen=True, slots=True)
class Trial:
    """Figures of the frames that were captured in the counted time.

    goodput: share shown within the budget. fairness: Jain's index of the streams' shares of shown frames.
    busy: CPU seconds a second, of the whole process; elsewhere: of all others on the same cores.
    adds_up: in every ledger captured = shown + dropped + failed, with nothing left.
    """

    streams: int
    captured: int
    shown: int
    late: int
    dropped: dict[str, int]
    goodput: float
    fairness: float
    busy: float
    elsewhere: float
    adds_up: bool
    latency_ms: dict[str, dict[str, float]]
    batch_sizes: dict[str, int]

    @property
    def largest_batch(self) -> int:
        """Size of the largest batch that was run."""
        return max((int(size) for size in self.batch_sizes), default=1)

    @property
    def mean_batch(self) -> float:
        """Mean number of frames in a batch."""
        return sum(int(b) * n for b, n in self.batch_sizes.items()) / max(sum(self.batch_sizes.values()), 1)


class Rig:
    """Plays trials on a model that is loaded and warm. `batch` must be called for every batch."""

    def __init__(self, settings: Settings, stream: StreamPlan) -> None:
        self._settings = settings
        self._stream = stream
        self._counted: Counted | None = None

    def batch(self, size: int, seconds: float) -> None:
        """Thread: the predictor's completion."""
        if self._counted is not None:
            self._counted.batch(size, seconds)

    def play(self, predictor: Predictor, streams: int, seconds: float, period_s: float) -> Trial:
        """Play the streams for `seconds`, their frames spread evenly over the period.

        :raises SourceError: if a stream breaks off, or never begins.
        """
        begin_s = time.monotonic() + (CAMERA_S if self._stream.spec.kind == "rtsp" else LEAD_S) + OPEN_S * streams
        count_s = begin_s + min(SETTLE_S, seconds / 2)
        between = (count_s, count_s + seconds)
        names = [f"{self._stream.name}-{k + 1}" for k in range(streams)]
        budget_s = 1e-3 * self._settings.budget_ms
        self._counted = counted = Counted(names, budget_s, between)
        ledgers = [StreamLedger(name, live=True, budget_s=budget_s) for name in names]
        stop = threading.Event()
        lanes = []
        for k, (name, ledger) in enumerate(zip(names, ledgers, strict=True)):
            source = make_camera(self._stream.spec, stop, begin_s + k * period_s / streams)
            outputs = Outputs(build.make_sinks(self._stream, live=True))
            lanes.append(Lane(name, source, predictor, outputs, ledger, counted))
        used = _run(lanes, stop, between)
        if predictor.error is not None:
            raise predictor.error
        faults = [fault for ledger in ledgers for fault in ledger.faults]
        if faults:
            raise SourceError(f"with {streams} streams: {faults[0]}")
        silent = [ledger.stream for ledger in ledgers if not ledger.captured]
        if silent:
            raise SourceError(f"with {streams} streams: {silent[0]} gave no picture; does it serve as many at once?")
        return _trial(counted, ledgers, used)


def _run(lanes: Sequence[Lane], stop: threading.Event, between: tuple[float, float]) -> Used:
    """Run the lanes over the counted time; returns the CPU use in it. Ends early if a lane ends."""

    def end() -> None:
        stop.set()
        for lane in lanes:
            lane.stop()

    with Crew(end) as crew:
        for lane in lanes:
            crew.start(f"lane:{lane.name}", lambda lane=lane: lane.run(crew))  # type: ignore[misc]
        stop.wait(between[0] - time.monotonic())
        usage = Usage()
        stop.wait(between[1] - time.monotonic())
        used = usage.since()
        stop.wait(AFTER_S)
        end()
    return used


def _trial(counted: Counted, ledgers: Sequence[StreamLedger], used: Used) -> Trial:
    report = counted.monitor.report()
    streams = list(report.streams.values())
    captured, shown, late = report.captured, report.shown, sum(s.late for s in streams)
    shares = [s.shown / s.captured if s.captured else 0.0 for s in streams]
    figures = report.as_dict()
    return Trial(
        streams=len(ledgers),
        captured=captured,
        shown=shown,
        late=late,
        dropped={cause: sum(s.dropped[cause] for s in streams) for cause in CAUSES},
        goodput=(shown - late) / captured if captured else math.nan,
        fairness=jain(shares),
        busy=used.here,
        elsewhere=used.elsewhere,
        adds_up=all(x.captured == x.shown + x.failed + sum(x.dropped.values()) for x in ledgers),
        latency_ms=figures["latency_ms"],
        batch_sizes=figures["batch_sizes"],
    )
