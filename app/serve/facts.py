"""ServiceFacts: the present values of the service, as gauges for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pipelines.predict.worker_facts import WorkerFacts


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Present values that no counter of the metrics holds. queue_wait_p99_s: None if nothing was measured in the last minute.
    held_bytes: bodies and decoded pictures in memory."""

    ready: bool
    queue_depth: int
    queue_capacity: int
    queue_wait_p99_s: float | None
    held_bytes: int
    connections: int
    worker_restarts: int
    workers: Sequence[WorkerFacts]

    def gauges(self) -> Iterator[Metric]:
        """The metrics of these facts."""
        wait = "Wait, to be decoded and for a batch, of 99 of 100 pictures of the last minute at most"
        for name, help, value in (
            ("ready", "1 if the service is ready", self.ready),
            ("queue_depth", "Pictures that wait", self.queue_depth),
            ("queue_capacity", "Pictures that may wait", self.queue_capacity),
            ("queue_wait_p99_seconds", wait, self.queue_wait_p99_s),
            ("held_bytes", "Bodies and decoded pictures in memory", self.held_bytes),
            ("connections", "Open connections", self.connections),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"watchline_{name}", help, value=float(value))
        yield CounterMetricFamily("watchline_worker_restarts", "Workers that were replaced", value=self.worker_restarts)
        yield from _worker_gauges(self.workers)


def _worker_gauges(workers: Iterable[WorkerFacts]) -> tuple[Metric, ...]:
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
