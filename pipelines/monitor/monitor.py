"""LatencyMonitor: the ledgers of all streams of a session, and the use of the device.

Times are counted in histograms, not in lists: a run of a week needs as much memory as one of a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.clock import wall_s
from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.ledger_parts import StageTimes
from pipelines.monitor.reports import SessionReport, StreamReport
from pipelines.monitor.snapshots import DeviceSnapshot, SessionSnapshot, Span

log = logging.getLogger("watchline.stream")


@dataclass(slots=True)
class _Device:
    """Work of the device. since_s, until_s: beginning of the first batch and end of the last one, monotonic."""

    busy_s: float = 0.0
    since_s: float | None = None
    until_s: float = 0.0
    sizes: Counter[int] = field(default_factory=Counter)

    def snapshot(self) -> DeviceSnapshot:
        open_s = 0.0 if self.since_s is None else self.until_s - self.since_s
        return DeviceSnapshot(self.busy_s, open_s, dict(self.sizes))


class LatencyMonitor:
    """The ledgers of a session, and its device. Any thread."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """budget_s: latency budget of streams without one of their own."""
        self.budget_s = budget_s
        self.faults: list[str] = []
        """Losses that belong to all streams: any makes the run end with 1."""
        self._clock = clock
        self._ledgers: dict[str, StreamLedger] = {}
        self._removed: list[StreamReport] = []
        """Final figures of removed streams: about 1 kB each."""
        self._removed_span = Span()
        self._stages = {live: StageTimes() for live in (True, False)}
        self._device = _Device()
        self._lock = threading.Lock()

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> StreamLedger:
        """A ledger of its own for a new stream. An earlier stream of this name is retired.

        budget_s: latency budget of its frames; None: the monitor's.
        """
        budget_s = self.budget_s if budget_s is None else budget_s
        ledger = StreamLedger(stream, live=live, budget_s=budget_s, stages=self._stages[live], clock=self._clock)
        with self._lock:
            if (earlier := self._ledgers.pop(stream, None)) is not None:
                self._keep_figures(earlier)
            self._ledgers[stream] = ledger
        return ledger

    def retire(self, ledger: StreamLedger) -> None:
        """Forget a stream that has ended and was removed, but keep its final figures. Nothing changes if it was retired."""
        with self._lock:
            if self._ledgers.get(ledger.stream) is ledger:
                del self._ledgers[ledger.stream]
                self._keep_figures(ledger)

    def _keep_figures(self, ledger: StreamLedger) -> None:
        snapshot = ledger.snapshot()
        ledger.settle()
        self._removed.append(snapshot.figures)
        self._removed_span |= snapshot.span

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch of `size` rows that kept the device busy for `seconds`. Thread: the predictor's completion."""
        now = self._clock()
        with self._lock:
            d = self._device
            d.sizes[size] += 1
            d.busy_s += seconds
            d.since_s = now - seconds if d.since_s is None else d.since_s
            d.until_s = now

    def fault(self, message: str) -> None:
        """Note a loss that belongs to all streams."""
        with self._lock:
            self.faults.append(message)
        log.error("%s", message)

    @property
    def ledgers(self) -> list[StreamLedger]:
        """The ledgers of all streams that have not been removed."""
        with self._lock:
            return list(self._ledgers.values())

    def snapshot(self) -> SessionSnapshot:
        """All figures so far with histograms. The figures of each stream are of one moment."""
        with self._lock:
            ledgers, removed, removed_span = list(self._ledgers.values()), tuple(self._removed), self._removed_span
            device, errors = self._device.snapshot(), tuple(self.faults)
        # Without the lock, so that no batch waits for the copies of all histograms.
        return SessionSnapshot(
            streams=tuple(ledger.snapshot() for ledger in ledgers),
            removed=removed,
            removed_span=removed_span,
            stages={live: times.frozen() for live, times in self._stages.items()},
            device=device,
            errors=errors,
            wall_offset_s=wall_s(0.0, self._clock()),
        )

    def report(self) -> SessionReport:
        """All figures so far, as people read them."""
        return self.snapshot().report()
