"""Which requests run next, how many, when; and which are refused at once: plain functions of the time and of what waits.

A request has a deadline of its own, and whoever sent it waits for the answer: none replaces another, the first deadline
goes first, and what cannot be answered in time is refused when it comes, not after it has waited.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipelines.frame import Cause
from pipelines.predict.scheduling.forecast import Forecast
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Entry, RequestQueue

Batching = Literal["dynamic", "fixed"]
BOLD_GAIN = 1.02
"""Requests are given up for a larger batch only if it is so much faster a request: never where time is a line through 0."""
GOOD = 1.15
"""Where time is nearly a line through 0, as on a CPU, batches of more are not worth it for somebody who waits."""
HEADROOM = 1.2
"""Batches are large enough if they could work off so many times what comes: arrivals come in bunches."""
OVERDUE = 2.0
"""Mean gaps without an arrival after which none is waited for any more."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Run `batch` now; or, if it is empty, look again at `wake_s` or when something changes. `drops` end either way."""

    batch: tuple[Entry, ...] = ()
    wake_s: float | None = None
    drops: tuple[tuple[Entry, Cause], ...] = ()


class RequestPolicy:
    """Decides for the requests of one device. It changes nothing; called with the scheduler's lock held.

    batching="dynamic": what waits runs when the device is free; a further request is waited for only while that is free, at
    most max_wait_s. "fixed": it waits for `most`, until max_wait_s after the first one came. Never for what cannot come.
    """

    def __init__(
        self,
        queues: Mapping[str, RequestQueue],
        device: Forecast,
        profile: Profile,
        most: int,
        *,
        batching: Batching = "dynamic",
        max_wait_s: float | None = None,
    ) -> None:
        self._queues = queues
        self._device = device
        self._profile = profile
        self._most = most
        self._batching = batching
        self._max_wait_s = math.inf if max_wait_s is None else max_wait_s
        self._good = profile.good_batch(GOOD)

    @property
    def waiting(self) -> bool:
        """Whether any request waits."""
        return any(q.waiting for q in self._queues.values())

    def end_s(self, now: float, queue: RequestQueue, deadline_s: float) -> float:
        """When a request that comes now should be answered, behind those that wait with an earlier deadline. Its own batch
        by the 99th percentile, and with those that will come until it begins: to be refused at once is better than to wait
        for nothing. (Without them a tenth of all requests expired at twice what an 8 + 0.5 b ms device can do.)

        But an idle device is tried wherever it could be in time alone: estimates that nothing renews, since all is refused,
        must not refuse for ever."""
        if not queue.waiting and not self._device.running:
            return now + self._profile.alone(1)
        before, among = divmod(queue.before(deadline_s), self._most)
        others_s = before * self._profile.median(self._most) if before else 0.0
        begins_s = self._device.end_s(now, 0, self._device.overdue_s(now) + others_s)
        n = min(among + 1 + int(queue.rate(now) * (begins_s - now)), self._most)
        return begins_s + n * self._device.stage_s + self._profile.p99(n)

    def decide(self, now: float, room: int) -> Decision:
        """What to do at `now`, in batches of at most `room`."""
        ready, drops = self._candidates(now)
        if not ready:
            return Decision(drops=drops)
        batch = self._fit(now, ready, min(room, self._most))
        until_s = self._worth_waiting(now, batch) if len(batch) == len(ready) else None
        if until_s is not None and now < until_s:
            return Decision(wake_s=until_s, drops=drops)
        return Decision(batch=tuple(batch), drops=drops)

    def _candidates(self, now: float) -> tuple[list[Entry], tuple[tuple[Entry, Cause], ...]]:
        """Requests that may run, first deadline first; and those that were cancelled or cannot be in time even alone."""
        waiting = sorted((e for q in self._queues.values() for e in q.waiting), key=lambda e: e.deadline_s)
        # By the median: what will probably make it is worth a try.
        takes_s = self._profile.median(1) if self._device.running else self._profile.alone(1)
        end_s = self._device.end_s(now, 1, takes_s)
        ready = [e for e in waiting if e.deadline_s >= end_s and not e.future.cancelled()]
        late = [e for e in waiting if e.deadline_s < end_s or e.future.cancelled()]
        return ready, tuple((e, "deadline") for e in late)

    def _fit(self, now: float, ready: list[Entry], most: int) -> list[Entry]:
        """As many as still meet the earliest deadline. Only where so small a batch works off less than comes, and a larger
        one clearly more, those are left behind that are too close to their deadlines for the larger one: else an overloaded
        device falls into ever smaller batches."""
        most = min(len(ready), most)
        n = 1
        while n < most and self._device.end_s(now, n + 1, self._profile.p99(n + 1)) <= ready[0].deadline_s:
            n += 1
        if n == most or self._works_off(n) >= self._demand(now):
            return ready[: self._enough(n, self._demand(now))]
        for bold in range(most, n, -1):
            if self._works_off(bold) < BOLD_GAIN * self._works_off(n):
                break
            end_s = self._device.end_s(now, bold, self._profile.median(bold))
            first = bisect.bisect_left(ready, end_s, key=lambda e: e.deadline_s)
            if len(ready) - first >= bold:
                return ready[first : first + bold]
        return ready[:n]

    def _enough(self, most: int, demand: float) -> int:
        """Of at most so many. In a larger batch a picture would cost hardly less, and the first would be answered when the last
        is; but as many as work off what comes."""
        if self._batching == "fixed":
            return most
        return next((n for n in range(min(self._good, most), most) if self._works_off(n) >= HEADROOM * demand), most)

    def _works_off(self, n: int) -> float:
        """Requests a second in batches of n."""
        return self._device.parallel * n / self._profile.median(n)

    def _demand(self, now: float) -> float:
        """Requests a second that are handed in, whether they are taken or not."""
        return sum(q.rate(now) for q in self._queues.values())

    def _worth_waiting(self, now: float, batch: list[Entry]) -> float | None:
        """Until when to wait for a further request; None, or a time that is over: run now."""
        n = len(batch)
        if n >= self._most or not any(q.can_come for q in self._queues.values()):
            return None
        first_s = min(e.submitted_s for e in batch)
        # All that wait would still end in time, if the next one came at the last moment.
        latest_s = batch[0].deadline_s - self._profile.p99(n + 1) - (n + 1) * self._device.stage_s
        until_s = min(first_s + self._max_wait_s, latest_s)
        if self._batching == "dynamic":
            free_s = self._free_until(now, n, first_s)
            if free_s is None:
                return None
            # Half of what there is, for a request that comes just after a batch began waits for that one before its own.
            until_s = min(until_s, free_s, first_s + (latest_s - first_s) / 2)
        return None if until_s == math.inf else until_s

    def _free_until(self, now: float, n: int, first_s: float) -> float | None:
        """Until when waiting is free: batches of n work off less than comes, and the next request comes sooner than the
        fixed cost of a batch that it saves. None where it is not."""
        demand = self._demand(now)
        saved_s = self._profile.median(n) + self._profile.median(1) - self._profile.median(n + 1)
        if demand <= self._works_off(n) or 1 / demand >= saved_s:
            return None
        last_s = max(q.last_arrival_s for q in self._queues.values())
        return min(first_s + saved_s, last_s + OVERDUE / demand)
