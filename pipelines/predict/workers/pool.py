"""Pool: the predictor's `submit()` in front of several worker processes, each of which owns a device or a share of the cores.

A worker is an engine at the other end of a pipe (`worker_engine.py`) with a predictor of its own in this process: the
predictor has scheduler, profile and preprocessing. Each kind of work has its way to a worker:

- a camera stays with the worker that had the fewest cameras when it was opened: its mailbox is one, the newest frame wins;
- a file's frame goes to the worker with the fewest frames of that file, a request to the worker that should answer it first.

The frames of a lost worker run once more on another. A frame that two workers were lost with fails: it may be the cause.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future

from pipelines.crew import Crew
from pipelines.errors import Dropped, Refused, Stopped
from pipelines.frame import Frame, Prediction
from pipelines.predict.engines.engine import Engine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.worker_facts import WorkerFacts
from pipelines.predict.workers.orphans import RETRY_S
from pipelines.predict.workers.supervisor import MakeWorker, PoolOptions, Supervisor


class Pool:
    """Used as `with pool:`. Entering returns when every worker is warm; leaving cancels the waiting frames. The methods for
    lanes and services are those of `AsyncBatchPredictor`.

    `error` holds the reason if it cannot go on: no worker is left, and none may be started for a while.
    """

    def __init__(
        self,
        make_worker: MakeWorker,
        options: PoolOptions,
        *,
        events: PredictorEvents | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts nothing yet. make_worker(k, events): the engine and the predictor of worker k, not entered; options: number of
        workers and limits of restarts; events: called for the batches of all workers."""
        self.warmup_s = 0.0
        self._events = events or PredictorEvents()
        self._clock = clock
        self._crew = Crew(self._abort)  # the error of a thread ends all workers
        self._supervisor = Supervisor(make_worker, options, self._events, clock)
        self._changed = self._supervisor.changed
        self._routes = self._supervisor.routes

    # Life cycle.

    def __enter__(self) -> Pool:
        """:raises Stopped: if the pool was stopped before."""
        self._crew.__enter__()
        began_s = self._clock()
        supervisor = self._supervisor
        for worker in supervisor.workers:
            self._crew.start(f"worker:{worker.index}", lambda w=worker: supervisor.keep(w))  # type: ignore[misc]
        self._crew.start("orphans", lambda: supervisor.orphans.expire(lambda: not supervisor.stopping))
        with self._changed:
            self._changed.wait_for(lambda: supervisor.stopping or supervisor.ready)
            stopped = supervisor.stopping
            supervisor.entered = not stopped
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
        self._supervisor.stop()

    def _abort(self) -> None:
        self.stop()
        if self._crew.error is not None:
            self._events.failed()

    # State.

    @property
    def ready(self) -> bool:
        """Whether every worker is warm, and new work is taken."""
        return self._supervisor.ready

    @property
    def restarts(self) -> int:
        """Workers that were replaced."""
        return self._supervisor.restarts

    def workers(self) -> list[WorkerFacts]:
        """The present state of every worker."""
        with self._changed:
            return [w.facts() for w in self._supervisor.workers]

    @property
    def error(self) -> BaseException | None:
        """The error that ended the pool, or that keeps it from working."""
        return self._crew.error or self._supervisor.error

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
            found = self._supervisor.first = next(iter(self._routes.ready()), self._supervisor.first)
        if found is None:
            raise RuntimeError("the pool is used before it was entered")
        return found

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
        return max(self._supervisor.again_s - self._clock(), 0.0) + RETRY_S

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
            if not future.cancelled() or self._supervisor.stopping:
                return future
        future = Future()
        if self._supervisor.stopping:
            future.cancel()
        else:
            frame.let_go()
            future.set_exception(Dropped("overload"))
        return future

    def _submit_request(self, frame: Frame, deadline_s: float | None) -> Future[Prediction]:
        refused: Refused | None = None
        with self._changed:
            ready = self._routes.ready()
        if self._supervisor.stopping:
            return _cancelled()
        for predictor in sorted(ready, key=lambda p: p.end_s(frame.stream, deadline_s)):
            try:
                future = predictor.submit(frame, deadline_s)
            except Refused as error:
                refused = refused or error
                continue
            if not future.cancelled() or self._supervisor.stopping:
                return future
        raise refused or Refused(self.retry_s, "no_worker")

    def _predictor_for(self, frame: Frame) -> AsyncBatchPredictor | None:
        """The predictor for this frame. Blocks for a file until a worker is ready; None if no worker serves the stream, or the
        pool is stopping."""
        with self._changed:
            if not self._routes.live(frame.stream):
                self._changed.wait_for(lambda: self._supervisor.stopping or self._routes.ready())
            found = [] if self._supervisor.stopping else self._routes.of(frame.stream)
            return min(found, key=lambda p: p.on_its_way(frame.stream), default=None)


def _cancelled() -> Future[Prediction]:
    future: Future[Prediction] = Future()
    future.cancel()
    return future
