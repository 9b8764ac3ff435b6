"""Metrics for Prometheus. Gauges (queue, workers, devices) are read when a client fetches the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import Metric

BUDGET_S = 0.050
"""The latency promise of the cameras: the buckets lie closest around it."""
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, BUDGET_S, 0.06, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
Gauges = Callable[[], Iterable[Metric]]


class Metrics:
    """Counters of one service, in a registry of its own. Any thread."""

    def __init__(self, stages: Sequence[str], gauges: Gauges) -> None:
        """stages: names of the stages that `latency` is told of. gauges: gives the present values of everything that is not
        counted here."""
        self._registry = CollectorRegistry()
        self._requests = Counter("watchline_requests", "Requests by outcome", ["outcome"], registry=self._registry)
        self._pictures = Counter("watchline_pictures", "Pictures by outcome", ["outcome"], registry=self._registry)
        latency = Histogram(
            "watchline_latency_seconds",
            "Time of answered pictures by stage",
            ["stage"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._stages = {stage: latency.labels(stage) for stage in stages}
        self._sizes = Histogram("watchline_batch_size", "Pictures in a batch", buckets=SIZES, registry=self._registry)
        self._registry.register(_Collector(gauges))

    def request(self, outcome: str) -> None:
        """Count an answered request. outcome: "ok", or the code of a problem."""
        self._requests.labels(outcome).inc()

    def picture(self, outcome: str) -> None:
        """Count an answered picture. outcome: "ok", or the code of a problem."""
        self._pictures.labels(outcome).inc()

    def latency(self, stages: Mapping[str, float]) -> None:
        """Count the seconds of each stage of an answered picture."""
        for stage, seconds in stages.items():
            self._stages[stage].observe(seconds)

    def batch(self, size: int) -> None:
        """Count a batch of `size` pictures."""
        self._sizes.observe(size)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Collector:
    """Reads the gauges when the registry is read."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._gauges()
