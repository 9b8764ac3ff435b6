"""What the rows share: what was asked for, and how figures are made."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

SETTLE_S = 2.0
"""Not counted at the beginning: readers throw out what they held while probing."""
Figures = dict[str, str | float | int | None]
"""A line of a table, by column."""


@dataclass(frozen=True, slots=True)
class Given:
    """seconds: of each measurement. runs: how often each is made."""

    seconds: int
    runs: int


def quantile(values: Collection[float], q: float) -> float | None:
    """The value that `q` of all do not exceed (nearest rank), to a tenth; None without values."""
    if not values:
        return None
    return round(sorted(values)[max(math.ceil(q * len(values)) - 1, 0)], 1)


def mean(values: Collection[float]) -> float | None:
    """To a hundredth; None without values."""
    return round(sum(values) / len(values), 2) if values else None
