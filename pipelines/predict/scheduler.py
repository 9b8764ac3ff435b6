"""DynamicBatchScheduler: which frames run next, how many of them, and when.

Measured, not believed: every decision compares deadlines with the profile's l(b) and with what comes after the engine
(render and sinks) as it was measured on the stream. Two kinds of stream, two policies:

- live: a mailbox of one. The newest frame wins, the one that it replaces is dropped (`overload`). A frame that cannot
  meet arrival + budget even alone is dropped before any work is spent on it (`deadline`), unless its stream has shown
  nothing for half a second: better late than blind.
- file: nothing is lost. `submit` blocks while the stream has enough on its way; batches are filled to the size with
  the best throughput; live frames go first, and beside them file batches stay so short that no camera's frame is late.

The decisions are in `Policy`, plain functions of the time; here are the locks and the waiting. The clock is a parameter:
every decision is tested without waiting.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pipelines.errors import Dropped
from pipelines.frame import Cause, Frame, Prediction
from pipelines.predict.forecast import Forecast
from pipelines.predict.policy import Decision, Policy, SchedulerOptions
from pipelines.predict.profile import Profile
from pipelines.predict.queues import FORGET, LANE_AHEAD, Entry, StreamQueue


class DynamicBatchScheduler:
    """Shared by all streams of one device. Every method may be called from any thread unless it says otherwise."""

    def __init__(
        self, profile: Profile, options: SchedulerOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.profile = profile
        self._options = options
        self._clock = clock
        self._streams: dict[str, StreamQueue] = {}
        self._device = Forecast(profile, options.parallel)
        self._policy = Policy(self._streams, self._device, profile, options)
        self.fill = self._policy.fill
        """Frames of a file batch."""
        self._again: deque[Entry] = deque()
        self._stopped = False
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
            self._streams[stream] = StreamQueue(stream, live, capacity)

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
                stream.arrived(frame.trace.arrived_s)
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
            stream.ended(frame)
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

    def decide(self) -> Decision:
        """What the policy would do now; nothing is booked."""
        with self._lock:
            return self._policy.decide(self._clock())

    def poll(self) -> list[Entry]:
        """The next batch if one is to run now, else nothing: `take` for a clock that a test moves."""
        with self._lock:
            batch, drops, _ = self._poll()
        for entry, cause in drops:
            _drop(entry, cause)
        return batch

    def _poll(self) -> tuple[list[Entry], Sequence[tuple[Entry, Cause]], float | None]:
        """Decide and book it. With the lock held."""
        now = self._clock()
        if self._again:
            self._device.taken(now, 1)
            return [self._again.popleft()], (), None
        drops: list[tuple[Entry, Cause]] = []
        batch: list[Entry] = []
        while not batch:
            decision = self._policy.decide(now)
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
            entry.stream.taken(now)
            entry.frame.trace.taken_s = now
        self._device.taken(now, len(batch))
        return batch, drops, None

    def staged(self, n: int, seconds: float) -> None:
        """Putting a batch of n into its slot took so long. Thread: the predictor's."""
        with self._lock:
            self._device.staged(n, seconds)

    def done(self) -> None:
        """A batch that was taken has left the device. Thread: completion."""
        with self._lock:
            self._device.done(self._clock())
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

    def _busy(self) -> bool:
        """Whether the predictor waits for the device rather than for frames."""
        return self._device.busy and self._clock() < self._device.free_s - self._device.stage_s


def _drop(entry: Entry, cause: Cause) -> None:
    entry.frame.let_go()
    if entry.future.set_running_or_notify_cancel():
        entry.future.set_exception(Dropped(cause))
