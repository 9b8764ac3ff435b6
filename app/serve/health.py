"""The last minute of the service, and the four figures that operators watch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from app.serve.schemas import HealthFigure, HealthReport
from pipelines.monitor.histogram import Histogram

HALF_S = 30.0
"""Length of one half: figures cover the last 30 to 60 s."""
FEW = 20
"""With fewer pictures, figures are not judged."""
TOO_LITTLE = "too little was measured in the last minute"


@dataclass(slots=True)
class _Half:
    """Sums of 30 s: seconds of a busy device, batches by size, waits of pictures."""

    since_s: float
    busy_s: float = 0.0
    sizes: Counter[int] = field(default_factory=Counter)
    waits: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True)
class MinuteFigures:
    """Measurements of the last `seconds`, 30 to 60. busy_s: time in which a worker was busy, average of all workers.
    batch_size: the batch size of the median picture. None: nothing was measured."""

    seconds: float
    busy_s: float
    pictures: int
    batch_size: int | None
    queue_wait_p99_s: float | None


class LastMinute:
    """Measurements of the last minute, in two halves: their memory never grows. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._halves = [_Half(clock()), _Half(clock())]

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch of `size` pictures that kept a device busy for `seconds`."""
        with self._lock:
            half = self._now()
            half.busy_s += seconds
            half.sizes[size] += 1

    def waited(self, seconds: float) -> None:
        """Count the wait of a picture: for a decoding thread, and for its batch."""
        with self._lock:
            self._now().waits.add(seconds)

    def figures(self) -> MinuteFigures:
        """The figures of both halves."""
        with self._lock:
            self._now()
            older, newer = self._halves
            sizes, waits = older.sizes + newer.sizes, Histogram()
            waits.merge(older.waits)
            waits.merge(newer.waits)
            seconds, busy_s = self._clock() - older.since_s, older.busy_s + newer.busy_s
        pictures = sum(size * count for size, count in sizes.items())
        return MinuteFigures(seconds, busy_s, pictures, _median_size(sizes), waits.quantile(0.99))

    def _now(self) -> _Half:
        """The newer half, in which measurements count. Call with the lock held."""
        now = self._clock()
        newer = self._halves[1]
        if now - newer.since_s >= HALF_S:
            # After a pause of a minute both halves are old.
            self._halves = [newer if now - newer.since_s < 2 * HALF_S else _Half(now), _Half(now)]
        return self._halves[1]


def _median_size(sizes: Counter[int]) -> int | None:
    """The batch size of the median picture. sizes: the number of batches by size."""
    pictures, counted = sum(size * count for size, count in sizes.items()), 0
    for size in sorted(sizes):
        counted += size * sizes[size]
        if 2 * counted >= pictures:
            return size
    return None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure with its healthy range (least, most; None: no bound), and hints for values below and above it."""

    name: str
    unit: str
    healthy: tuple[float | None, float | None]
    below: str
    above: str

    def judged(self, value: float | None, *, enough: bool) -> HealthFigure:
        """The figure with its value. enough: False if too little was measured to judge it."""
        least, most = self.healthy
        low = value is not None and least is not None and value < least
        high = value is not None and most is not None and value > most
        hint = self.below if low else self.above if high else "-"
        return HealthFigure(
            value=None if value is None else round(value, 4),
            unit=self.unit,
            healthy=self.healthy,
            ok=not (low or high) if enough and value is not None else None,
            hint=hint if enough else TOO_LITTLE,
        )


FIGURES = (
    Figure(
        "device_use",
        "share",
        (0.70, 0.90),
        "the devices have time left: fewer --workers will do, or there is room for more requests",
        "the devices are nearly always busy: add --workers on further devices, or a faster --precision",
    ),
    Figure(
        "batch_size",
        "pictures",
        (16, 64),
        "batches are small: more concurrent requests fill them, or a longer --max-wait-ms (a device whose time grows with "
        "every picture, as a CPU's does, gains nothing by larger ones)",
        "batches are large: a smaller --max-batch answers sooner",
    ),
    Figure(
        "queue_wait_p99_ms",
        "ms",
        (None, 5),
        "-",
        "requests wait long: for a decoding thread (smaller pictures, more cores), or for their batch (a shorter "
        "--max-wait-ms, a smaller --max-batch, more --workers)",
    ),
    Figure(
        "device_memory",
        "share",
        (None, 0.85),
        "-",
        "memory is nearly full: a smaller --max-batch, or fewer --workers on this device",
    ),
)


def report(minute: MinuteFigures, memory: float | None) -> HealthReport:
    """The health report. memory: share of the fullest device's memory that is in use, 0-1; None if it is unknown."""
    enough = minute.pictures >= FEW
    values = {
        "device_use": min(1.0, minute.busy_s / minute.seconds) if minute.seconds > 0 else None,
        "batch_size": minute.batch_size,
        "queue_wait_p99_ms": None if minute.queue_wait_p99_s is None else 1e3 * minute.queue_wait_p99_s,
        "device_memory": memory,
    }
    figures = {f.name: f.judged(values[f.name], enough=enough or f.name == "device_memory") for f in FIGURES}
    healthy = all(f.ok is not False for f in figures.values())
    return HealthReport(healthy, round(minute.seconds, 1), minute.pictures, figures)
