"""Parts of a ledger: times of the stages, outages of a source, ages by the camera's clock."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from pipelines.clock import utc, wall_s
from pipelines.frame import STAGES, CameraClock
from pipelines.monitor.histogram import Distribution, Histogram
from pipelines.monitor.reports import OutageReport


class StageTimes:
    """The times of each stage, of all frames of several streams. A thousand files share one and need no more memory than one
    file. Any thread."""

    def __init__(self) -> None:
        self._histograms = {stage: Histogram() for stage in STAGES}
        self._lock = threading.Lock()

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count one frame: seconds by stage."""
        with self._lock:
            for stage, spent_s in seconds.items():
                self._histograms[stage].add(spent_s)

    def frozen(self) -> dict[str, Distribution]:
        """A copy, by stage."""
        with self._lock:
            return {stage: histogram.frozen() for stage, histogram in self._histograms.items()}


class Outages:
    """The times without a live source. Guarded by the ledger's lock."""

    def __init__(self) -> None:
        self._ended: list[tuple[float, float]] = []
        """Beginning (monotonic) and seconds."""
        self._since_s: float | None = None

    def begin(self, since_s: float) -> None:
        """A source is lost; nothing changes if it was lost before."""
        if self._since_s is None:
            self._since_s = since_s

    def end(self, now_s: float) -> float:
        """The source is back; returns the seconds of the outage."""
        assert self._since_s is not None
        seconds = now_s - self._since_s
        self._ended.append((self._since_s, seconds))
        self._since_s = None
        return seconds

    @property
    def reconnects(self) -> int:
        return len(self._ended)

    def silent_s(self, now_s: float) -> float | None:
        """Seconds of the outage that goes on; None without one."""
        return None if self._since_s is None else now_s - self._since_s

    def report(self, now_s: float) -> tuple[OutageReport, ...]:
        lasting = [] if self._since_s is None else [(self._since_s, now_s - self._since_s)]
        return tuple(OutageReport(utc(wall_s(at_s, now_s)), round(s, 3)) for at_s, s in [*self._ended, *lasting])


class CameraAge:
    """Ages of shown pictures by the camera's own clock. Guarded by the ledger's lock."""

    def __init__(self) -> None:
        self.clock: CameraClock | None = None
        """Whether that clock can be compared, and the reason (`StreamInfo`); None if the camera sends no times."""
        self.histogram: Histogram | None = None
        """None unless it can be compared: a histogram needs 180 kB."""

    def add(self, clock: CameraClock, age_s: float) -> None:
        """Count a shown frame; its age counts only if the clock can be compared."""
        self.clock = clock
        if clock != "not compared":
            self.histogram = self.histogram or Histogram()
            self.histogram.add(age_s)

    def median_ms(self) -> float | None:
        return 1e3 * (self.histogram.quantile(0.5) or 0.0) if self.histogram else None

    def frozen(self) -> Distribution | None:
        return self.histogram.frozen() if self.histogram else None
