"""The state of one worker of a pool, and the limit of replacements."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from pipelines.predict.predictor import AsyncBatchPredictor
from pipelines.predict.worker_facts import USE_S, State, WorkerFacts
from pipelines.predict.workers.worker_engine import WorkerEngine

HANG_S = 2.0
HANG_TIMES = 5
"""A worker counts as hung if a batch takes HANG_TIMES its 99th percentile, and HANG_S at least. Another worker answers its
requests before the usual limit of 5 s: 10 times was 5.1 s for batches of 16 on one thread."""


class Use:
    """The busy share of a device. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._busy: deque[tuple[float, float]] = deque()
        self._since_s = clock()

    def add(self, seconds: float) -> None:
        """Count `seconds` of work that ended now."""
        with self._lock:
            self._busy.append((self._clock(), seconds))
            self._forget()

    def share(self) -> float:
        """The busy share of the last USE_S seconds, or since the start if that is less."""
        with self._lock:
            self._forget()
            span_s = min(self._clock() - self._since_s, USE_S)
            return min(sum(s for _, s in self._busy) / span_s, 1.0) if span_s > 0 else 0.0

    def _forget(self) -> None:
        while self._busy and self._busy[0][0] < self._clock() - USE_S:
            self._busy.popleft()


class Worker:
    """One place of the pool; one process after the other fills it. Guarded by the pool's lock."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.state: State = "starting"
        self.restarts = 0
        self.engine: WorkerEngine | None = None
        self.predictor: AsyncBatchPredictor | None = None
        self.use = Use()

    def begin(self, engine: WorkerEngine, predictor: AsyncBatchPredictor) -> None:
        """A new process starts."""
        self.engine, self.predictor, self.state, self.use = engine, predictor, "starting", Use()

    def is_ready(self) -> AsyncBatchPredictor:
        """The process is warm: from now on the limit of a batch follows from its profile."""
        predictor, engine = self.predictor, self.engine
        assert predictor is not None
        assert engine is not None
        engine.limit_s = lambda n: max(HANG_S, HANG_TIMES * predictor.profile.p99(n))
        self.state = "ready"
        return predictor

    def stop(self) -> None:
        """End soon; a process that still loads its model is killed."""
        if self.predictor is not None:
            self.predictor.stop()
        if self.engine is not None and self.state == "starting":
            self.engine.kill()

    def facts(self) -> WorkerFacts:
        engine = self.engine
        return WorkerFacts(
            self.index,
            engine.pid if engine else None,
            engine.device if engine else "",
            self.state,
            self.restarts,
            engine.memory_mb() if engine else None,
            self.use.share(),
        )


class Allowance:
    """At most `count` restarts within `within_s` seconds."""

    def __init__(self, count: int, within_s: float) -> None:
        self.count = count
        self.within_s = within_s
        self._times_s: deque[float] = deque()

    def take(self, now: float) -> float:
        """Count a restart and return 0.0; or, if it is one too many, the seconds until it is allowed."""
        while self._times_s and self._times_s[0] <= now - self.within_s:
            self._times_s.popleft()
        if len(self._times_s) >= self.count:
            return self._times_s[0] + self.within_s - now
        self._times_s.append(now)
        return 0.0
