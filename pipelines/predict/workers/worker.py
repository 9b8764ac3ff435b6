"""One worker of a pool, as the pool sees it; and how many may be replaced."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pipelines.predict.predictor import AsyncBatchPredictor
from pipelines.predict.workers.worker_engine import WorkerEngine

State = Literal["starting", "ready", "dead"]
HANG_S = 2.0
HANG_TIMES = 5
"""A worker that holds a batch five times as long as 99 of 100 have taken lately, and two seconds at least, is taken for hung.
Its requests are to be answered by another before the usual 5 s are over: 10 times was 5.1 s for batches of 16 on one thread."""
USE_S = 10.0
"""Over how long a device's use is told."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker as it is now. `restarts`: how often it was replaced; `memory_mb`: of its GPU, or of its process; `use`: share
    of the last seconds in which its device was busy, 0-1."""

    index: int
    pid: int | None
    device: str
    state: State
    restarts: int
    memory_mb: float | None
    use: float


class Use:
    """How busy a device is. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._busy: deque[tuple[float, float]] = deque()
        self._since_s = clock()

    def add(self, seconds: float) -> None:
        """It was busy for so long until now."""
        with self._lock:
            self._busy.append((self._clock(), seconds))
            self._forget()

    def share(self) -> float:
        """Of the last USE_S, or since it began if that is less."""
        with self._lock:
            self._forget()
            span_s = min(self._clock() - self._since_s, USE_S)
            return min(sum(s for _, s in self._busy) / span_s, 1.0) if span_s > 0 else 0.0

    def _forget(self) -> None:
        while self._busy and self._busy[0][0] < self._clock() - USE_S:
            self._busy.popleft()


class Worker:
    """One place of the pool, filled by one predictor after the other. Guarded by the pool's lock."""

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
        """It is warm: from now on a batch may not take longer than its profile knows by far."""
        predictor, engine = self.predictor, self.engine
        assert predictor is not None
        assert engine is not None
        engine.limit_s = lambda n: max(HANG_S, HANG_TIMES * predictor.profile.p99(n))
        self.state = "ready"
        return predictor

    def stop(self) -> None:
        """End soon; one that is still loading is killed."""
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
    """At most so many restarts within so many seconds."""

    def __init__(self, count: int, within_s: float) -> None:
        self.count = count
        self.within_s = within_s
        self._times_s: deque[float] = deque()

    def take(self, now: float) -> float:
        """Count one more restart; or, if that is too many, how long until it is not."""
        while self._times_s and self._times_s[0] <= now - self.within_s:
            self._times_s.popleft()
        if len(self._times_s) >= self.count:
            return self._times_s[0] + self.within_s - now
        self._times_s.append(now)
        return 0.0
