"""DynamicBatchScheduler: which frames run next, how many of them, and when.

Measured, not believed: every decision compares deadlines with the profile's l(b) and with what comes after the engine
(render and sinks) as it was measured on the stream. Two kinds of stream, two policies:

- live: a mailbox of one. The newest frame wins, the one that it replaces is dropped (`overload`). A frame that cannot
  meet arrival + budget even alone is dropped before any work is spent on it (`deadline`), unless its stream has shown
  nothing for half a second: better late than blind.
- file: nothing is lost. `submit` blocks while the stream has enough on its way; batches are filled to the size with
  the best throughput; live frames go first, and beside them file batches stay so short that no camera's frame is late.

The clock is a parameter and `decide` is a plain function of it: every decision is tested without waiting.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from pipelines.errors import Dropped
from pipelines.frame import Cause, Frame, Prediction
from pipelines.predict.profile import Profile

BLIND_S = 0.5
"""A live stream that has shown nothing for so long is shown a late frame."""
LANE_AHEAD = 2
"""Results that a live stream's lane may have before it: with more, a frame would only age there; it waits here, where a
newer one can still replace it."""
FILL_WAIT_S = 0.25
"""How long an idle device waits for a file batch to fill. Longer than any healthy decoder needs for one batch; a source
that is slower is the bottleneck itself, and waiting for it gains nothing."""
STARVED_S = 1.0
"""Beside cameras that leave no room, a file still gets one frame in so long: it must end some day."""
BOLD_GAIN = 1.02
"""Frames are given up for a larger batch only if it is so much faster a frame: never where time is a line through 0."""
FORGET = 0.98
"""How much of what a stream was served counts after a further batch: the last 50 or so decide whose turn it is. The time of
the last service alone lets streams whose phase suits the batches have twice the share of others for ever (96 streams on a
device for 53: Jain's index 0.94; so: 1.00)."""
WAKE_S = 0.001
"""A thread that sleeps until a time wakes so much later at the worst, with fifty others that want the interpreter."""
GRACE_S = 0.002
"""An expected arrival may be so late before it is given up."""
RESERVE = 0.9
"""Share of the budget that file batches may plan with; the rest is for decoding and the noise of the machine."""
AFTER_S = 0.005
"""Assumed time of render and sinks until a stream has shown frames."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The promise and its limits. `max_wait_s`: classic policy, wait for a full batch at most so long (None: by deadlines)."""

    budget_s: float = 0.050
    max_batch: int = 32
    max_wait_s: float | None = None
    slots: int = 2
    """Batches that may be staged or running at once."""


@dataclass(slots=True, eq=False)
class Entry:
    """A submitted frame and the future that its stream waits for."""

    frame: Frame
    future: Future[Prediction]
    stream: _Stream
    submitted_s: float


@dataclass(slots=True, eq=False)
class _Stream:
    name: str
    live: bool
    capacity: int
    waiting: deque[Entry] = field(default_factory=deque)
    ahead: int = 0
    """Frames taken into batches that the lane has not finished with."""
    open: bool = True
    served_s: float = float("-inf")
    served: float = 0.0
    """Frames taken into batches, older batches counting less and less."""
    shown_s: float = float("-inf")
    last_arrival_s: float | None = None
    period_s: float | None = None
    after: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    after_s: float = AFTER_S

    @property
    def has_room(self) -> bool:
        return len(self.waiting) + self.ahead < self.capacity

    @property
    def can_come(self) -> bool:
        """Whether this stream's decoder can hand in a further frame now."""
        return self.open and self.has_room

    def expected_s(self, now: float) -> float | None:
        """When the next frame should arrive, by the period seen so far; None where nothing is to be expected: a new
        stream, or one that has missed a whole period (a camera that went away)."""
        if self.last_arrival_s is None or self.period_s is None or not self.open:
            return None
        expected = self.last_arrival_s + self.period_s
        return expected if now < expected + self.period_s else None


@dataclass(frozen=True, slots=True)
class Decision:
    """Run `batch` now; or, if it is empty, look again at `wake_s` or when something changes. `drops` end either way."""

    batch: tuple[Entry, ...] = ()
    wake_s: float | None = None
    drops: tuple[tuple[Entry, Cause], ...] = ()


class DynamicBatchScheduler:
    """Shared by all streams of one device. Every method may be called from any thread unless it says otherwise."""

    def __init__(
        self, profile: Profile, options: SchedulerOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.profile = profile
        self._options = options
        self._clock = clock
        self._max = min(options.max_batch, profile.max_batch)
        self.fill = min(profile.best_batch, self._max)
        """Frames of a file batch."""
        self._streams: dict[str, _Stream] = {}
        self._again: deque[Entry] = deque()
        self._running = 0
        self._last = 1
        """Frames of the batch that was taken last."""
        self._stopped = False
        self._stage_s = 0.0
        """Measured time of putting one frame into a slot."""
        self._free_s = float("-inf")
        """When the device should have ended all that was taken."""
        self._sizes: deque[int] = deque()
        """Frames of each batch that is staged or running."""
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._looking = False
        """The predictor's thread waits for frames, not for the device: only then is it woken for each."""

    # Streams and their lanes.

    def open(self, stream: str, *, live: bool) -> None:
        """Announce a stream before its first frame.

        A file may have two batches staged or running, one filling and one in its lane's hands.
        """
        with self._lock:
            capacity = 1 + LANE_AHEAD if live else (self._options.slots + 2) * self.fill
            self._streams[stream] = _Stream(stream, live, capacity)

    def close(self, stream: str) -> None:
        """No further frame of this stream will come; what waits is still served."""
        with self._lock:
            self._streams[stream].open = False
            self._work.notify()

    def submit(self, frame: Frame) -> Future[Prediction]:
        """Hand in a frame of an open stream. Thread: its decoder. Blocks only for a file that has enough on its way.

        The future ends with the prediction, with the engine's exception, with `Dropped`, or cancelled at shutdown.
        """
        future: Future[Prediction] = Future()
        replaced: Entry | None = None
        with self._lock:
            stream = self._streams[frame.stream]
            if not stream.live:
                self._room.wait_for(lambda: self._stopped or stream.has_room)
            if self._stopped:
                future.cancel()
                return future
            if stream.live:
                _note_arrival(stream, frame.trace.arrived_s)
                replaced = stream.waiting.popleft() if stream.waiting else None
            stream.waiting.append(Entry(frame, future, stream, self._clock()))
            self._look()
        if replaced is not None:
            _drop(replaced, "overload")
        return future

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that was in a batch: shown, failed or thrown away. Thread: the lane."""
        with self._lock:
            stream = self._streams[frame.stream]
            stream.ahead -= 1
            trace = frame.trace
            if trace.shown_s is not None and trace.inferred_s is not None:
                if trace.shown_s - stream.shown_s >= BLIND_S:
                    # What was measured before has kept the stream blind, or is old. Only shown frames are measured: two slow
                    # ones at the start, while fonts and encoder were opened, would drop all but two frames a second for 20 s.
                    stream.after.clear()
                stream.shown_s = trace.shown_s
                stream.after.append(trace.shown_s - trace.inferred_s)
                stream.after_s = sorted(stream.after)[int(0.95 * (len(stream.after) - 1))]
            if not stream.live:
                self._room.notify_all()
            self._look()

    def _look(self) -> None:
        """Something came that a waiting predictor may want. With the lock held."""
        if self._looking:
            self._work.notify()

    # The predictor's side.

    def take(self) -> list[Entry] | None:
        """The next batch, waiting for one; None after `stop`. Thread: the predictor's."""
        while True:
            with self._lock:
                if self._stopped:
                    return None
                batch, drops, wake_s = self._poll()
                if not batch and not drops:
                    self._looking = not self._busy()
                    self._work.wait(None if wake_s is None else max(wake_s - self._clock(), 0.0))
                    self._looking = False
            for entry, cause in drops:
                _drop(entry, cause)
            if batch:
                return batch

    def poll(self) -> list[Entry]:
        """The next batch if one is to run now, else nothing: `take` for a clock that a test moves."""
        with self._lock:
            batch, drops, _ = self._poll()
        for entry, cause in drops:
            _drop(entry, cause)
        return batch

    def _poll(self) -> tuple[list[Entry], Sequence[tuple[Entry, Cause]], float | None]:
        """Decide and book it. With the lock held."""
        if self._again:
            self._running += 1
            self._sizes.append(1)
            return [self._again.popleft()], (), None
        now = self._clock()
        drops: list[tuple[Entry, Cause]] = []
        batch: list[Entry] = []
        while not batch:
            decision = self.decide(now)
            drops += decision.drops
            for entry in (*decision.batch, *(e for e, _ in decision.drops)):
                entry.stream.waiting.remove(entry)
            if not decision.batch:
                return [], drops, decision.wake_s
            batch = [e for e in decision.batch if e.future.set_running_or_notify_cancel()]
            if len(batch) < len(decision.batch):
                self._room.notify_all()  # whoever submitted a frame has cancelled it: its place is free
        for s in self._streams.values():
            s.served *= FORGET
        for entry in batch:
            entry.stream.ahead += 1
            entry.stream.served += 1
            entry.stream.served_s = now
            entry.frame.trace.taken_s = now
        n = len(batch)
        self._running += 1
        self._sizes.append(n)
        self._last = n
        self._free_s = max(self._free_s, now + n * self._stage_s) + self.profile.median(n)
        return batch, drops, None

    def staged(self, n: int, seconds: float) -> None:
        """Putting a batch of n into its slot took so long. Thread: the predictor's."""
        with self._lock:
            # An eighth, as with the streams' periods: it is there after a second and follows within one.
            self._stage_s += (seconds / n - self._stage_s) / 8

    def done(self) -> None:
        """A batch that was taken has left the device. Thread: completion."""
        with self._lock:
            self._running -= 1
            self._sizes.popleft()
            # What was staged begins now, not when it should have: else every slow batch would move all later forecasts.
            self._free_s = self._clock() + sum(self.profile.median(n) for n in self._sizes)
            self._work.notify()

    def again(self, entries: Sequence[Entry]) -> None:
        """The frames of a batch that failed: each is run alone, before anything else. Thread: completion or predictor."""
        with self._lock:
            if not self._stopped:
                self._again.extend(entries)
                self._work.notify()
                return
        for entry in entries:
            entry.future.set_exception(Dropped("shutdown"))

    def stop(self) -> None:
        """Cancel all that waits; `take` ends, `submit` gives cancelled futures from now on."""
        with self._lock:
            self._stopped = True
            failed = list(self._again)
            self._again.clear()
            waiting = [entry for s in self._streams.values() for entry in s.waiting]
            for s in self._streams.values():
                s.waiting.clear()
            self._work.notify_all()
            self._room.notify_all()
        for entry in waiting:
            entry.future.cancel()
        for entry in failed:
            entry.future.set_exception(Dropped("shutdown"))

    # Decisions: plain functions of the time and of what waits. Called with the lock held.

    def decide(self, now: float) -> Decision:
        """What to do at `now`."""
        if self._running >= self._options.slots:
            return Decision()
        live_open = any(s.live and (s.open or s.waiting) for s in self._streams.values())
        if live_open and self._running:
            # Live frames are bound as late as possible: the next batch is staged while the last one ends, not before.
            # It will be about as large as the running one. Never only after its end, however cheap staging is: fifty
            # lanes wake then for their answers, and the device would wait 2-6 ms for the interpreter (48 streams on a
            # device for 50: goodput 0.955, so: 0.998).
            begin_s = self._free_s - self._last * self._stage_s - WAKE_S
            if now < begin_s:
                return Decision(wake_s=begin_s)
        ready, drops = self._live_candidates(now)
        if ready:
            batch = self._fit(now, ready)
            wake = self._worth_waiting(now, batch)
            if wake is not None:
                return Decision(wake_s=wake, drops=drops)
            return Decision(batch=tuple(batch), drops=drops)
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
            if self._end_s(now, 1, self.profile.median(1)) + s.after_s <= self._deadline(entry, now):
                ready.append(entry)
            else:
                late.append((entry, "deadline"))
        ready.sort(key=lambda e: (e.stream.served, e.stream.served_s, e.frame.trace.arrived_s))
        return ready, tuple(late)

    def _deadline(self, entry: Entry, now: float) -> float:
        s = entry.stream
        deadline = entry.frame.trace.arrived_s + self._options.budget_s
        if s.ahead == 0 and now - s.shown_s >= BLIND_S:
            # Blind: as if it arrived now, and never more pressing than that, so that it makes no other frame late.
            end_s = self._end_s(now, 1, self.profile.median(1)) + s.after_s
            return max(deadline, now + self._options.budget_s, end_s)
        return deadline

    def _end_s(self, now: float, n: int, takes_s: float) -> float:
        """When a batch of n would end that is staged from now on and takes the device so long."""
        return max(now + n * self._stage_s, self._free_s) + takes_s

    def _busy(self) -> bool:
        """Whether the predictor waits for the device rather than for frames."""
        return self._running > 0 and self._clock() < self._free_s - self._stage_s

    def _fit(self, now: float, ready: list[Entry]) -> list[Entry]:
        """The frames of the next live batch. `ready` is not empty.

        As many as still meet the earliest deadline among them, first; nobody is left behind for that. Only where so
        small a batch works off less than the streams send, and a larger one clearly more, the frames that are too close
        to their deadlines for the larger one are given up. Without that, an overloaded device with a large cost per
        batch falls into ever smaller batches: 96 streams on one that can serve 53 were served 33 % of their frames
        instead of 55 %.
        """
        ends = {n: self._end_s(now, n, self.profile.p99(n)) for n in range(1, min(len(ready), self._max) + 1)}
        limits = {id(e): self._deadline(e, now) - e.stream.after_s for e in ready}
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
            end_s = self._end_s(now, n, self.profile.median(n))
            in_time = [e for e in ready if limits[id(e)] >= end_s]
            if len(in_time) >= n:
                return in_time[:n]
        return gentle

    def _rate(self, n: int) -> float:
        """Frames a second in batches of n."""
        return n / self.profile.median(n)

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
        saved = self.profile.median(n) + self.profile.median(1) - self.profile.median(n + 1)
        after = max(e.stream.after_s for e in batch)
        if arrival - now >= saved:
            return None
        if arrival + self.profile.p99(n + 1) + after > oldest + self._options.budget_s / 2:
            return None
        return arrival

    def _file_batch(self, now: float, live_open: bool) -> tuple[list[Entry], float | None]:
        """The next file batch, or when to look again. Oldest frames first: equal shares, as every file has the same room."""
        files = [s for s in self._streams.values() if not s.live]
        waiting = sorted((e for s in files for e in s.waiting), key=lambda e: e.submitted_s)
        if not waiting:
            return [], None
        size = self._room_for_files(now) if live_open else self.fill
        if size == 0:
            starved = max(waiting[0].submitted_s, *(s.served_s for s in files)) + STARVED_S
            if now < starved:
                return [], starved
            size = 1
        limit = FILL_WAIT_S if self._options.max_wait_s is None else self._options.max_wait_s
        until = waiting[0].submitted_s + limit
        if len(waiting) < size and now < until and any(s.can_come for s in files):
            return [], until
        return waiting[:size], None

    def _room_for_files(self, now: float) -> int:
        """The largest file batch for which no camera's frame will be late: it ends before the next one is expected, or
        a camera's frame that arrives right after its start still ends within the budget. Never behind a running batch."""
        if self._running:
            return 0
        live = [s for s in self._streams.values() if s.live and s.open]
        expected_s = min((t for s in live if (t := s.expected_s(now)) is not None), default=now)
        together = max(1, min(len(live), self._max))
        after_s = self.profile.p99(together) + max((s.after_s for s in live), default=0.0)
        latest_s = max(expected_s, now + RESERVE * self._options.budget_s - after_s)
        return max((b for b in range(1, self.fill + 1) if self._end_s(now, b, self.profile.p99(b)) <= latest_s), default=0)


def _drop(entry: Entry, cause: Cause) -> None:
    entry.frame.let_go()
    if entry.future.set_running_or_notify_cancel():
        entry.future.set_exception(Dropped(cause))


def _note_arrival(stream: _Stream, arrived_s: float) -> None:
    if stream.last_arrival_s is not None:
        gap = arrived_s - stream.last_arrival_s
        # An eighth, as TCP smooths its round-trip time (RFC 6298): follows a change within a second at 25 fps.
        stream.period_s = gap if stream.period_s is None else stream.period_s + (gap - stream.period_s) / 8
    stream.last_arrival_s = arrived_s
