"""The next batch of cameras and files, and its time: plain functions of the time and of the waiting frames.

Every decision compares deadlines with the profile's l(b) and with the measured time after the engine (render and sinks) of
the stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import islice

from pipelines.frame import Cause
from pipelines.predict.scheduling.chooser import BatchChooser, filled
from pipelines.predict.scheduling.forecast import Forecast
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Entry, StreamQueue, rows_of
from pipelines.predict.scheduling.request_policy import Decision, RequestPolicy
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions

Drops = tuple[tuple[Entry, Cause], ...]
"""Frames that are given up, each with its cause."""


class SchedulePolicy:
    """Decides for the streams of one device, and asks `RequestPolicy` if no camera is ready. It changes nothing. Called with
    the scheduler's lock held."""

    def __init__(
        self,
        streams: Mapping[str, StreamQueue],
        requests: RequestPolicy,
        device: Forecast,
        profile: Profile,
        options: SchedulerOptions,
        fill: int,
    ) -> None:
        """fill: rows of a file batch."""
        self._streams = streams
        self._requests = requests
        self._device = device
        self._profile = profile
        self._options = options
        self._tuning = options.tuning
        self._chooser = BatchChooser(device, profile, options.tuning)
        self._max = min(options.max_batch, profile.max_batch)
        self._fill = fill

    def decide(self, now: float) -> Decision:
        """The next batch at `now`, or the time to look again."""
        if self._device.running >= self._options.slots:
            return Decision()
        live_open = any(s.live and (s.open or s.waiting) for s in self._streams.values())
        if (live_open or self._requests.waiting) and self._device.busy:
            # Live frames and requests are bound as late as possible: the next batch is staged while the last one ends, not
            # before. It will be about as large as the running one. Never only after its end, however cheap staging is: fifty
            # lanes wake then for their answers, and the device would wait 2-6 ms for the interpreter (48 streams on a
            # device for 50: goodput 0.955; so: 0.998).
            begin_s = self._device.free_s - self._device.last * self._device.stage_s - self._tuning.wake_s
            if now < begin_s:
                return Decision(wake_s=begin_s)
        ready, drops = self._live_candidates(now)
        if ready:
            batch = self._live_batch(now, ready)
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

    def _live_candidates(self, now: float) -> tuple[list[Entry], Drops]:
        """Live frames that may run, ordered by recent service of their stream, then by its last service, then by arrival; and
        the frames that are too late."""
        ready: list[Entry] = []
        late: list[tuple[Entry, Cause]] = []
        for s in self._streams.values():
            if not s.live or not s.waiting or s.ahead >= self._tuning.lane_ahead:
                continue
            entry = s.waiting[0]
            # "Too late" is judged by the median, not by the 99th percentile: a frame that will probably be in time is worth a
            # try, since dropped counts no better than late.
            if self._ends_s(now, entry.rows) + s.after_s <= self._deadline(entry, now):
                ready.append(entry)
            else:
                late.append((entry, "deadline"))
        ready.sort(key=lambda e: ((s := self._of(e)).served, s.served_s, e.frame.trace.arrived_s))
        return ready, tuple(late)

    def _ends_s(self, now: float, rows: int) -> float:
        """The likely end of a batch of this many rows that is taken now."""
        return self._device.end_s(now, rows, self._profile.median(rows))

    def _of(self, entry: Entry) -> StreamQueue:
        return self._streams[entry.frame.stream]

    def _deadline(self, entry: Entry, now: float) -> float:
        s = self._of(entry)
        deadline = entry.frame.trace.arrived_s + s.budget_s
        if s.ahead == 0 and now - s.shown_s >= self._tuning.blind_s:
            # The stream is blind: as if the frame arrived now, and never more pressing than that, so that it makes no other
            # frame late.
            return max(deadline, now + s.budget_s, self._ends_s(now, entry.rows) + s.after_s)
        return deadline

    def _live_batch(self, now: float, ready: list[Entry]) -> list[Entry]:
        limits = {id(e): self._deadline(e, now) - self._of(e).after_s for e in ready}
        return self._chooser.choose(now, ready, limits, self._max, self._demand()).entries

    def _demand(self) -> float:
        """Rows per second that the live streams send."""
        return sum(s.rows / s.period_s for s in self._streams.values() if s.live and s.open and s.period_s)

    def _worth_waiting(self, now: float, batch: list[Entry]) -> float | None:
        """The time until which waiting for a further live frame is free; None: run now.

        Free means: the device ends sooner with one batch of both than with this batch now and the late frame alone, so the
        wait is shorter than the fixed cost that it saves; and all would still end within half the budget. Half, because a
        frame that arrives just after a batch began waits for that batch before its own.
        """
        n = rows_of(batch)
        if n >= self._max:
            return None
        coming = [s for s in self._streams.values() if self._may_come(s)]
        oldest = min(e.frame.trace.arrived_s for e in batch)
        if self._options.max_wait_s is not None:
            until = oldest + self._options.max_wait_s
            return until if coming and now < until else None
        grace_s = self._tuning.grace_s
        arrivals = [(t, s.rows) for s in coming if (t := s.expected_s(now)) is not None and t + grace_s > now]
        if not arrivals:
            return None
        arrival, further = min(arrivals)
        arrival += grace_s
        budget_s = min(self._of(e).budget_s for e in batch)
        if self._profile.slowdown >= self._tuning.contended and arrival <= oldest + self._tuning.linger * budget_s:
            return arrival
        if n + further > self._max:
            return None
        saved = self._profile.median(n) + self._profile.median(further) - self._profile.median(n + further)
        after = max(self._of(e).after_s for e in batch)
        if arrival - now >= saved or arrival + self._profile.p99(n + further) + after > oldest + budget_s / 2:
            return None
        return arrival

    def _may_come(self, s: StreamQueue) -> bool:
        """Whether a further frame of this stream could join the next batch."""
        return s.live and s.open and not s.waiting and s.ahead < self._tuning.lane_ahead

    def _file_batch(self, now: float, live_open: bool) -> tuple[list[Entry], float | None]:
        """The next file batch, or the time to look again. Oldest frames first: files of equal room get equal shares."""
        files = [s for s in self._streams.values() if not s.live]
        # Each stream's frames are in order already. Sorting all of them, 128 a file, took 2 ms a decision with 16 files.
        oldest = heapq.merge(*(s.waiting for s in files), key=lambda e: e.submitted_s)
        waiting = list(islice(oldest, max(self._fill, 1)))
        if not waiting:
            return [], None
        size = self._room_for_files(now) if live_open else self._fill
        if size < waiting[0].rows and live_open:
            starved = max(waiting[0].submitted_s, *(s.served_s for s in files)) + self._tuning.starved_s
            if now < starved:
                return [], starved
            return waiting[:1], None
        until = waiting[0].submitted_s + self._tuning.fill_wait_s
        if rows_of(waiting) < size and now < until and any(s.can_come for s in files):
            return [], until
        return filled(waiting, size), None

    def _room_for_requests(self, now: float, live_open: bool) -> int:
        """Rows of the largest batch of requests. Beside cameras it is as short as a file's, but never 0: a single request
        takes no longer than the frame of a further camera."""
        return max(self._room_for_files(now), 1) if live_open else self._max

    def _room_for_files(self, now: float) -> int:
        """Rows of the largest file batch that makes no camera's frame late: it ends before the next frame is expected, or a
        camera's frame that arrives right after its start still ends within the budget. 0 behind a running batch."""
        if self._device.busy:
            return 0
        live = [s for s in self._streams.values() if s.live and s.open]
        expected_s = min((t for s in live if (t := s.expected_s(now)) is not None), default=now)
        together = max(1, min(sum(s.rows for s in live), self._max))
        after_s = self._profile.p99(together) + max((s.after_s for s in live), default=0.0)
        budget_s = min((s.budget_s for s in live), default=self._options.budget_s)
        latest_s = max(expected_s, now + self._tuning.reserve * budget_s - after_s)
        ends = ((b, self._device.end_s(now, b, self._profile.p99(b))) for b in range(1, self._fill + 1))
        return max((b for b, end_s in ends if end_s <= latest_s), default=0)
