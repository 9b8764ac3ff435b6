"""Histograms of times, in buckets with bounds that grow by a thousandth: exact to 0.05 %, of a fixed size."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.monitor.reports import LatencyFigures

STEP = math.log(1.001)
LEAST_S = 1e-6
LONGEST_S = 1e4
BUCKETS = int(math.log(LONGEST_S / LEAST_S) / STEP) + 1
"""180 kB a histogram. A table of the used buckets alone would grow for an hour, to more."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The values of a histogram at one moment. It can be pickled, compared and merged; its size follows from the number of
    different values."""

    buckets: bytes = b""
    """Indices of the buckets with values, uint16, ascending."""
    counts: bytes = b""
    """Number of values in each of these buckets, uint64."""
    count: int = 0
    max_s: float = 0.0

    @staticmethod
    def of(dense: npt.NDArray[np.uint64], count: int, max_s: float) -> Distribution:
        """From the number of values in every bucket, (BUCKETS,)."""
        used = np.flatnonzero(dense)
        return Distribution(used.astype(np.uint16).tobytes(), dense[used].tobytes(), count, max_s)

    @staticmethod
    def merged(parts: Iterable[Distribution]) -> Distribution:
        """All values of all parts."""
        dense, count, max_s = np.zeros(BUCKETS, np.uint64), 0, 0.0
        for part in parts:
            dense[np.frombuffer(part.buckets, np.uint16)] += np.frombuffer(part.counts, np.uint64)
            count, max_s = count + part.count, max(max_s, part.max_s)
        return Distribution.of(dense, count, max_s)

    def quantile(self, q: float) -> float | None:
        """The value in seconds that a share `q` of all values does not exceed (nearest rank); None without values."""
        if not self.count:
            return None
        ranks = np.cumsum(np.frombuffer(self.counts, np.uint64))
        place = int(np.searchsorted(ranks, max(math.ceil(q * self.count), 1)))
        bucket = int(np.frombuffer(self.buckets, np.uint16)[place])
        middle_s = LEAST_S * math.exp((bucket + 0.5) * STEP)
        return min(middle_s, self.max_s) if bucket < BUCKETS - 1 else self.max_s

    def figures(self) -> LatencyFigures:
        """Percentiles, maximum and number, in milliseconds."""
        if not self.count:
            return LatencyFigures()
        p50, p95, p99 = (_ms(self.quantile(q)) for q in (0.5, 0.95, 0.99))
        return LatencyFigures(p50, p95, p99, _ms(self.max_s), self.count)


class Histogram:
    """Counts times in seconds. Its size never changes. It has no lock: its owner's lock guards it."""

    def __init__(self) -> None:
        # An array of Python's: to add one to an item of a numpy array takes three times as long.
        self._buckets = array("Q", bytes(8 * BUCKETS))
        self.count = 0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one time; below a microsecond it counts as one, above LONGEST_S it counts as the largest."""
        if seconds > self.max_s:
            self.max_s = seconds
        within = LEAST_S if seconds < LEAST_S else LONGEST_S if seconds > LONGEST_S else seconds
        self._buckets[int(math.log(within / LEAST_S) / STEP)] += 1
        self.count += 1

    def merge(self, other: Histogram) -> None:
        """Add all values of another histogram."""
        counts = np.frombuffer(self._buckets, np.uint64)
        counts += np.frombuffer(other._buckets, np.uint64)
        self.count += other.count
        self.max_s = max(self.max_s, other.max_s)

    def frozen(self) -> Distribution:
        """A copy of the values."""
        return Distribution.of(np.frombuffer(self._buckets, np.uint64), self.count, self.max_s)

    def quantile(self, q: float) -> float | None:
        """See `Distribution.quantile`."""
        return self.frozen().quantile(q)

    def figures(self) -> LatencyFigures:
        """See `Distribution.figures`."""
        return self.frozen().figures()


def _ms(seconds: Any) -> float:
    return round(1e3 * seconds, 3)
