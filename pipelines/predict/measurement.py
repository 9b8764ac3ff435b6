"""Measurement of l(b) on the warm, idle engine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from pipelines.predict.scheduling.profile import Profile, Timing, measured_sizes

MEASURE_S = 0.15
RUNS = 15
"""Time to measure one size, and its runs at most."""


def measure(
    run: Callable[[int], float],
    warm: Sequence[int],
    max_batch: int,
    *,
    pads: bool,
    limit_s: float,
    keep_on: Callable[[], bool],
    known: Mapping[int, Timing] | None = None,
) -> Profile:
    """Warm the engine at every size in `warm`, then measure.

    run: runs one batch of b and returns its seconds. After half of `limit_s`, larger sizes are neither warmed nor measured,
    and their time is extrapolated. known: figures of an earlier start; they replace the measurement if a check at the
    smallest size agrees within a quarter. keep_on: asked before each run; False ends early.
    """
    clock = _Stopwatch(run, limit_s, keep_on)
    wanted = set(measured_sizes(max_batch))
    warmed = clock.warm(sorted(set(warm) | wanted))
    kept = _confirmed(known or {}, clock, warmed)
    table = kept | clock.timed([b for b in warmed if (b in wanted or pads) and b not in kept])
    table.setdefault(1, Timing(clock.first_s, clock.first_s))
    return Profile(table, max_batch, pads=pads)


def _confirmed(known: Mapping[int, Timing], clock: _Stopwatch, warmed: Sequence[int]) -> dict[int, Timing]:
    """The known figures, with a new one for a batch of 1, if that agrees with the known one."""
    if 1 not in known:
        return {}
    check = clock.timed([1], counted=False).get(1)
    if check is None or not 0.8 < check.median_s / known[1].median_s < 1.25:
        return {}
    return {b: known[b] for b in warmed if b in known} | {1: check}


class _Stopwatch:
    """Runs batches, and counts their time against the limit."""

    def __init__(self, run: Callable[[int], float], limit_s: float, keep_on: Callable[[], bool]) -> None:
        self.first_s = math.inf
        """The shortest batch of the warm-up."""
        self._run = run
        self._limit_s = limit_s
        self._keep_on = keep_on
        self._spent_s = 0.0

    def warm(self, sizes: Iterable[int]) -> list[int]:
        """Run each size once, the smallest first; the sizes that were reached in half the limit, at least one."""
        warmed: list[int] = []
        for b in sizes:
            if warmed and (self._spent_s > self._limit_s / 2 or not self._keep_on()):
                break
            took_s = self._run(b)
            self._spent_s += took_s
            self.first_s = min(self.first_s, took_s)
            warmed.append(b)
        return warmed

    def timed(self, sizes: Sequence[int], *, counted: bool = True) -> dict[int, Timing]:
        """The timing of each size. The sizes are run in turn, so that a slow moment of the machine meets all of them: decisions
        depend above all on the shape of the profile. counted: against the limit of later calls."""
        times: dict[int, list[float]] = {b: [] for b in sizes}
        spent_s = self._spent_s
        for _ in range(RUNS):
            for b in sizes:
                enough = len(times[b]) > 1 and sum(times[b]) >= MEASURE_S
                if not enough and (self._keep_on() and (spent_s <= self._limit_s or not times[sizes[0]])):
                    times[b].append(self._run(b))
                    spent_s += times[b][-1]
        if counted:
            self._spent_s = spent_s
        return {b: Timing(statistics.median(t), max(t)) for b, t in times.items() if t}
