"""Upper bounds of the number of streams, in closed form, and the fairness of their shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.predict.scheduling.profile import Profile

ROUNDING = 1e-9
"""Slack before a quotient is cut to a whole number: 0.04 / 0.002 is 19.99..."""


@dataclass(frozen=True, slots=True)
class Ideal:
    """The most streams that could be served. device: bound by the time of batches; cores: bound by the CPU time of all parts,
    not a whole number."""

    device: int
    cores: float

    @property
    def streams(self) -> int:
        """The smaller of the two, in whole streams."""
        return min(self.device, math.floor(self.cores + ROUNDING))


def by_device(profile: Profile, period_s: float, budget_s: float, parallel: int = 1) -> int:
    """Streams of one frame a period: max over b of b * T / l(b), where l(b) is within the budget, times the batches that are
    computed side by side.

    A batch longer than the budget has late frames. Batches of b process b / l(b) frames a second at most, and N streams send
    N / T. If l(b) = a + beta b and batches may be of any size, that is (T / beta) (1 - a / S).
    """
    return max((math.floor(parallel * b * period_s / s + ROUNDING) for b, s in _within(profile, budget_s)), default=0)


def in_step(profile: Profile, period_s: float, budget_s: float, parallel: int = 1) -> int:
    """The same if each stream has its place in one batch of every period: max over b of b * floor(T / l(b)).

    No bound: batches that run on over the period's end reach more. 8 + 0.5 b ms: 48 in step, and 53 have been served.
    """
    return max((parallel * b * math.floor(period_s / s + ROUNDING) for b, s in _within(profile, budget_s)), default=0)


def _within(profile: Profile, budget_s: float) -> list[tuple[int, float]]:
    return [(b, s) for b in range(1, profile.max_batch + 1) if (s := profile.median(b)) <= budget_s]


def by_cores(parts_ms: Mapping[str, float], cores: int, period_s: float) -> float:
    """Streams that c cores can serve: 1000 c T / sum of the parts' CPU milliseconds a frame."""
    return 1e3 * cores * period_s / max(sum(parts_ms.values()), ROUNDING)


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness, (sum x)^2 / (n sum x^2). 1: all are equal (also all 0); 1/n: one has everything."""
    squares = sum(x * x for x in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0
