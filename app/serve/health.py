"""The last minute of the service, and the four figures that operators are told to watch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipelines.monitor import Histogram

HALF_S = 30.0
"""Figures are of the last 30 to 60 s."""
FEW = 20
"""Pictures below which figures mean nothing."""
NOTHING = "too little was measured in the last minute"


@dataclass(slots=True)
class _Half:
    since_s: float
    busy_s: float = 0.0
    sizes: Counter[int] = field(default_factory=Counter)
    waits: Histogram = field(default_factory=Histogram)


@dataclass(frozen=True, slots=True)
class Minute:
    """What was measured. `seconds`: over how long; `busy_s`: of a worker, on average; `batch_size`: of the batch that the
    middle picture rode in; None: nothing was measured."""

    seconds: float
    busy_s: float
    pictures: int
    batch_size: int | None
    queue_wait_p99_s: float | None


class Recent:
    """What is measured, kept for a minute in two halves: its size never changes. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._halves = [_Half(clock()), _Half(clock())]

    def batch(self, size: int, seconds: float) -> None:
        """A batch of `size` kept a device busy for `seconds`."""
        with self._lock:
            half = self._now()
            half.busy_s += seconds
            half.sizes[size] += 1

    def waited(self, seconds: float) -> None:
        """A picture waited so long: for a decoding thread, and for its batch."""
        with self._lock:
            self._now().waits.add(seconds)

    def minute(self) -> Minute:
        with self._lock:
            self._now()
            older, newer = self._halves
            sizes, waits = older.sizes + newer.sizes, Histogram()
            waits.merge(older.waits)
            waits.merge(newer.waits)
            seconds, busy_s = self._clock() - older.since_s, older.busy_s + newer.busy_s
        return Minute(seconds, busy_s, sum(b * n for b, n in sizes.items()), _middle(sizes), waits.quantile(0.99))

    def _now(self) -> _Half:
        """The half that is being filled. With the lock held."""
        now = self._clock()
        newer = self._halves[1]
        if now - newer.since_s >= HALF_S:
            # After a silence both are old.
            self._halves = [newer if now - newer.since_s < 2 * HALF_S else _Half(now), _Half(now)]
        return self._halves[1]


def _middle(sizes: Counter[int]) -> int | None:
    total, seen = sum(b * n for b, n in sizes.items()), 0
    for b in sorted(sizes):
        seen += b * sizes[b]
        if 2 * seen >= total:
            return b
    return None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure with the range in which a service is healthy, and what to turn where it is below or above."""

    name: str
    unit: str
    healthy: tuple[float | None, float | None]
    below: str
    above: str

    def as_dict(self, value: float | None, *, enough: bool) -> dict[str, Any]:
        least, most = self.healthy
        low = value is not None and least is not None and value < least
        high = value is not None and most is not None and value > most
        hint = self.below if low else self.above if high else "-"
        return {
            "value": None if value is None else round(value, 4),
            "unit": self.unit,
            "healthy": [least, most],
            "ok": not (low or high) if enough and value is not None else None,
            "hint": hint if enough else NOTHING,
        }


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
        "batches are small: more requests at once fill them, else a longer --max-wait-ms (a device whose time grows with "
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


def report(minute: Minute, memory: float | None) -> dict[str, Any]:
    """The health report. memory: share of the fullest device's memory in use."""
    enough = minute.pictures >= FEW
    values = {
        "device_use": min(1.0, minute.busy_s / minute.seconds) if minute.seconds > 0 else None,
        "batch_size": minute.batch_size,
        "queue_wait_p99_ms": None if minute.queue_wait_p99_s is None else 1e3 * minute.queue_wait_p99_s,
        "device_memory": memory,
    }
    figures = {f.name: f.as_dict(values[f.name], enough=enough or f.name == "device_memory") for f in FIGURES}
    return {
        "healthy": all(f["ok"] is not False for f in figures.values()),
        "seconds": round(minute.seconds, 1),
        "pictures": minute.pictures,
        "figures": figures,
    }
