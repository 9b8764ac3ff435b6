"""StreamLedger: the accounts of one stream. At every moment, captured = shown + dropped + failed + in flight."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.clock import wall_s
from pipelines.frame import CAUSES, Cause, Result
from pipelines.monitor.histogram import Histogram
from pipelines.monitor.ledger_parts import CameraAge, Outages, StageTimes
from pipelines.monitor.reports import LatencyFigures, StreamReport
from pipelines.monitor.snapshots import Span, StreamSnapshot, share
from pipelines.watch import PacketCounts

log = logging.getLogger("watchline.stream")

QUIET_S = 10.0
"""Shortest time between two log lines about decode errors of a stream. A line gives their number."""
RECENT = 128
"""Shown frames that the current rate and the current percentiles are made of."""


@dataclass(frozen=True, slots=True)
class Glance:
    """One stream at this moment, for a screen. The counts are of the whole time, rate and percentiles of the last RECENT shown
    frames."""

    stream: str
    live: bool
    captured: int
    shown: int
    dropped: int
    failed: int
    late: int
    recent_fps: float
    p50_ms: float | None
    p99_ms: float | None
    camera_age_ms: float | None
    """Median age by the camera's own clock over the whole time; None unless that clock can be compared."""
    silent_s: float | None
    """Seconds since a live source was lost; None while it is there."""
    ended: bool

    @property
    def done(self) -> int:
        """Frames with an outcome."""
        return self.shown + self.dropped + self.failed


