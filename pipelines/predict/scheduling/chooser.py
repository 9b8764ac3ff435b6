"""BatchChooser: the frames of the next batch among those that wait. Plain functions of the time, for cameras and requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipelines.predict.scheduling.forecast import Forecast
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Entry
from pipelines.predict.scheduling.tuning import Tuning

Limits = Mapping[int, float]
"""The time at which the batch of an entry must end, by the id of the entry."""


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """Entries that run together. bold: entries that were too close to their deadlines were left behind."""

    entries: list[Entry]
    bold: bool = False


class BatchChooser:
    """Counts rows: an entry of three regions fills three places of a batch. An entry of more rows than `most` runs alone."""

    def __init__(self, device: Forecast, profile: Profile, tuning: Tuning) -> None:
        self._device = device
        self._profile = profile
        self._tuning = tuning

    def rate(self, rows: int) -> float:
        """Rows per second in batches of this size."""
        return self._device.parallel * rows / self._profile.median(rows)

    def choose(self, now: float, ready: Sequence[Entry], limits: Limits, most: int, demand: float) -> BatchChoice:
        """As many entries as still meet the earliest deadline among them, in the order of `ready`, in at most `most` rows.

        If so small a batch serves less than `demand` rows per second, and a larger one clearly more, the entries that are
        too close to their deadlines for the larger one are left behind. Without that, an overloaded device with a large cost
        per batch falls into ever smaller batches: 96 streams on one that can serve 53 were served 33 % of their frames
        instead of 55 %. `ready` is not empty.
        """
        gentle = self._gentle(now, ready, limits, most)
        rows = sum(e.rows for e in gentle)
        if len(gentle) == len(ready) or rows >= most or self.rate(rows) >= demand:
            return BatchChoice(gentle)
        total = min(sum(e.rows for e in ready), most)
        for n in range(total, rows, -1):
            if self.rate(n) < self._tuning.bold_gain * self.rate(rows):
                break
            # By the median: a frame that may be late in a slow batch is still better than one that is dropped for sure.
            end_s = self._device.end_s(now, n, self._profile.median(n))
            in_time = [e for e in ready if limits[id(e)] >= end_s]
            if sum(e.rows for e in in_time) >= n:
                return BatchChoice(filled(in_time, n), bold=True)
        return BatchChoice(gentle)

    def _gentle(self, now: float, ready: Sequence[Entry], limits: Limits, most: int) -> list[Entry]:
        earliest, rows, chosen = limits[id(ready[0])], ready[0].rows, 1
        for entry in ready[1:]:
            rows += entry.rows
            earliest = min(earliest, limits[id(entry)])
            if rows > most or self._device.end_s(now, rows, self._profile.p99(rows)) > earliest:
                break
            chosen += 1
        return list(ready[:chosen])


def filled(entries: Sequence[Entry], most: int) -> list[Entry]:
    """The first entries that fit into `most` rows, at least one."""
    fit = sum(rows <= most for rows in accumulate(e.rows for e in entries))
    return list(entries[: max(fit, 1)])
