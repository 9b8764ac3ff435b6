"""Pool: the predictor's `submit()` in front of several worker processes, each of which owns a device or a share of the cores.

A worker is an engine at the other end of a pipe (`worker_engine.py`) with a predictor of its own in this process: the
predictor has scheduler, profile and preprocessing. Each kind of work has its way to a worker:

- a camera stays with the worker that had the fewest cameras when it was opened: its mailbox is one, the newest frame wins;
- a file's frame goes to the worker with the fewest frames of that file, a request to the worker that should answer it first.

Each worker has a thread, `worker:K`, that starts it, waits for its end and starts the next, a few times a minute at most.
The frames of a lost worker run once more on another. A frame that two workers were lost with fails: it may be the cause.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from pipelines.crew import Crew
from pipelines.errors import Dropped, EngineLost, Refused, Stopped
from pipelines.frame import Frame, Prediction
from pipelines.predict.engines.engine import Engine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents
from pipelines.predict.preprocess import Preprocess
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Entry
from pipelines.predict.workers.assignment import Assignment
from pipelines.predict.workers.facts import WorkerFacts
from pipelines.predict.workers.orphans import RETRY_S, Orphans
from pipelines.predict.workers.worker import Allowance, Worker
from pipelines.predict.workers.worker_engine import WorkerEngine

log = logging.getLogger("watchline.pool")

LOSSES = 2
"""Workers that may be lost while they run a frame; then it fails."""

Make = Callable[[int, PredictorEvents], tuple[WorkerEngine, AsyncBatchPredictor]]
"""An engine for place K, and its predictor; nothing is started yet."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """workers: processes. restarts: replacements within `within_s` seconds, at most."""

    workers: int
    restarts: int = 5
    within_s: float = 60.0


class Pool:
    """Used as `with pool:`. Entering returns when every worker is warm; leaving cancels the waiting frames. The methods for
    lanes and services are those of `AsyncBatchPredictor`.

    `error` holds the reason if it cannot go on: no worker is left, and none may be started for a while.

    :raises Stopped: on entering, if it was stopped before.
    """

    def __init__(
        self,
        make: Make,
        options: PoolOptions,
        preprocess: Preprocess,
        *,
        events: PredictorEvents | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """preprocess: for questions about boxes; each worker's predictor has one of its own."""
        self.preprocess = preprocess
        self.restarts = 0
        self.warmup_s = 0.0
        self._make = make
        self._events = events or PredictorEvents()
        self._clock = clock
        self._crew = Crew(self._abort)
        self._changed = threading.Condition()
        """Guards the pool. Schedulers' locks are taken within it, never the other way round."""
        self._workers = [Worker(k) for k in range(options.workers)]
        self._allowance = Allowance(options.restarts, options.within_s)
        self._routes = Assignment(self._workers)
        self._orphans = Orphans(self._changed, clock)
        self._again_s = float("-inf")
        """Monotonic: no worker is started before."""
        self._entered = False
        self._stopping = False
        self._first: AsyncBatchPredictor | None = None
        self._error: BaseException | None = None

    # Life cycle.

    def __enter__(self) -> Pool:
        self._crew.__enter__()
        began_s = self._clock()
        for worker in self._workers:
            self._crew.start(f"worker:{worker.index}", lambda w=worker: self._keep(w))  # type: ignore[misc]
        self._crew.start("orphans", lambda: self._orphans.expire(lambda: not self._stopping))
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self.ready)
            stopped = self._stopping
            self._entered = not stopped
        self.warmup_s = self._clock() - began_s
        if stopped:
            self._crew.join()
            raise self._crew.error or Stopped
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop()
        self._crew.__exit__(kind, error, trace)

    def stop(self) -> None:
        """Cancel the waiting frames and end; running batches are finished first. Any thread, any time, also during warm-up."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            orphans = self._orphans.take()
        for entry, _ in orphans:
            entry.cancel()
        for worker in self._workers:
            worker.stop()

    def _abort(self) -> None:
        self.stop()
        if self._crew.error is not None:
            self._events.failed()

    # State.

    @property
    def ready(self) -> bool:
        """Whether every worker is warm, and new work is taken."""
        return not self._stopping and all(w.state == "ready" for w in self._workers)

    def workers(self) -> list[WorkerFacts]:
        """The present state of every worker."""
        with self._changed:
            return [w.facts() for w in self._workers]

    @property
    def error(self) -> BaseException | None:
        """The error that ended the pool, or that keeps it from working."""
        return self._crew.error or self._error

    @property
    def engine(self) -> Engine:
        """The engine of one worker; they differ in their devices only."""
        return self._any.engine

    @property
    def profile(self) -> Profile:
        """The profile of one worker."""
        return self._any.profile

    @property
    def _any(self) -> AsyncBatchPredictor:
        """The first predictor that is ready, or was."""
        with self._changed:
            self._first = next(iter(self._routes.ready()), self._first)
            if self._first is None:
                raise RuntimeError("the pool is used before it was entered")
            return self._first

    def memory_mb(self) -> float:
        """Memory of all workers: of their GPUs, or of their processes."""
        return sum(facts.memory_mb or 0.0 for facts in self.workers())

    # For lanes and services.

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None:
        """Announce a stream before its first frame. budget_s: its latency budget; None: that of the options."""
        with self._changed:
            self._routes.open(stream, live=live, budget_s=budget_s)

    def close(self, stream: str) -> None:
        """No further frame of this stream will come."""
        with self._changed:
            self._routes.close(stream)

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that got a prediction or an error from the engine."""
        for predictor in self._routes.ready():  # the others ignore it; a camera may have moved since
            predictor.finish(frame)

    def waiting(self, name: str) -> int:
        """Frames of a stream, or requests of a queue, that wait now."""
        with self._changed:
            return sum(predictor.waiting(name) for predictor in self._routes.of(name))

    def end_s(self, name: str, deadline_s: float | None) -> float:
        """The expected end of a request with this deadline, if it came now; infinite if no worker is ready."""
        with self._changed:
            return min((predictor.end_s(name, deadline_s) for predictor in self._routes.ready()), default=math.inf)

    @property
    def retry_s(self) -> float:
        """Seconds after which a refused caller may come back: a second, or until the next worker may be started."""
        return max(self._again_s - self._clock(), 0.0) + RETRY_S

    def open_requests(self, name: str, *, capacity: int) -> None:
        """Announce a queue of requests. Each worker has its share of the capacity."""
        with self._changed:
            self._routes.open_requests(name, capacity)

    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]:
        """Hand in a frame, or a request with its deadline. See `AsyncBatchPredictor.submit`.

        :raises Refused: if a request cannot be taken, or no worker is ready.
        """
        if frame.stream in self._routes.requests:
            return self._submit_request(frame, deadline_s)
        while (predictor := self._predictor_for(frame)) is not None:
            future = predictor.submit(frame)
            if not future.cancelled() or self._stopping:
                return future
        future = Future()
        if self._stopping:
            future.cancel()
        else:
            frame.let_go()
            future.set_exception(Dropped("overload"))
        return future

    def _submit_request(self, frame: Frame, deadline_s: float | None) -> Future[Prediction]:
        refused: Refused | None = None
        with self._changed:
            ready = self._routes.ready()
        if self._stopping:
            return _cancelled()
        for predictor in sorted(ready, key=lambda p: p.end_s(frame.stream, deadline_s)):
            try:
                future = predictor.submit(frame, deadline_s)
            except Refused as error:
                refused = refused or error
                continue
            if not future.cancelled() or self._stopping:
                return future
        raise refused or Refused(self.retry_s, "no_worker")

    def _predictor_for(self, frame: Frame) -> AsyncBatchPredictor | None:
        """The predictor for this frame. Blocks for a file until a worker is ready; None if no worker serves the stream, or the
        pool is stopping."""
        with self._changed:
            if not self._routes.live(frame.stream):
                self._changed.wait_for(lambda: self._stopping or self._routes.ready())
            found = [] if self._stopping else self._routes.of(frame.stream)
            return min(found, key=lambda p: p.on_its_way(frame.stream), default=None)

    # Threads worker:K.

    def _keep(self, worker: Worker) -> None:
        """Start the worker, again and again. An error of another kind than its loss, at the first start or while it runs, ends
        the pool."""
        begun = False
        while self._begin(worker):
            assert worker.predictor is not None
            assert worker.engine is not None
            reason = ""
            try:
                with worker.predictor as predictor:
                    begun = True
                    self._join(worker)
                    reason = worker.engine.join()
                    predictor.lose(EngineLost(reason))
            except Stopped:
                pass
            except EngineLost as error:
                reason = str(error)
            except Exception as error:
                if not begun or worker.state != "starting":
                    raise
                reason = f"{type(error).__name__}: {error}"
            self._leave(worker)
            if not self._wait_to_restart(worker, reason):
                return

    def _begin(self, worker: Worker) -> bool:
        events = PredictorEvents(
            lambda size, seconds: self._batch(worker, size, seconds),
            orphaned=lambda entries, error: self._orphaned(worker, entries, error),
        )
        with self._changed:
            if not self._stopping:
                worker.begin(*self._make(worker.index, events))
            return not self._stopping

    def _batch(self, worker: Worker, size: int, seconds: float) -> None:
        worker.use.add(seconds)
        # The listener gets the share of all devices together.
        self._events.batch(size, seconds / len(self._workers))

    def _join(self, worker: Worker) -> None:
        """The worker is warm: assign streams to it, and requeue the orphans."""
        with self._changed:
            predictor = worker.is_ready()
            self._first = self._first or predictor
            self._routes.joined(worker)
            self._error = None
            orphans = self._orphans.take()
            self._changed.notify_all()
        for entry, error in orphans:
            self._requeue(entry, error)

    def _leave(self, worker: Worker) -> None:
        """The worker is gone: its cameras go to the others. Any thread, more than once."""
        with self._changed:
            if worker.state == "dead":
                return
            worker.state = "dead"
            self._routes.left(worker)
            self._changed.notify_all()

    def _orphaned(self, worker: Worker, entries: Sequence[Entry], error: EngineLost) -> None:
        """These frames were evicted from a lost worker. Thread: one of its predictor's."""
        self._leave(worker)
        for entry in entries:
            if entry.losses < LOSSES:
                self._requeue(entry, error)
            else:
                entry.fail(error)

    def _requeue(self, entry: Entry, error: EngineLost) -> None:
        """Run it on another worker. If none is ready it waits for one, as long as its queue's patience."""
        with self._changed:
            if not self._stopping and any(predictor.requeue(entry) for predictor in self._candidates(entry)):
                return
            if not self._stopping and entry.stream.patience_s > 0:
                self._orphans.add(entry, error)
                return
        if self._stopping:
            entry.cancel()
        else:
            entry.drop("overload")

    def _candidates(self, entry: Entry) -> list[AsyncBatchPredictor]:
        """The predictors that may run it, the best first. With the lock held."""
        name = entry.frame.stream
        if name in self._routes.requests:
            return sorted(self._routes.ready(), key=lambda p: p.end_s(name, entry.deadline_s))
        return self._routes.of(name)

    def _wait_to_restart(self, worker: Worker, reason: str) -> bool:
        """Wait until another may be started; False: the pool stops.

        :raises EngineLost: if too many workers were lost before the pool was entered.
        """
        with self._changed:
            if self._stopping:
                return False
            wait_s = self._allowance.take(self._clock())
        if wait_s > 0:
            self._say_too_many(worker, reason, wait_s)
        else:
            log.warning("worker %d: %s; another is started", worker.index, reason)
        with self._changed:
            while wait_s > 0 and not self._stopping:
                self._changed.wait(wait_s)
                wait_s = self._allowance.take(self._clock())
            if self._stopping:
                return False
            worker.restarts += 1
            self.restarts += 1
            return True

    def _say_too_many(self, worker: Worker, reason: str, wait_s: float) -> None:
        a = self._allowance
        text = f"worker {worker.index}: {reason}; {a.count} were replaced within {a.within_s:g} s"
        error = EngineLost(f"{text}, no further one is started for {wait_s:.0f} s")
        if not self._entered:
            raise error
        log.error("%s", error)
        if all(w.state == "dead" for w in self._workers):
            self._error = error
            self._again_s = self._clock() + wait_s
            self._events.failed()


def _cancelled() -> Future[Prediction]:
    future: Future[Prediction] = Future()
    future.cancel()
    return future
