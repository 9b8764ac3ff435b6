"""The next batch of requests and its time, and which requests are refused at once: plain functions of the time.

A request has a deadline of its own, and its sender waits for the answer: none replaces another, the first deadline goes
first, and a request that cannot be answered in time is refused when it comes, not after it has waited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.frame import Cause
from pipelines.predict.scheduling.chooser import BatchChooser
from pipelines.predict.scheduling.forecast import Forecast
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Entry, RequestQueue, rows_of
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class Decision:
    """Run `batch` now; if it is empty, look again at `wake_s` or after a change. `drops` end in both cases."""

    batch: tuple[Entry, ...] = ()
    wake_s: float | None = None
    drops: tuple[tuple[Entry, Cause], ...] = ()


class RequestPolicy:
    """Decides for the requests of one device. It changes nothing. Called with the scheduler's lock held.

    batching="dynamic": the waiting requests run when the device is free; a further one is waited for only while that is free,
    at most max_wait_s. "fixed": a batch waits until it is full, at most max_wait_s after its first request came. Neither waits
    if no further request can come.
    """

    def __init__(
        self, queues: Mapping[str, RequestQueue], device: Forecast, profile: Profile, options: SchedulerOptions
    ) -> None:
        self._queues = queues
        self._device = device
        self._profile = profile
        self._tuning = options.tuning
        self._chooser = BatchChooser(device, profile, options.tuning)
        self._most = min(options.max_batch, profile.max_batch)
        self._batching = options.batching
        self._max_wait_s = math.inf if options.max_wait_s is None else options.max_wait_s
        self._good = profile.good_batch(options.tuning.good)

    @property
    def waiting(self) -> bool:
        """Whether any request waits."""
        return any(q.waiting for q in self._queues.values())

    def end_s(self, now: float, queue: RequestQueue, deadline_s: float, rows: int = 1) -> float:
        """The expected end of a request that comes now, behind the waiting ones with an earlier deadline. Its own batch is
        estimated by the 99th percentile, with the requests that will come until it begins: to be refused at once is better
        than to wait in vain. (Without them a tenth of all requests expired at twice the load of an 8 + 0.5 b ms device.)

        But an idle device is tried if the request could be in time alone: estimates that nothing renews, since all requests
        are refused, must not refuse for ever."""
        if not queue.waiting and not self._device.running:
            return now + self._profile.alone(rows)
        before, among = divmod(queue.rows_before(deadline_s), self._most)
        others_s = before * self._profile.median(self._most) if before else 0.0
        begins_s = self._device.end_s(now, 0, self._device.overdue_s(now) + others_s)
        n = max(min(among + rows + int(queue.rate(now) * (begins_s - now)), self._most), rows)
        return begins_s + n * self._device.stage_s + self._profile.p99(n)

    def decide(self, now: float, room: int) -> Decision:
        """The next batch at `now`, of at most `room` rows unless its first request has more."""
        ready, drops = self._candidates(now)
        if not ready:
            return Decision(drops=drops)
        batch = self._batch(now, ready, min(room, self._most))
        until_s = self._worth_waiting(now, batch) if len(batch) == len(ready) else None
        if until_s is not None and now < until_s:
            return Decision(wake_s=until_s, drops=drops)
        return Decision(batch=tuple(batch), drops=drops)

    def _candidates(self, now: float) -> tuple[list[Entry], tuple[tuple[Entry, Cause], ...]]:
        """Requests that may run, first deadline first; and those that are cancelled or would be late even alone."""
        waiting = sorted((e for q in self._queues.values() for e in q.waiting), key=lambda e: e.deadline_s)
        # By the median: a request that will probably be in time is worth a try.
        takes_s = self._profile.median if self._device.running else self._profile.alone
        ready: list[Entry] = []
        late: list[tuple[Entry, Cause]] = []
        for e in waiting:
            in_time = e.deadline_s >= self._device.end_s(now, e.rows, takes_s(e.rows)) and not e.future.cancelled()
            if in_time:
                ready.append(e)
            else:
                late.append((e, "deadline"))
        return ready, tuple(late)

    def _batch(self, now: float, ready: list[Entry], most: int) -> list[Entry]:
        demand = self._demand(now)
        limits = {id(e): e.deadline_s for e in ready}
        chosen = self._chooser.choose(now, ready, limits, most, demand)
        return chosen.entries if chosen.bold else self._enough(chosen.entries, demand)

    def _enough(self, entries: list[Entry], demand: float) -> list[Entry]:
        """The first of these, as many as serve the demand. In a larger batch a row would cost hardly less, and the first
        request would be answered with the last."""
        if self._batching == "fixed":
            return entries
        n = 0
        for k, entry in enumerate(entries, 1):
            n += entry.rows
            if n >= self._good and self._chooser.rate(n) >= self._tuning.headroom * demand:
                return entries[:k]
        return entries

    def _demand(self, now: float) -> float:
        """Rows per second that are handed in, taken or refused."""
        return sum(q.rate(now) for q in self._queues.values())

    def _worth_waiting(self, now: float, batch: list[Entry]) -> float | None:
        """The time until which to wait for a further request; None, or a time in the past: run now."""
        n = rows_of(batch)
        if n >= self._most or not any(q.can_come for q in self._queues.values()):
            return None
        first_s = min(e.submitted_s for e in batch)
        # All waiting requests would still end in time, if the next one came at the last moment.
        latest_s = batch[0].deadline_s - self._profile.p99(n + 1) - (n + 1) * self._device.stage_s
        until_s = min(first_s + self._max_wait_s, latest_s)
        if self._batching == "dynamic":
            free_s = self._free_until(now, n, first_s)
            if free_s is None:
                return None
            # Half of the time, because a request that comes just after a batch began waits for that one before its own.
            until_s = min(until_s, free_s, first_s + (latest_s - first_s) / 2)
        return None if until_s == math.inf else until_s

    def _free_until(self, now: float, n: int, first_s: float) -> float | None:
        """The time until which waiting is free: batches of n serve less than the demand, and the next request comes sooner
        than the fixed cost of a batch that it saves. None if it is not free."""
        demand = self._demand(now)
        saved_s = self._profile.median(n) + self._profile.median(1) - self._profile.median(n + 1)
        if demand <= self._chooser.rate(n) or 1 / demand >= saved_s:
            return None
        last_s = max(q.last_arrival_s for q in self._queues.values())
        return min(first_s + saved_s, last_s + self._tuning.overdue / demand)
