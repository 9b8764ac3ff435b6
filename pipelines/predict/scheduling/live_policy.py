"""Which frames run next, how many of them, and when: plain functions of the time and of what waits.

Every decision compares deadlines with the profile's l(b) and with what comes after the engine (render and sinks) as it
was measured on the stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from pipelines.frame import Cause
from pipelines.predict.scheduling.forecast import Forecast
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import BLIND_S, LANE_AHEAD, Entry, StreamQueue
from pipelines.predict.scheduling.request_policy import BOLD_GAIN, Batching, Decision, RequestPolicy

FILL_WAIT_S = 0.25
"""How long an idle device waits for a file batch to fill. Longer than any healthy decoder needs for one batch; a source
that is slower is the bottleneck itself, and waiting for it gains nothing."""
STARVED_S = 1.0
"""Beside cameras that leave no room, a file still gets one frame in so long: it must end some day."""
WAKE_S = 0.001
"""A thread that sleeps until a time wakes so much later at the worst, with fifty others that want the interpreter."""
GRACE_S = 0.002
"""An expected arrival may be so late before it is given up."""
CONTENDED = 1.25
LINGER = 0.15
"""Where batches take so many times as long as alone, decoders want the cores that they run on, and it is not the device that is
scarce: then a frame waits for such a share of the budget for a further one, for a batch of two costs less than two of one. Ten
720p cameras on 2 cores, int8, nine rounds: a frame's CPU time 7.1 ms instead of 7.3, mean goodput 0.97 instead of 0.95; with a
quarter of the budget 0.95."""
RESERVE = 0.9
"""Share of the budget that file batches may plan with; the rest is for decoding and the noise of the machine."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The promise and its limits. `max_wait_s`: classic policy for live frames, wait for a full batch at most so long
    (None: by deadlines)."""

    budget_s: float = 0.050
    max_batch: int = 32
    max_wait_s: float | None = None
    slots: int = 2
    """Batches that may be staged or running at once."""
    parallel: int = 1
    """Of these, how many the engine computes side by side."""
    batching: Batching = "dynamic"
    """Of requests: see `RequestPolicy`."""


class Policy:
    """Decides for the streams of one device, and asks `RequestPolicy` for what they leave. It changes nothing; called with
    the scheduler's lock held."""

    def __init__(
        self,
        streams: Mapping[str, StreamQueue],
        requests: RequestPolicy,
        device: Forecast,
        profile: Profile,
        options: SchedulerOptions,
    ) -> None:
        self._streams = streams
        self._requests = requests
        self._device = device
        self._profile = profile
        self._options = options
        self._max = min(options.max_batch, profile.max_batch)
        self.fill = min(profile.best_batch, self._max)
        """Frames of a file batch."""

    def decide(self, now: float) -> Decision:
        """What to do at `now`."""
        if self._device.running >= self._options.slots:
            return Decision()
        live_open = any(s.live and (s.open or s.waiting) for s in self._streams.values())
        if (live_open or self._requests.waiting) and self._device.busy:
            # Live frames and requests are bound as late as possible: the next batch is staged while the last one ends, not
            # before. It will be about as large as the running one. Never only after its end, however cheap staging is: fifty
            # lanes wake then for their answers, and the device would wait 2-6 ms for the interpreter (48 streams on a
            # device for 50: goodput 0.955, so: 0.998).
            begin_s = self._device.free_s - self._device.last * self._device.stage_s - WAKE_S
            if now < begin_s:
                return Decision(wake_s=begin_s)
        ready, drops = self._live_candidates(now)
        if ready:
            batch = self._fit(now, ready)
            wake = self._worth_waiting(now, batch)
            if wake is not None:
                return Decision(wake_s=wake, drops=drops)
            return Decision(batch=tuple(batch), drops=drops)
        if self._requests.waiting:
            requests = self._requests.decide(now, self._room_for_requests(now, live_open))
            if requests.batch or requests.wake_s is not None:
                return Decision(requests.batch, requests.wake_s, (*drops, *requests.drops))
            drops += requests.drops
        files, wake = self._file_batch(now, live_open)
        return Decision(batch=tuple(files), wake_s=wake, drops=drops)

    def _live_candidates(self, now: float) -> tuple[list[Entry], tuple[tuple[Entry, Cause], ...]]:
        """Live frames that may run, the stream served least lately first, then the one served longest ago, then the oldest;
        and those that are too late."""
        ready: list[Entry] = []
        late: list[tuple[Entry, Cause]] = []
        for s in self._streams.values():
            if not s.live or not s.waiting or s.ahead >= LANE_AHEAD:
                continue
            entry = s.waiting[0]
            # The median, not the 99th percentile, decides what "cannot" means: a frame that will probably make it is
            # worth a try, since dropped counts no better than late.
            if self._device.end_s(now, 1, self._profile.median(1)) + s.after_s <= self._deadline(entry, now):
                ready.append(entry)
            else:
                late.append((entry, "deadline"))
        ready.sort(key=lambda e: ((s := self._of(e)).served, s.served_s, e.frame.trace.arrived_s))
        return ready, tuple(late)

    def _of(self, entry: Entry) -> StreamQueue:
        return self._streams[entry.frame.stream]

    def _deadline(self, entry: Entry, now: float) -> float:
        s = self._of(entry)
        deadline = entry.frame.trace.arrived_s + self._options.budget_s
        if s.ahead == 0 and now - s.shown_s >= BLIND_S:
            # Blind: as if it arrived now, and never more pressing than that, so that it makes no other frame late.
            end_s = self._device.end_s(now, 1, self._profile.median(1)) + s.after_s
            return max(deadline, now + self._options.budget_s, end_s)
        return deadline

    def _fit(self, now: float, ready: list[Entry]) -> list[Entry]:
        """The frames of the next live batch. `ready` is not empty.

        As many as still meet the earliest deadline among them, first; nobody is left behind for that. Only where so
        small a batch works off less than the streams send, and a larger one clearly more, the frames that are too close
        to their deadlines for the larger one are given up. Without that, an overloaded device with a large cost per
        batch falls into ever smaller batches: 96 streams on one that can serve 53 were served 33 % of their frames
        instead of 55 %.
        """
        ends = {n: self._device.end_s(now, n, self._profile.p99(n)) for n in range(1, min(len(ready), self._max) + 1)}
        limits = {id(e): self._deadline(e, now) - self._of(e).after_s for e in ready}
        gentle = ready[:1]
        earliest = limits[id(ready[0])]
        for entry in ready[1 : self._max]:
            earliest = min(earliest, limits[id(entry)])
            if ends[len(gentle) + 1] > earliest:
                break
            gentle.append(entry)
        if len(gentle) == len(ends) or self._rate(len(gentle)) >= self._demand():
            return gentle
        for n in sorted(ends, reverse=True):
            if self._rate(n) < BOLD_GAIN * self._rate(len(gentle)):
                break
            # By the median: a frame that may be late in a slow batch is still better than one that is dropped for sure.
            end_s = self._device.end_s(now, n, self._profile.median(n))
            in_time = [e for e in ready if limits[id(e)] >= end_s]
            if len(in_time) >= n:
                return in_time[:n]
        return gentle

    def _rate(self, n: int) -> float:
        """Frames a second in batches of n."""
        return self._device.parallel * n / self._profile.median(n)

    def _demand(self) -> float:
        """Frames a second that the live streams send."""
        return sum(1 / s.period_s for s in self._streams.values() if s.live and s.open and s.period_s)

    def _worth_waiting(self, now: float, batch: list[Entry]) -> float | None:
        """Until when to wait for a further live frame, if that is free; None: run now.

        Free means: the device ends sooner with one batch of n + 1 than with n now and the late one alone, so the wait
        is shorter than the fixed cost that it saves; and all would still end within half the budget. Half, because a
        frame that arrives just after a batch began waits for that batch before its own.
        """
        n = len(batch)
        if n == self._max:
            return None
        coming = [s for s in self._streams.values() if s.live and s.open and not s.waiting and s.ahead < LANE_AHEAD]
        oldest = min(e.frame.trace.arrived_s for e in batch)
        if self._options.max_wait_s is not None:
            until = oldest + self._options.max_wait_s
            return until if coming and now < until else None
        arrivals = [t for s in coming if (t := s.expected_s(now)) is not None and t + GRACE_S > now]
        if not arrivals:
            return None
        arrival = min(arrivals) + GRACE_S
        if self._profile.slowdown >= CONTENDED and arrival <= oldest + LINGER * self._options.budget_s:
            return arrival
        saved = self._profile.median(n) + self._profile.median(1) - self._profile.median(n + 1)
        after = max(self._of(e).after_s for e in batch)
        if arrival - now >= saved:
            return None
        if arrival + self._profile.p99(n + 1) + after > oldest + self._options.budget_s / 2:
            return None
        return arrival

    def _file_batch(self, now: float, live_open: bool) -> tuple[list[Entry], float | None]:
        """The next file batch, or when to look again. Oldest frames first: equal shares, as every file has the same room."""
        files = [s for s in self._streams.values() if not s.live]
        # Each stream's are in order already. Sorting all of them, 128 a file, took 2 ms a decision with 16 files.
        oldest = heapq.merge(*(s.waiting for s in files), key=lambda e: e.submitted_s)
        waiting = list(islice(oldest, max(self.fill, 1)))
        if not waiting:
            return [], None
        size = self._room_for_files(now) if live_open else self.fill
        if size == 0:
            starved = max(waiting[0].submitted_s, *(s.served_s for s in files)) + STARVED_S
            if now < starved:
                return [], starved
            size = 1
        until = waiting[0].submitted_s + FILL_WAIT_S
        if len(waiting) < size and now < until and any(s.can_come for s in files):
            return [], until
        return waiting[:size], None

    def _room_for_requests(self, now: float, live_open: bool) -> int:
        """The largest batch of requests. Beside cameras they are as short as files, but never none: one of them takes no
        longer than the frame of a further camera."""
        return max(self._room_for_files(now), 1) if live_open else self._max

    def _room_for_files(self, now: float) -> int:
        """The largest file batch for which no camera's frame will be late: it ends before the next one is expected, or
        a camera's frame that arrives right after its start still ends within the budget. Never behind a running batch."""
        if self._device.busy:
            return 0
        live = [s for s in self._streams.values() if s.live and s.open]
        expected_s = min((t for s in live if (t := s.expected_s(now)) is not None), default=now)
        together = max(1, min(len(live), self._max))
        after_s = self._profile.p99(together) + max((s.after_s for s in live), default=0.0)
        latest_s = max(expected_s, now + RESERVE * self._options.budget_s - after_s)
        ends = ((b, self._device.end_s(now, b, self._profile.p99(b))) for b in range(1, self.fill + 1))
        return max((b for b, end_s in ends if end_s <= latest_s), default=0)
