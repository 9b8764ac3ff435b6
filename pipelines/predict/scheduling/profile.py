"""Profile: the measured time l(b) of a batch of b rows, the base of every decision of the scheduler.

It is measured once on the warm, idle engine, then follows the running system: decoders and encoders share the cores,
so a table from an idle machine is wrong as soon as they work. One ratio is followed, measured over expected time of the
last batches of any size: few sizes occur often enough to keep statistics of their own.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.predict.scheduling.tuning import DEFAULT, Tuning

LEAST_S = 1e-6
"""Lower limit of a batch's time, for a probe that takes no time: rates are computed from these times."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one batch, warm."""

    median_s: float
    p99_s: float


class Profile:
    """l(b) in seconds for every b up to `max_batch`. Written by the completion thread, read by the predictor's thread.

    pads: the engine runs only the sizes in `table`, and a batch in between costs as much as the next larger size; otherwise
    times between two sizes are interpolated. Beyond the largest measured size the last slope goes on.
    """

    def __init__(self, table: Mapping[int, Timing], max_batch: int, *, pads: bool = False, tuning: Tuning = DEFAULT) -> None:
        if not table or min(table) != 1:
            raise ValueError(f"a profile needs the time of a batch of 1, got sizes {sorted(table)}")
        self.table = dict(sorted(table.items()))
        self.max_batch = max_batch
        self._tuning = tuning
        self._median = [max(_at(self.table, b, "median_s", pads), LEAST_S) for b in range(1, max_batch + 1)]
        self._p99 = [max(_at(self.table, b, "p99_s", pads), LEAST_S) for b in range(1, max_batch + 1)]
        self._ratios: deque[tuple[float, float]] = deque()
        self._ranked: list[float] = []
        """The ratios in order: sorting them for each batch took 0.1 ms of the completion thread."""
        self._ratio_median: float | None = None
        self._ratio_p99: float | None = None

    def median(self, b: int) -> float:
        """Seconds that half of the batches of b take now. More than `max_batch` rows run as several batches."""
        return self._taken(self._median, b) * (self._ratio_median or 1.0)

    def p99(self, b: int) -> float:
        """Seconds within which 99 of 100 batches of b end now. More than `max_batch` rows run as several batches."""
        ratio = self._ratio_p99  # once: the completion thread may reset it
        return self._taken(self._median, b) * ratio if ratio else self._taken(self._p99, b)

    def alone(self, b: int) -> float:
        """Seconds of a batch of b on the idle machine, without the last batches."""
        return self._taken(self._median, b)

    def _taken(self, seconds: Sequence[float], b: int) -> float:
        if b <= self.max_batch:
            return seconds[b - 1]
        full, rest = divmod(b, self.max_batch)
        return full * seconds[-1] + (seconds[rest - 1] if rest else 0.0)

    @property
    def slowdown(self) -> float:
        """Time of a batch now over its time on the idle machine: above 1 if other threads want the same cores."""
        return self._ratio_median or 1.0

    def observe(self, b: int, seconds: float, now_s: float) -> None:
        """Count a batch of b rows that ended at `now_s` after `seconds`."""
        ratio, ranked = seconds / self._median[b - 1], self._ranked
        self._ratios.append((now_s, ratio))
        bisect.insort(ranked, ratio)
        oldest_s = now_s - self._tuning.ratio_memory_s
        while self._ratios[0][0] < oldest_s or len(self._ratios) > self._tuning.ratio_window:
            del ranked[bisect.bisect_left(ranked, self._ratios.popleft()[1])]
        if len(ranked) < self._tuning.ratios:
            self._ratio_median = self._ratio_p99 = None
            return
        self._ratio_median = ranked[len(ranked) // 2]
        self._ratio_p99 = ranked[int(0.99 * (len(ranked) - 1))]

    @property
    def best_batch(self) -> int:
        """The batch size of files: a row costs hardly more in it than in the cheapest size."""
        return self.good_batch(self._tuning.good_enough)

    def good_batch(self, within: float) -> int:
        """The smallest measured size in which a row, with its share of handling, costs at most `within` times as much as in
        the cheapest size."""
        cost = {b: (self._median[b - 1] + self._tuning.handling_s) / b for b in self.table if b <= self.max_batch}
        least = min(cost.values())
        return next(b for b in cost if cost[b] <= within * least)

    def as_ms(self) -> dict[str, float]:
        """The measured medians by size, for people."""
        return {str(b): round(1e3 * t.median_s, 3) for b, t in self.table.items()}


def _at(table: Mapping[int, Timing], b: int, field: str, pads: bool) -> float:
    sizes = list(table)
    times = [float(getattr(table[s], field)) for s in sizes]
    k = bisect.bisect_left(sizes, b)
    if k < len(sizes) and (pads or sizes[k] == b):
        return times[k]
    if len(sizes) == 1:
        return times[0] * b
    hi = min(k, len(sizes) - 1)
    lo = hi - 1
    slope = (times[hi] - times[lo]) / (sizes[hi] - sizes[lo])
    return max(times[lo] + slope * (b - sizes[lo]), times[0])


def measured_sizes(max_batch: int) -> list[int]:
    """1, 2, 4, ... up to and with `max_batch`."""
    sizes = [1]
    while sizes[-1] < max_batch:
        sizes.append(min(2 * sizes[-1], max_batch))
    return sizes
