"""Metrics for Prometheus. What others keep (queue, workers, devices) is asked for when the metrics are fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from pipelines.predict.worker_facts import WorkerFacts

STAGES = ("receive", "decode", "queue", "preprocess", "infer", "answer", "total")
BUDGET_S = 0.050
"""The latency promise of the cameras: the buckets lie closest around it."""
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, BUDGET_S, 0.06, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
Facts = Callable[[], Mapping[str, Any]]


class Metrics:
    """Counters of one service, in a registry of its own. Any thread."""

    def __init__(self, facts: Facts) -> None:
        """facts: what is true now; see `_Now`."""
        self._registry = CollectorRegistry()
        self._requests = Counter("watchline_requests", "Requests by outcome", ["outcome"], registry=self._registry)
        self._pictures = Counter("watchline_pictures", "Pictures by outcome", ["outcome"], registry=self._registry)
        stages = Histogram(
            "watchline_latency_seconds",
            "Time of answered pictures by stage",
            ["stage"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._stages = {stage: stages.labels(stage) for stage in STAGES}
        self._sizes = Histogram("watchline_batch_size", "Pictures in a batch", buckets=SIZES, registry=self._registry)
        self._registry.register(_Now(facts))

    def request(self, outcome: str) -> None:
        """A request has got its answer: "ok", or a problem's code."""
        self._requests.labels(outcome).inc()

    def picture(self, outcome: str) -> None:
        self._pictures.labels(outcome).inc()

    def latency(self, stages: Mapping[str, float]) -> None:
        """Seconds of each stage of an answered picture."""
        for stage, seconds in stages.items():
            self._stages[stage].observe(seconds)

    def batch(self, size: int) -> None:
        self._sizes.observe(size)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _Now:
    """Gauges that are read when they are asked for."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterable[Any]:
        facts = self._facts()
        for name, help in (
            ("ready", "1 if the service is ready"),
            ("queue_depth", "Pictures that wait"),
            ("queue_capacity", "Pictures that may wait"),
            ("queue_wait_p99_seconds", "Wait, to be decoded and for a batch, of 99 of 100 pictures of the last minute at most"),
            ("held_bytes", "Bodies and decoded pictures in memory"),
            ("connections", "Open connections"),
        ):
            if facts.get(name) is not None:
                yield GaugeMetricFamily(f"watchline_{name}", help, value=facts[name])
        yield CounterMetricFamily("watchline_worker_restarts", "Workers that were replaced", value=facts["worker_restarts"])
        yield from _devices(facts["workers"])


def _devices(workers: Iterable[WorkerFacts]) -> Iterable[Any]:
    up = GaugeMetricFamily("watchline_worker_ready", "1 if the worker is ready", labels=["worker", "device"])
    use = GaugeMetricFamily("watchline_device_use", "Share of the time in which the device works", labels=["worker", "device"])
    memory = GaugeMetricFamily("watchline_device_memory_bytes", "Memory that a worker holds", labels=["worker", "device"])
    for worker in workers:
        labels = [str(worker.index), worker.device]
        up.add_metric(labels, float(worker.state == "ready"))
        use.add_metric(labels, worker.use)
        if worker.memory_mb is not None:
            memory.add_metric(labels, worker.memory_mb * 2**20)
    return up, use, memory
