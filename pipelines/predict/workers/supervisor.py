"""Supervisor: starts a process in each place of a pool, waits for its end, and starts the next; requeues its frames.

Each worker has a thread, `worker:K`. A worker is replaced a few times a minute at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.errors import EngineLost, Stopped
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents
from pipelines.predict.scheduling.queues import Entry
from pipelines.predict.workers.assignment import Assignment
from pipelines.predict.workers.orphans import Orphans
from pipelines.predict.workers.worker import Allowance, Worker
from pipelines.predict.workers.worker_engine import WorkerEngine

log = logging.getLogger("watchline.pool")

LOSSES = 2
"""Workers that may be lost while they run a frame; then it fails."""

MakeWorker = Callable[[int, PredictorEvents], tuple[WorkerEngine, AsyncBatchPredictor]]
"""An engine for place K, and its predictor; nothing is started yet."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """workers: processes. restarts: replacements within `within_s` seconds, at most."""

    workers: int
    restarts: int = 5
    within_s: float = 60.0


class Supervisor:
    """The workers of a pool. All is guarded by `changed`; schedulers' locks are taken within it, never the other way round."""

    def __init__(self, make: MakeWorker, options: PoolOptions, events: PredictorEvents, clock: Callable[[], float]) -> None:
        self.changed = threading.Condition()
        self.workers = [Worker(k) for k in range(options.workers)]
        self.routes = Assignment(self.workers)
        self.orphans = Orphans(self.changed, clock)
        self.restarts = 0
        """Workers that were replaced."""
        self.again_s = float("-inf")
        """Monotonic: no worker is started before."""
        self.entered = False
        self.stopping = False
        self.first: AsyncBatchPredictor | None = None
        """The first predictor that was ready."""
        self.error: BaseException | None = None
        """The reason if no worker is left, and none may be started for a while."""
        self._make = make
        self._events = events
        self._clock = clock
        self._allowance = Allowance(options.restarts, options.within_s)

    @property
    def ready(self) -> bool:
        """Whether every worker is warm, and new work is taken."""
        return not self.stopping and all(w.state == "ready" for w in self.workers)

    def stop(self) -> None:
        """Cancel the waiting frames; running batches are finished first."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
            orphans = self.orphans.take()
        for entry, _ in orphans:
            entry.cancel()
        for worker in self.workers:
            worker.stop()

    # Threads worker:K.

    def keep(self, worker: Worker) -> None:
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
        with self.changed:
            if not self.stopping:
                worker.begin(*self._make(worker.index, events))
            return not self.stopping

    def _batch(self, worker: Worker, size: int, seconds: float) -> None:
        worker.use.add(seconds)
        # The listener gets the share of all devices together.
        self._events.batch(size, seconds / len(self.workers))

    def _join(self, worker: Worker) -> None:
        """The worker is warm: assign streams to it, and requeue the orphans."""
        with self.changed:
            predictor = worker.is_ready()
            self.first = self.first or predictor
            self.routes.joined(worker)
            self.error = None
            orphans = self.orphans.take()
            self.changed.notify_all()
        for entry, error in orphans:
            self._requeue(entry, error)

    def _leave(self, worker: Worker) -> None:
        """The worker is gone: its cameras go to the others. Any thread, more than once."""
        with self.changed:
            if worker.state == "dead":
                return
            worker.state = "dead"
            self.routes.left(worker)
            self.changed.notify_all()

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
        with self.changed:
            if not self.stopping and any(predictor.requeue(entry) for predictor in self._candidates(entry)):
                return
            if not self.stopping and entry.stream.patience_s > 0:
                self.orphans.add(entry, error)
                return
        if self.stopping:
            entry.cancel()
        else:
            entry.drop("overload")

    def _candidates(self, entry: Entry) -> list[AsyncBatchPredictor]:
        """The predictors that may run it, the best first. With the lock held."""
        name = entry.frame.stream
        if name in self.routes.requests:
            return sorted(self.routes.ready(), key=lambda p: p.end_s(name, entry.deadline_s))
        return self.routes.of(name)

    def _wait_to_restart(self, worker: Worker, reason: str) -> bool:
        """Wait until another may be started; False: the pool stops.

        :raises EngineLost: if too many workers were lost before the pool was entered.
        """
        with self.changed:
            if self.stopping:
                return False
            wait_s = self._allowance.take(self._clock())
        if wait_s > 0:
            self._say_too_many(worker, reason, wait_s)
        else:
            log.warning("worker %d: %s; another is started", worker.index, reason)
        with self.changed:
            while wait_s > 0 and not self.stopping:
                self.changed.wait(wait_s)
                wait_s = self._allowance.take(self._clock())
            if self.stopping:
                return False
            worker.restarts += 1
            self.restarts += 1
            return True

    def _say_too_many(self, worker: Worker, reason: str, wait_s: float) -> None:
        a = self._allowance
        text = f"worker {worker.index}: {reason}; {a.count} were replaced within {a.within_s:g} s"
        error = EngineLost(f"{text}, no further one is started for {wait_s:.0f} s")
        if not self.entered:
            raise error
        log.error("%s", error)
        if all(w.state == "dead" for w in self.workers):
            self.error = error
            self.again_s = self._clock() + wait_s
            self._events.failed()
