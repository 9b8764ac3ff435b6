"""LatencyMonitor: the ledger of every stream, and how long everything took.

For every stream, at every moment: captured = shown + dropped + failed + in flight. Times are kept in histograms, not in
lists: a run of a week costs as much memory as one of a minute.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.clock import utc, wall_s
from pipelines.frame import CAUSES, STAGES, Cause, Frame, Result
from pipelines.sources.source import PacketCounts

log = logging.getLogger("watchline.stream")

STEP = math.log(1.001)
LEAST_S = 1e-6
LONGEST_S = 1e4
BUCKETS = int(math.log(LONGEST_S / LEAST_S) / STEP) + 1
"""180 kB a histogram; a table of those in use would grow for an hour, to more."""
QUIET_S = 10.0
"""A stream's decode errors are said at most once in so long, with their number."""


class Histogram:
    """Seconds, to 0.05 %, in buckets whose bounds grow by a thousandth. Its size never changes. Not locked."""

    def __init__(self) -> None:
        # An array of Python's: one more in a numpy array takes three times as long.
        self._buckets = array("Q", bytes(8 * BUCKETS))
        self.count = 0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one value; below a microsecond it counts as one, above LONGEST_S it counts as the largest."""
        if seconds > self.max_s:
            self.max_s = seconds
        within = LEAST_S if seconds < LEAST_S else LONGEST_S if seconds > LONGEST_S else seconds
        self._buckets[int(math.log(within / LEAST_S) / STEP)] += 1
        self.count += 1

    def merge(self, other: Histogram) -> None:
        """Add all values of another one."""
        counts = np.frombuffer(self._buckets, np.uint64)
        counts += np.frombuffer(other._buckets, np.uint64)
        self.count += other.count
        self.max_s = max(self.max_s, other.max_s)

    def quantile(self, q: float) -> float | None:
        """The value that `q` of all do not exceed (nearest rank); None without values."""
        if not self.count:
            return None
        bucket = int(np.searchsorted(np.cumsum(np.frombuffer(self._buckets, np.uint64)), max(math.ceil(q * self.count), 1)))
        middle_s = LEAST_S * math.exp((bucket + 0.5) * STEP)
        return min(middle_s, self.max_s) if bucket < BUCKETS - 1 else self.max_s

    def as_ms(self) -> dict[str, float | int | None]:
        """p50, p95, p99, max in milliseconds, and the count."""
        quantiles = {name: self.quantile(q) for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
        figures: dict[str, float | int | None] = {n: None if s is None else round(1e3 * s, 3) for n, s in quantiles.items()}
        return figures | {"max": round(1e3 * self.max_s, 3) if self.count else None, "count": self.count}


class StageTimes:
    """How long each stage took of the frames of several streams, which share it: a thousand files need no more memory than
    one. Any thread."""

    def __init__(self) -> None:
        self.histograms = {stage: Histogram() for stage in STAGES}
        self._lock = threading.Lock()

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count one frame, by stage."""
        with self._lock:
            for stage, spent_s in seconds.items():
                self.histograms[stage].add(spent_s)

    def merge(self, other: StageTimes) -> None:
        """Add all frames of another one."""
        with other._lock:
            for stage, histogram in other.histograms.items():
                self.histograms[stage].merge(histogram)


@dataclass(frozen=True, slots=True)
class Glance:
    """One stream as it is now, for the screen."""

    stream: str
    live: bool
    captured: int
    shown: int
    dropped: int
    failed: int
    late: int
    fps: float
    p50_ms: float | None
    p99_ms: float | None
    camera_age_ms: float | None
    """Median age by the camera's own clock, where that can be compared."""
    silent_s: float | None
    """Seconds since a live source was lost; None while it is there."""
    ended: bool


