"""DynamicBatchScheduler: which frames run next, how many of them, and when.

Measured, not believed: every decision compares deadlines with the profile's l(b) and with what comes after the engine
(render and sinks) as it was measured on the stream. Three kinds of work, three policies:

- live: a mailbox of one. The newest frame wins, the one that it replaces is dropped (`overload`). A frame that cannot
  meet arrival + budget even alone is dropped before any work is spent on it (`deadline`), unless its stream has shown
  nothing for half a second: better late than blind.
- file: nothing is lost. `submit` blocks while the stream has enough on its way; batches are filled to the size with
  the best throughput; live frames go first, and beside them file batches stay so short that no camera's frame is late.
- requests: first deadline first, none replaces another. One that comes when too many wait, or too late, is refused at
  once; one whose deadline passes while it waits, or that was cancelled, is not computed.

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
from pipelines.predict.scheduling.live_policy import Policy, SchedulerOptions
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import FORGET, LANE_AHEAD, Entry, RequestQueue, StreamQueue
from pipelines.predict.scheduling.request_policy import Decision, RequestPolicy


class DynamicBatchScheduler:
    """Shared by all streams of one device. Every method may be called from any thread unless it says otherwise."""

    def __init__(self, profile: Profile, options: SchedulerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.profile = profile
        self._options = options
        self._clock = clock
        self._streams: dict[str, StreamQueue] = {}
        self._requests: dict[str, RequestQueue] = {}
        self._device = Forecast(profile, options.parallel)
        self._request_policy = RequestPolicy(
            self._requests,
            self._device,
            profile,
            min(options.max_batch, profile.max_batch),
            batching=options.batching,
            max_wait_s=options.max_wait_s,
        )
        self._policy = Policy(self._streams, self._request_policy, self._device, profile, options)
        self.fill = self._policy.fill
        """Frames of a file batch."""
        self._again: deque[Entry] = deque()
        self._stopped = False
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._rooms: dict[str, threading.Condition] = {}
        """Where a file's decoder waits for room: one for each, since the end of a frame is of interest to one of them. To wake
        all, with 16 files at once, cost each frame as much as everything else."""
        self._looking = False
        """The predictor's thread waits for frames, not for the device: only then is it woken for each."""

    # Streams and their lanes.

    def open(self, stream: str, *, live: bool) -> None:
        """Announce a stream before its first frame.

        A file may have two batches staged or running, one filling and one in its lane's hands. One that was here before, as
        a camera that moved between the workers of a pool, goes on with what it has.
        """
        with self._lock:
            if (known := self._streams.get(stream)) is not None and known.live == live:
                known.open = True
                return
            capacity = 1 + LANE_AHEAD if live else (self._options.slots + 2) * self.fill
            self._add(StreamQueue(stream, live, capacity))

    def _add(self, stream: StreamQueue) -> None:
        self._streams[stream.name] = stream
        self._rooms[stream.name] = threading.Condition(self._lock)

    def open_requests(self, name: str, *, capacity: int) -> None:
        """Announce a queue of requests, of which at most `capacity` wait."""
        if capacity < 1:
            raise ValueError(f"a queue of requests needs a capacity of at least 1, got {capacity}")
        with self._lock:
            self._requests[name] = RequestQueue(name, capacity)

    def close(self, stream: str) -> None:
        """No further frame of this stream, or request of this queue, will come; what waits is still served."""
        with self._lock:
            queue = self._queue(stream)
            queue.open = False
            if isinstance(queue, StreamQueue):
                self._forget(queue)
            self._work.notify()

    def _forget(self, stream: StreamQueue) -> None:
        """A file that has ended, with the last of its frames: a run may be of thousands. With the lock held."""
        if not (stream.live or stream.open or stream.waiting or stream.held):
            del self._streams[stream.name], self._rooms[stream.name]

    def _queue(self, name: str) -> StreamQueue | RequestQueue:
        return self._requests[name] if name in self._requests else self._streams[name]

    def waiting(self, name: str) -> int:
        """How many frames or requests wait now."""
        with self._lock:
            return len(self._queue(name).waiting) if name in self._requests or name in self._streams else 0

    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]:
        """Hand in a frame of an open stream, or of a queue of requests with its deadline. Thread: its decoder, or any. Blocks
        only for a file that has enough on its way.

        The future ends with the prediction, with the engine's exception, with `Dropped`, or cancelled at shutdown.

        :raises Refused: if a request cannot be taken.
        """
        if frame.stream in self._requests:
            return self._submit_request(frame, math.inf if deadline_s is None else deadline_s)
        future: Future[Prediction] = Future()
        replaced: Entry | None = None
        with self._lock:
            stream = self._streams[frame.stream]
            if not stream.live:
                self._rooms[stream.name].wait_for(lambda: self._stopped or stream.has_room)
            if self._stopped:
                future.cancel()
                return future
            if stream.live:
                stream.arrived(frame.trace.arrived_s)
                replaced = stream.waiting.popleft() if stream.waiting else None
            stream.waiting.append(Entry(frame, future, stream, self._clock()))
            self._look()
        if replaced is not None:
            replaced.drop("overload")
        return future

    def _submit_request(self, frame: Frame, deadline_s: float) -> Future[Prediction]:
        future: Future[Prediction] = Future()
        with self._lock:
            if self._stopped:
                future.cancel()
                return future
            queue, now = self._requests[frame.stream], self._clock()
            queue.arrived(now)
            if not queue.can_come:
                queue.forget_cancelled()
            end_s = self._request_policy.end_s(now, queue, deadline_s)
            if not queue.can_come:
                raise Refused(end_s - now, "full")
            if end_s > deadline_s:
                raise Refused(end_s - deadline_s, "deadline")
            queue.put(Entry(frame, future, queue, now, deadline_s))
            self._look()
        return future

    def end_s(self, name: str, deadline_s: float | None) -> float:
        """When a request with this deadline should be answered, if it came now."""
        with self._lock:
            limit_s = math.inf if deadline_s is None else deadline_s
            return self._request_policy.end_s(self._clock(), self._requests[name], limit_s)

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that was in a batch: shown, failed or thrown away. Thread: the lane."""
        with self._lock:
            stream = self._streams.get(frame.stream)
            if stream is None:
                return
            stream.ended(frame)
            if not stream.live:
                self._rooms[stream.name].notify()
            self._forget(stream)
            self._look()

    def _notify_rooms(self) -> None:
        """Let every decoder look whether there is room. With the lock held."""
        for room in self._rooms.values():
            room.notify_all()

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
                entry.drop(cause)
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
            entry.drop(cause)
        return batch

    def _poll(self) -> tuple[list[Entry], Sequence[tuple[Entry, Cause]], float | None]:
        """Decide and book it. With the lock held."""
        now = self._clock()
        drops: list[tuple[Entry, Cause]] = []
        batch: list[Entry] = []
        while self._again:
            entry = self._again.popleft()
            if entry.deadline_s < now:
                drops.append((entry, "deadline"))
                continue
            entry.frame.trace.taken_s = now
            self._device.taken(now, 1)
            return [entry], drops, None
        while not batch:
            decision = self._policy.decide(now)
            drops += decision.drops
            for entry in (*decision.batch, *(e for e, _ in decision.drops)):
                entry.stream.waiting.remove(entry)
            if not decision.batch:
                return [], drops, decision.wake_s
            batch = [e for e in decision.batch if e.future.set_running_or_notify_cancel()]
            if len(batch) < len(decision.batch):
                self._notify_rooms()  # whoever submitted a frame has cancelled it: its place is free
        for s in self._streams.values():
            s.served *= FORGET
        for entry in batch:
            entry.stream.taken(entry.frame, now)
            entry.frame.trace.taken_s = now
        self._device.taken(now, len(batch))
        return batch, drops, None

    def staged(self, n: int, seconds: float) -> None:
        """Putting a batch of n into its slot took so long. Thread: the predictor's."""
        with self._lock:
            self._device.staged(n, seconds)

    def done(self, *, newest: bool = False) -> None:
        """The oldest batch that was taken has left the device, thread: completion; or the newest did not get there, thread:
        the predictor's."""
        with self._lock:
            self._device.done(self._clock(), newest=newest)
            self._work.notify()

    def again(self, entries: Sequence[Entry]) -> None:
        """The frames of a batch that failed: each is run alone, before anything else. Thread: completion or predictor."""
        with self._lock:
            if not self._stopped:
                self._again.extend(entries)
                self._work.notify()
                return
        for entry in entries:
            entry.shut()

    def adopt(self, entry: Entry) -> bool:
        """Take over a frame from a scheduler that has lost its engine; False if this one has stopped, too. What waited waits
        here, in front of nobody; what was in a batch is run alone, at once: it may be the frame that no engine survives."""
        replaced = None
        with self._lock:
            name, now = entry.frame.stream, self._clock()
            if self._stopped:
                return False
            if isinstance(entry.stream, StreamQueue) and name not in self._streams:  # it was closed before this one began
                self._add(StreamQueue(name, entry.stream.live, entry.stream.capacity, open=False))
            queue = entry.stream = self._queue(name)
            if isinstance(queue, StreamQueue) and queue.live:
                entry.deadline_s = entry.frame.trace.arrived_s + self._options.budget_s
            if entry.future.running():
                queue.taken(entry.frame, now)
                self._again.append(entry)
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
        """Stop as `stop` does, but give what waits to the caller instead of cancelling it."""
        with self._lock:
            self._stopped = True
            left = [*self._again, *self._emptied()]
            self._again.clear()
            self._work.notify_all()
            self._notify_rooms()
        return left

    def on_its_way(self, stream: str) -> int:
        """Frames of a stream that wait, are in batches or with the lane."""
        with self._lock:
            s = self._streams.get(stream)
            return 0 if s is None else len(s.waiting) + s.ahead

    def stop(self) -> None:
        """Cancel all that waits; `take` ends, `submit` gives cancelled futures from now on."""
        for entry in self.evict():
            entry.shut()

    def _emptied(self) -> list[Entry]:
        """All that waits, taken out of its queues. With the lock held."""
        queues: list[StreamQueue | RequestQueue] = [*self._streams.values(), *self._requests.values()]
        waiting = [entry for q in queues for entry in q.waiting]
        for q in queues:
            q.waiting.clear()
        return waiting

    def _busy(self) -> bool:
        """Whether the predictor waits for the device rather than for frames."""
        return self._device.busy and self._clock() < self._device.free_s - self._device.stage_s
