"""DynamicBatchScheduler: the frames of the next batch, their number, and the time.

Measured, not believed: every decision compares deadlines with the profile's l(b) and with the measured time after the engine
(render and sinks) of the stream. Sizes count rows, one per region of a frame. Three kinds of work, three policies:

- live: a mailbox of one. The newest frame wins, the one that it replaces is dropped (`overload`). A frame that cannot
  meet arrival + budget even alone is dropped before any work is spent on it (`deadline`), unless its stream has shown
  nothing for half a second: better late than blind.
- file: nothing is lost. `submit` blocks while the stream has enough on its way; batches are filled to the size with
  the best throughput; live frames go first, and beside them file batches stay so short that no camera's frame is late.
- requests: first deadline first, none replaces another. A request is refused at once if too many wait or it would be late; a
  request that becomes late while it waits, or that was cancelled, is not computed.

The decisions are in `Policy` and `RequestPolicy`, plain functions of the time; here are the locks and the waiting. The
clock is a parameter: every decision is tested without waiting.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pipelines.errors import Refused
from pipelines.frame import Cause, Frame, Prediction
from pipelines.predict.scheduling.forecast import Forecast
from pipelines.predict.scheduling.live_policy import SchedulePolicy
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Entry, Part, RequestQueue, StreamQueue, detached
from pipelines.predict.scheduling.registry import Registry
from pipelines.predict.scheduling.request_policy import Decision, RequestPolicy
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions


class DynamicBatchScheduler:
    """Shared by all streams of one device. Every method may be called from any thread unless it says otherwise."""

    def __init__(self, profile: Profile, options: SchedulerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.profile = profile
        self._options = options
        self._clock = clock
        self._most = min(options.max_batch, profile.max_batch)
        self.fill = min(profile.best_batch, self._most)
        """Rows of a file batch."""
        self._lock = threading.Lock()
        self._queues = Registry(options, self.fill, self._lock)
        self._device = Forecast(profile, options.parallel)
        self._request_policy = RequestPolicy(self._queues.requests, self._device, profile, options)
        self._policy = SchedulePolicy(self._queues.streams, self._request_policy, self._device, profile, options, self.fill)
        self._alone: deque[Part] = deque()
        """Run next, each as a batch of its own: rows that did not fit into the batch of their frame, and requeued frames."""
        self._stopped = False
        self._work = threading.Condition(self._lock)
        self._wants_frames = False
        """The predictor's thread waits for frames, not for the device: only then each frame wakes it."""

    # Streams and their lanes.

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None:
        """Announce a stream before its first frame. budget_s: the latency budget of a live stream, None: that of the options.

        A stream that is open already goes on with its frames, as a camera that moved between the workers of a pool. A closed
        one starts afresh, and the frames that it left behind are still served.
        """
        with self._lock:
            self._queues.open(stream, live=live, budget_s=budget_s)

    def open_requests(self, name: str, *, capacity: int) -> None:
        """Announce a queue of requests, of which at most `capacity` wait."""
        if capacity < 1:
            raise ValueError(f"a queue of requests needs a capacity of at least 1, got {capacity}")
        with self._lock:
            self._queues.requests[name] = RequestQueue(name, capacity, self._options.tuning)

    def close(self, stream: str) -> None:
        """No further frame of this stream, or request of this queue, will come; the waiting ones are still served. Nothing of
        a stream is kept after its last frame has ended."""
        with self._lock:
            queue = self._queues.queue(stream)
            queue.open = False
            self._queues.forget(queue)
            self._work.notify()

    def waiting(self, name: str) -> int:
        """Frames of a stream, or requests of a queue, that wait now."""
        with self._lock:
            return self._queues.waiting(name)

    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]:
        """Hand in a frame of an open stream, or a request with its own deadline (monotonic; None: no deadline). Thread: the
        stream's decoder; for requests any. Blocks only for a file that has enough on its way.

        The future ends with the prediction, with the engine's exception, with `Dropped`, or cancelled at shutdown.

        :raises Refused: if a request cannot be taken.
        """
        if not frame.regions:
            return self._answer_empty(frame)
        if frame.stream in self._queues.requests:
            return self._submit_request(frame, math.inf if deadline_s is None else deadline_s)
        future: Future[Prediction] = Future()
        replaced: Entry | None = None
        with self._lock:
            stream = self._queues.stream(frame.stream)
            if not stream.live:
                self._queues.rooms[stream.name].wait_for(lambda: self._stopped or stream.has_room)
            if self._stopped:
                future.cancel()
                return future
            stream.rows = len(frame.regions)
            if stream.live:
                stream.arrived(frame.trace.arrived_s)
                replaced = stream.waiting.popleft() if stream.waiting else None
            stream.waiting.append(Entry(frame, future, stream, self._clock(), rows=stream.rows))
            self._wake()
        if replaced is not None:
            replaced.drop("overload")
        return future

    def _answer_empty(self, frame: Frame) -> Future[Prediction]:
        """A frame without regions needs no batch. Its inbox bounds the number of such frames."""
        future: Future[Prediction] = Future()
        trace = frame.trace
        trace.taken_s = trace.staged_s = trace.inferred_s = self._clock()
        if self._stopped:
            future.cancel()
        else:
            future.set_result(Prediction({}, 0, 0))
        return future

    def _submit_request(self, frame: Frame, deadline_s: float) -> Future[Prediction]:
        """Queue a request. deadline_s: monotonic, inf: none.

        :raises Refused: "full", also if the queue is closed, with the seconds after which this request would have ended;
            "deadline" with the seconds by which it would be late.
        """
        future: Future[Prediction] = Future()
        rows = len(frame.regions)
        with self._lock:
            if self._stopped:
                future.cancel()
                return future
            queue, now = self._queues.requests[frame.stream], self._clock()
            queue.arrived(now, rows)
            if not queue.can_come:
                queue.forget_cancelled()  # which may make room
            expected_end_s = self._request_policy.end_s(now, queue, deadline_s, rows)
            if not queue.can_come:
                raise Refused(expected_end_s - now, "full")
            if expected_end_s > deadline_s:
                raise Refused(expected_end_s - deadline_s, "deadline")
            queue.put(Entry(frame, future, queue, now, deadline_s, rows))
            self._wake()
        return future

    def end_s(self, name: str, deadline_s: float | None) -> float:
        """The expected end of a request with this deadline, if it came now."""
        with self._lock:
            limit_s = math.inf if deadline_s is None else deadline_s
            return self._request_policy.end_s(self._clock(), self._queues.requests[name], limit_s)

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that was in a batch: shown, failed or dropped. Thread: the lane."""
        with self._lock:
            stream = self._queues.streams.get(frame.stream)
            if stream is None:
                return
            stream.finish(frame)
            if not stream.live:
                self._queues.rooms[stream.name].notify()
            self._queues.forget(stream)
            self._wake()

    def _wake(self) -> None:
        """Wake the predictor if it waits for frames. With the lock held."""
        if self._wants_frames:
            self._work.notify()

    # The predictor's side.

    def take(self) -> list[Part] | None:
        """The next batch, waiting for one; None after `stop`. Thread: the predictor's."""
        while True:
            with self._lock:
                if self._stopped:
                    return None
                batch, drops, wake_s = self._poll()
                if not batch and not drops:
                    self._wants_frames = not self._waits_for_device()
                    self._work.wait(None if wake_s is None else max(wake_s - self._clock(), 0.0))
                    self._wants_frames = False
            self._drop(drops)
            if batch:
                return batch

    def _waits_for_device(self) -> bool:
        return self._device.busy and self._clock() < self._device.free_s - self._device.stage_s

    def decide(self) -> Decision:
        """The policy's decision now; nothing is booked."""
        with self._lock:
            return self._policy.decide(self._clock())

    def poll(self) -> list[Part]:
        """The batch that is to run now, or []: `take` for a clock that a test moves."""
        with self._lock:
            batch, drops, _ = self._poll()
        self._drop(drops)
        return batch

    def _drop(self, drops: Sequence[tuple[Entry, Cause]]) -> None:
        for entry, cause in drops:
            entry.drop(cause)

    def _poll(self) -> tuple[list[Part], list[tuple[Entry, Cause]], float | None]:
        """Decide and book it: (batch, drops, time to look again). With the lock held."""
        now = self._clock()
        drops: list[tuple[Entry, Cause]] = []
        part = self._next_alone(now, drops)
        if part is not None:
            return [part], drops, None
        entries: list[Entry] = []
        while not entries:
            decision = self._policy.decide(now)
            drops += decision.drops
            for entry in (*decision.batch, *(e for e, _ in decision.drops)):
                entry.stream.waiting.remove(entry)
            for entry, _ in decision.drops:
                self._queues.forget(entry.stream)
            if not decision.batch:
                return [], drops, decision.wake_s
            entries = [e for e in decision.batch if e.future.set_running_or_notify_cancel()]
            if len(entries) < len(decision.batch):
                self._queues.notify_rooms()  # a submitter has cancelled its frame: its place is free
                for entry in decision.batch:
                    if entry.future.cancelled():
                        self._queues.forget(entry.stream)
        return self._book(entries, now), drops, None

    def _next_alone(self, now: float, drops: list[tuple[Entry, Cause]]) -> Part | None:
        """The next part that runs as a batch of its own. With the lock held."""
        while self._alone:
            part = self._alone.popleft()
            if not part.valid:
                continue
            if part.entry.deadline_s < now:
                drops.append((part.entry, "deadline"))
                continue
            part.frame.trace.taken_s = now
            self._device.taken(now, part.rows)
            return part
        return None

    def _book(self, entries: list[Entry], now: float) -> list[Part]:
        """The parts of a batch. The rows of a frame that do not fit run next. With the lock held."""
        for s in self._queues.streams.values():
            s.served *= self._options.tuning.service_decay
        batch: list[Part] = []
        for entry in entries:
            entry.stream.take(entry.frame, now)
            entry.frame.trace.taken_s = now
            first, *rest = entry.begin_attempt(self._most)
            batch.append(first)
            self._alone.extend(rest)
        self._device.taken(now, sum(part.rows for part in batch))
        return batch

    def staged(self, rows: int, seconds: float) -> None:
        """Staging a batch of this many rows took `seconds`. Thread: the predictor's."""
        with self._lock:
            self._device.staged(rows, seconds)

    def done(self, *, newest: bool = False) -> None:
        """The oldest taken batch has left the device (thread: completion), or the newest did not get there (thread: the
        predictor's)."""
        with self._lock:
            self._device.done(self._clock(), newest=newest)
            self._work.notify()

    # Recovery: evict (take out), requeue (give to another run), fail (see `Entry`).

    def retry(self, parts: Sequence[Part]) -> None:
        """Run each part of a failed batch again, as a batch of its own, before anything else. Thread: completion or
        predictor."""
        with self._lock:
            if not self._stopped:
                self._alone.extend(parts)
                self._work.notify()
                return
        for part in parts:
            part.entry.cancel()

    def requeue(self, entry: Entry) -> bool:
        """Take over a frame from a scheduler that has lost its engine; False if this one has stopped, too. A waiting frame
        waits here, and replaces none; a frame that was in a batch runs at once, as a batch of its own: it may be the cause."""
        replaced = None
        with self._lock:
            if self._stopped:
                return False
            queue, now = self._queues.adopt(entry), self._clock()
            if isinstance(queue, StreamQueue) and queue.live:
                entry.deadline_s = entry.frame.trace.arrived_s + queue.budget_s
            if entry.future.running():
                queue.take(entry.frame, now)
                self._alone.extend(entry.begin_attempt(self._most))
            elif isinstance(queue, RequestQueue):
                queue.put(entry)
            elif queue.live and queue.waiting:
                replaced = entry
            else:
                queue.waiting.append(entry)
            self._work.notify()
        if replaced is not None:
            replaced.drop("overload")
        return True

    def evict(self) -> list[Entry]:
        """Stop as `stop` does, but hand the waiting frames to the caller instead of cancelling them."""
        with self._lock:
            self._stopped = True
            left = [*detached(self._alone), *self._queues.empty()]
            self._alone.clear()
            self._work.notify_all()
            self._queues.notify_rooms()
        return left

    def on_its_way(self, stream: str) -> int:
        """Frames of a stream that wait, are in batches or with the lane."""
        with self._lock:
            s = self._queues.streams.get(stream)
            return 0 if s is None else len(s.waiting) + s.ahead

    def stop(self) -> None:
        """Cancel all that waits; `take` ends, `submit` returns cancelled futures from now on."""
        for entry in self.evict():
            entry.cancel()
