"""Service: the state of the service, its figures, and the facts about its predictor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import Metric

from app.http.metrics import Metrics
from app.http.problems import CROWDED, RETRY_S, Problem
from app.serve import health
from app.serve.facts import ServiceFacts
from app.serve.handler import RequestHandler, ServiceLimits
from app.serve.memory_budget import MemoryBudget
from app.serve.schemas import STAGES, HealthReport, ModelReport, State
from pipelines.predict.worker_facts import WorkerFacts


class Service:
    """One service. The thread that starts and stops it sets its state; the event loop runs everything else.

    The facts about the predictor are set when it is warm; before, there are no workers.
    """

    def __init__(self, limits: ServiceLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.last_minute = health.LastMinute(clock)
        self.memory_budget = MemoryBudget()
        self.metrics = Metrics(STAGES, self._gauges)
        self.model: ModelReport | None = None
        self.wanted = 1
        """The number of workers that the options ask for."""
        self.workers: Callable[[], Sequence[WorkerFacts]] = list
        self.restarts: Callable[[], int] = lambda: 0
        self.lost: Callable[[], bool] = lambda: False
        """Whether no worker is left, and none is started for a while."""
        self.memory: Callable[[], float | None] = lambda: None
        """Share of the fullest device's memory that is in use, 0-1."""
        self.connections: Callable[[], int] = lambda: 0
        self.most_connections = 1000
        self.state = "starting"
        self.handler = RequestHandler(limits, self, clock)

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch that has ended. seconds: its time, divided by the number of workers. Any thread."""
        self.last_minute.batch(size, seconds)
        self.metrics.batch(size)

    @property
    def warm(self) -> int:
        """The number of workers that are ready."""
        return sum(worker.state == "ready" for worker in self.workers())

    @property
    def ready(self) -> bool:
        """Whether the service takes requests, with all the workers that the options ask for."""
        return self.state == "ready" and self.warm >= self.wanted

    def check_open(self) -> None:
        """:raises Problem: if the service takes no requests now."""
        if self.state != "ready":
            words = {"starting": "the model is being loaded", "stopping": "the service is stopping"}
            raise Problem(503, self.state, words[self.state], retry_after_s=RETRY_S)
        if self.connections() > self.most_connections:
            raise Problem(503, CROWDED, f"more than {self.most_connections} connections are open")

    def state_report(self) -> State:
        """The answer of `/ready`."""
        short = self.state == "ready" and not self.ready
        state = ("failed" if self.lost() else "degraded") if short else self.state
        return State(self.ready, state, self.warm, self.wanted)

    def health_report(self) -> HealthReport:
        """The answer of `/v1/health-report`."""
        return health.report(self.last_minute.figures(), self.memory())

    def facts(self) -> ServiceFacts:
        """The present values for the metrics."""
        return ServiceFacts(
            ready=self.ready,
            queue_depth=self.handler.waiting,
            queue_capacity=self.handler.limits.capacity,
            queue_wait_p99_s=self.last_minute.figures().queue_wait_p99_s,
            held_bytes=self.memory_budget.held,
            connections=self.connections(),
            worker_restarts=self.restarts(),
            workers=self.workers(),
        )

    def _gauges(self) -> Iterable[Metric]:
        return self.facts().gauges()