@dataclass(slots=True)
class Outage:
    """A time without a live source."""

    since_s: float
    seconds: float | None = None


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
        """stages: where the times of its frames are counted together with those of other streams."""
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
        """What was lost of the source or its outputs: any makes the run end with 1."""
        self.ended = False
        self.expected: int | None = None
        """Frames that the container announces."""
        self.total: Histogram | None = Histogram()
        """None once it is settled."""
        self.camera_age: Histogram | None = None
        """From the camera's own time of a picture until it was shown, where that can be compared with this machine's."""
        self.camera_clock: str | None = None
        """Why it can (see `StreamInfo`); None where the camera tells no time."""
        self._stages = stages
        self._packets: PacketCounts | None = None
        self._budget_s = budget_s
        self._clock = clock
        self._lock = threading.Lock()
        self._outages: list[Outage] = []
        self._said: set[str] = set()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._recent: deque[tuple[float, float]] = deque(maxlen=128)
        self._quiet_until_s = float("-inf")
        self._latency_ms: dict[str, float | int | None] = {}
        """Of a settled ledger."""

    # What happens to frames.

    def capture(self, arrived_s: float, *, interlaced: bool = False) -> int:
        """A frame was captured; returns its index."""
        with self._lock:
            self._first_s = arrived_s if self._first_s is None else self._first_s
            self.interlaced += interlaced
            self.captured += 1
            return self.captured - 1

    def end(self, result: Result, *, skipped_by_window: bool = False) -> None:
        """A captured frame has ended."""
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
        trace = result.frame.trace
        if self._stages is not None:
            self._stages.add(trace.stages())
        assert trace.shown_s is not None
        assert self.total is not None
        total_s = trace.shown_s - trace.arrived_s
        self.total.add(total_s)
        self.shown += 1
        self.late += self.live and total_s > self._budget_s
        self._last_s = trace.shown_s
        self._note_camera_age(result.frame)
        self._recent.append((trace.shown_s, total_s))

    def _note_camera_age(self, frame: Frame) -> None:
        if frame.captured_s is None:
            return
        self.camera_clock = frame.info.camera_clock
        if frame.info.camera_clock != "not compared" and frame.trace.shown_s is not None:
            self.camera_age = self.camera_age or Histogram()
            self.camera_age.add(wall_s(frame.trace.shown_s, self._clock()) - frame.captured_s)

    def settle(self) -> None:
        """The last frame has ended: the figures stay, the 180 kB behind them do not. A run may be of thousands of files."""
        with self._lock:
            if self.total is not None:
                self._latency_ms, self.total = self.total.as_ms(), None
                self._recent.clear()

    # What the source tells.

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
                return  # a truncated file that is looped says so at every turn
            self.faults.append(message)
        log.error("%s: %s", self.stream, message)

    def interrupted(self, since_s: float, message: str) -> None:
        with self._lock:
            if not self._outages or self._outages[-1].seconds is not None:
                self._outages.append(Outage(since_s))
        log.warning("%s: %s; trying again", self.stream, message)

    def resumed(self) -> None:
        with self._lock:
            outage = self._outages[-1]
            outage.seconds = self._clock() - outage.since_s
            seconds = outage.seconds
        log.warning("%s: pictures again after %.1f s", self.stream, seconds)

    def once(self, key: str, message: str) -> None:
        with self._lock:
            said = key in self._said
            self._said.add(key)
        if not said:
            log.warning("%s: %s", self.stream, message)

    # What people see.

    @property
    def in_flight(self) -> int:
        with self._lock:
            return self.captured - self.shown - self.failed - sum(self.dropped.values())

    def glance(self) -> Glance:
        """The stream as it is now; rate and percentiles of the last 128 shown frames."""
        with self._lock:
            totals = sorted(total for _, total in self._recent)
            span_s = self._recent[-1][0] - self._recent[0][0] if len(self._recent) > 1 else 0.0
            lost = self._outages[-1] if self._outages and self._outages[-1].seconds is None else None
            return Glance(
                stream=self.stream,
                live=self.live,
                captured=self.captured,
                shown=self.shown,
                dropped=sum(self.dropped.values()),
                failed=self.failed,
                late=self.late,
                fps=(len(self._recent) - 1) / span_s if span_s else 0.0,
                p50_ms=1e3 * totals[len(totals) // 2] if totals else None,
                p99_ms=1e3 * totals[math.ceil(0.99 * len(totals)) - 1] if totals else None,
                camera_age_ms=1e3 * (self.camera_age.quantile(0.5) or 0.0) if self.camera_age else None,
                silent_s=self._clock() - lost.since_s if lost else None,
                ended=self.ended,
            )

    def report(self) -> dict[str, Any]:
        with self._lock:
            return {
                "captured": self.captured,
                "shown": self.shown,
                "dropped": dict(self.dropped),
                "failed": self.failed,
                "late": self.late,
                "decode_errors": self.decode_errors,
                "window_skipped": self.window_skipped,
                "interlaced": self.interlaced,
                "reconnects": sum(o.seconds is not None for o in self._outages),
                "outages": [self._outage(o) for o in self._outages],
                "fps": _rate(self.shown, self._first_s, self._last_s),
                "goodput": _share(self.shown - self.late, self._counted()),
                "latency_ms": self._latency_ms if self.total is None else self.total.as_ms(),
                "packets": None if self._packets is None else self._packets.as_dict(),
                "camera_clock": self.camera_clock,
                "camera_age_ms": self.camera_age.as_ms() if self.camera_age else None,
                "errors": list(self.faults),
                "live": self.live,
            }

    def _outage(self, outage: Outage) -> dict[str, Any]:
        now_s = self._clock()
        seconds = now_s - outage.since_s if outage.seconds is None else outage.seconds
        return {"at": utc(wall_s(outage.since_s, now_s)), "seconds": round(seconds, 3)}

    def _counted(self) -> int:
        return self.captured - self.dropped["corrupt"] - self.dropped["skipped"]

    def span(self) -> tuple[float | None, float | None]:
        """First arrival and last shown."""
        with self._lock:
            return self._first_s, self._last_s

    def good(self) -> tuple[int, int]:
        """Frames shown within the budget, and frames that should have been."""
        with self._lock:
            return self.shown - self.late, self._counted()


@dataclass(slots=True)
class _Device:
    busy_s: float = 0.0
    since_s: float | None = None
    until_s: float = 0.0
    sizes: Counter[int] = field(default_factory=Counter)


class LatencyMonitor:
    """All ledgers of a run, and the device."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget_s = budget_s
        self.faults: list[str] = []
        """What was lost of what belongs to all streams: any makes the run end with 1."""
        self._clock = clock
        self._ledgers: dict[str, StreamLedger] = {}
        self._removed: list[dict[str, Any]] = []
        """Final figures of removed streams."""
        self._stages = {live: StageTimes() for live in (True, False)}
        self._device = _Device()
        self._lock = threading.Lock()

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> StreamLedger:
        """A ledger for a new stream, also if an earlier stream had its name. budget_s: None means the monitor's."""
        budget_s = self.budget_s if budget_s is None else budget_s
        ledger = StreamLedger(stream, live=live, budget_s=budget_s, stages=self._stages[live], clock=self._clock)
        with self._lock:
            self._ledgers[stream] = ledger
        return ledger

    def retire(self, ledger: StreamLedger) -> None:
        """Keep only the final figures of a stream that has ended and was removed."""
        ledger.settle()
        with self._lock:
            if self._ledgers.get(ledger.stream) is ledger:
                del self._ledgers[ledger.stream]
            self._removed.append({"name": ledger.stream, **ledger.report()})

    def batch(self, size: int, seconds: float) -> None:
        """A batch of `size` frames kept the device busy for `seconds`. Thread: the predictor's completion."""
        now = self._clock()
        with self._lock:
            d = self._device
            d.sizes[size] += 1
            d.busy_s += seconds
            d.since_s = now - seconds if d.since_s is None else d.since_s
            d.until_s = now

    def fault(self, message: str) -> None:
        """Something was lost that belongs to all streams."""
        with self._lock:
            self.faults.append(message)
        log.error("%s", message)

    @property
    def ledgers(self) -> list[StreamLedger]:
        with self._lock:
            return list(self._ledgers.values())

    def report(self) -> dict[str, Any]:
        """The measured part of the report; what the program is made of is added by the app."""
        ledgers = self.ledgers
        # The promise is about cameras: beside them, files, which have no deadline and wait in line, are not counted.
        promised = [ledger for ledger in ledgers if ledger.live and ledger.captured] or ledgers
        first = min((s for ledger in ledgers if (s := ledger.span()[0]) is not None), default=None)
        last = max((s for ledger in ledgers if (s := ledger.span()[1]) is not None), default=None)
        times = StageTimes()
        for live in {ledger.live for ledger in promised}:
            times.merge(self._stages[live])
        stages = times.histograms
        good = [ledger.good() for ledger in promised]
        with self._lock:
            d = self._device
            busy = d.busy_s / (d.until_s - d.since_s) if d.since_s is not None and d.until_s > d.since_s else 0.0
            sizes = {str(b): d.sizes[b] for b in sorted(d.sizes)}
        queue = stages["queue"].as_ms()
        return {
            "streams": {ledger.stream: ledger.report() for ledger in ledgers},
            "latency_ms": {"total": stages["total"].as_ms()} | {s: stages[s].as_ms() for s in STAGES if s != "total"},
            "batch_sizes": sizes,
            "goodput": _share(sum(g for g, _ in good), sum(n for _, n in good)),
            "throughput_fps": _rate(sum(ledger.shown for ledger in ledgers), first, last),
            "queue_wait_ms": {"p50": queue["p50"], "p99": queue["p99"]},
            "device": {"use": round(min(busy, 1.0), 4)},
            "errors": list(self.faults),
        } | ({"removed": list(self._removed)} if self._removed else {})


def _rate(count: int, first_s: float | None, last_s: float | None) -> float | None:
    if first_s is None or last_s is None or last_s <= first_s:
        return None
    return round(count / (last_s - first_s), 3)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 5) if whole else None
