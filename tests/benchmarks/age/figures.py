"""Shared by all rows: the options, and how figures are computed."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

SETTLE_S = 2.0
"""Seconds at the beginning that do not count: readers deliver the pictures that they kept while probing."""
Figures = dict[str, str | float | int | None]
"""The cells of a line of a table, by column."""


@dataclass(frozen=True, slots=True)
class Given:
    """seconds: length of each measurement. runs: number of times that each is made."""

    seconds: int
    runs: int


def quantile(values: Collection[float], q: float) -> float | None:
    """The value that a share `q` of all values does not exceed (nearest rank), to a tenth; None without values."""
    if not values:
        return None
    return round(sorted(values)[max(math.ceil(q * len(values)) - 1, 0)], 1)


def mean(values: Collection[float]) -> float | None:
    """The mean, to a hundredth; None without values."""
    return round(sum(values) / len(values), 2) if values else None