class StreamLedger:
    """The accounts of one stream. Any thread; it is the `Watch` of its source."""

    def __init__(
        self,
        stream: str,
        *,
        live: bool,
        budget_s: float,
        stages: StageTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """budget_s: latency budget of its frames. stages: counts the times of its frames together with those of other
        streams. clock: gives monotonic seconds."""
        self.stream = stream
        self.live = live
        self.captured = 0
        self.shown = 0
        self.dropped: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
        self.failed = 0
        self.late = 0
        self.decode_errors = 0
        self.window_skipped = 0
        self.interlaced = 0
        """Captured frames that show two moments."""
        self.faults: list[str] = []
        """Losses of the source or of the outputs: any makes the run end with 1."""
        self.ended = False
        self.expected: int | None = None
        """Number of frames by the container's header; None if it gives none."""
        self._latency: Histogram | None = Histogram()
        """None once the ledger is settled."""
        self._settled_latency = LatencyFigures()
        self._camera_age = CameraAge()
        self._stages = stages
        self._packets: PacketCounts | None = None
        self._budget_s = budget_s
        self._clock = clock
        self._lock = threading.Lock()
        self._outages = Outages()
        self._logged: set[str] = set()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)
        """Time of showing and latency of the last shown frames, seconds."""
        self._quiet_until_s = float("-inf")

    # Outcomes of frames.

    def capture(self, arrived_s: float, *, interlaced: bool = False) -> int:
        """Count a captured frame; returns its index."""
        with self._lock:
            if self._first_s is None:
                self._first_s = arrived_s
            self.interlaced += interlaced
            self.captured += 1
            return self.captured - 1

    def end(self, result: Result, *, skipped_by_window: bool = False) -> None:
        """Count the outcome of a captured frame."""
        with self._lock:
            if result.status == "ok":
                self._shown(result)
                self.window_skipped += skipped_by_window
            elif result.status == "failed":
                self.failed += 1
            else:
                assert result.cause is not None
                self.dropped[result.cause] += 1

    def _shown(self, result: Result) -> None:
        frame, trace = result.frame, result.frame.trace
        if self._stages is not None:
            self._stages.add(trace.stages())
        assert trace.shown_s is not None
        latency_s = trace.shown_s - trace.arrived_s
        if self._latency is not None:
            self._latency.add(latency_s)
        self.shown += 1
        self.late += self.live and latency_s > self._budget_s
        self._last_s = trace.shown_s
        if frame.captured_s is not None:
            self._camera_age.add(frame.info.camera_clock, wall_s(trace.shown_s, self._clock()) - frame.captured_s)
        self._recent.append((trace.shown_s, latency_s))

    def settle(self) -> None:
        """Keep the figures of the latency and free its histogram (180 kB), once the last frame has ended: a run may have
        thousands of files."""
        with self._lock:
            if self._latency is not None:
                self._settled_latency, self._latency = self._latency.figures(), None
                self._recent.clear()

    # The source's `Watch`.

    def packets(self, counts: PacketCounts) -> None:
        with self._lock:
            self._packets = counts if self._packets is None else self._packets + counts

    def decode_error(self, message: str) -> None:
        with self._lock:
            self.decode_errors += 1
            now, count = self._clock(), self.decode_errors
            quiet = now < self._quiet_until_s
            if not quiet:
                self._quiet_until_s = now + QUIET_S
        if not quiet:
            log.warning("%s: %s (decode errors so far: %d)", self.stream, message, count)

    def fault(self, message: str) -> None:
        with self._lock:
            if message in self.faults:
                return  # A truncated file that is looped repeats its message in every turn.
            self.faults.append(message)
        log.error("%s: %s", self.stream, message)

    def interrupted(self, since_s: float, message: str) -> None:
        with self._lock:
            self._outages.begin(since_s)
        log.warning("%s: %s; trying again", self.stream, message)

    def resumed(self) -> None:
        with self._lock:
            seconds = self._outages.end(self._clock())
        log.warning("%s: pictures again after %.1f s", self.stream, seconds)

    def once(self, key: str, message: str) -> None:
        with self._lock:
            known = key in self._logged
            self._logged.add(key)
        if not known:
            log.warning("%s: %s", self.stream, message)

    # Figures.

    @property
    def in_flight(self) -> int:
        """Captured frames without an outcome."""
        with self._lock:
            return self.captured - self.shown - self.failed - sum(self.dropped.values())

    def silent_s(self) -> float | None:
        """Seconds for which the camera has sent no picture; None if it sends."""
        with self._lock:
            return self._outages.silent_s(self._clock())

    def glance(self) -> Glance:
        """The stream at this moment."""
        with self._lock:
            latencies = sorted(latency_s for _, latency_s in self._recent)
            span_s = self._recent[-1][0] - self._recent[0][0] if len(self._recent) > 1 else 0.0
            return Glance(
                stream=self.stream,
                live=self.live,
                captured=self.captured,
                shown=self.shown,
                dropped=sum(self.dropped.values()),
                failed=self.failed,
                late=self.late,
                recent_fps=(len(self._recent) - 1) / span_s if span_s else 0.0,
                p50_ms=1e3 * latencies[len(latencies) // 2] if latencies else None,
                p99_ms=1e3 * latencies[math.ceil(0.99 * len(latencies)) - 1] if latencies else None,
                camera_age_ms=self._camera_age.median_ms(),
                silent_s=self._outages.silent_s(self._clock()),
                ended=self.ended,
            )

    def report(self) -> StreamReport:
        """The figures so far, all of one moment."""
        return self.snapshot().figures

    def snapshot(self) -> StreamSnapshot:
        """The figures so far with histograms, all of one moment."""
        with self._lock:
            latency = self._latency.frozen() if self._latency else None
            age = self._camera_age.frozen()
            span = Span(self._first_s, self._last_s)
            counted = self.captured - self.dropped["corrupt"] - self.dropped["skipped"]
            figures = StreamReport(
                name=self.stream,
                captured=self.captured,
                shown=self.shown,
                dropped=dict(self.dropped),
                failed=self.failed,
                late=self.late,
                decode_errors=self.decode_errors,
                window_skipped=self.window_skipped,
                interlaced=self.interlaced,
                reconnects=self._outages.reconnects,
                outages=self._outages.report(self._clock()),
                fps=span.rate(self.shown),
                goodput=share(self.shown - self.late, counted),
                latency_ms=latency.figures() if latency else self._settled_latency,
                packets=self._packets,
                camera_clock=self._camera_age.clock,
                camera_age_ms=age.figures() if age else None,
                errors=tuple(self.faults),
                live=self.live,
            )
            return StreamSnapshot(figures, span, latency, age)
