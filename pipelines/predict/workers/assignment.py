"""Assignment: the worker of each camera, and the open streams that each worker must know.

A camera stays with one worker, because its mailbox is one: the newest frame wins. All workers know every file, since its
frames are shared out one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.predict.predictor import AsyncBatchPredictor
from pipelines.predict.workers.worker import Worker


@dataclass(slots=True, eq=False)
class AssignedStream:
    """An open stream. worker: of a camera; None for a file, or if no worker is ready."""

    live: bool
    budget_s: float | None = None
    worker: Worker | None = None


class Assignment:
    """The open streams of a pool, and its queues of requests. Guarded by the pool's lock."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.requests: dict[str, int] = {}
        """Capacity of each queue, for one worker."""
        self._workers = workers
        self._streams: dict[str, AssignedStream] = {}

    def ready(self) -> list[AsyncBatchPredictor]:
        """The predictors that take work. Without the lock the answer may be old."""
        return [w.predictor for w in self._workers if w.state == "ready" and w.predictor is not None]

    def cameras(self, worker: Worker) -> int:
        """The number of cameras of this worker."""
        return sum(s.worker is worker for s in self._streams.values())

    def live(self, stream: str) -> bool:
        """Whether it is a camera."""
        return self._streams[stream].live

    def of(self, stream: str) -> list[AsyncBatchPredictor]:
        """The predictors that take the stream's frames; none if no worker is ready."""
        found = self._streams.get(stream)
        if found is None or not found.live:
            return self.ready()
        return [found.worker.predictor] if found.worker is not None and found.worker.predictor is not None else []

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None:
        opened = self._streams[stream] = AssignedStream(live, budget_s)
        self._introduce(stream, opened)

    def close(self, stream: str) -> None:
        for predictor in self.of(stream):
            predictor.close(stream)
        del self._streams[stream]

    def _introduce(self, name: str, stream: AssignedStream) -> None:
        """Announce a camera to the worker with the fewest cameras, a file to all."""
        ready = [w for w in self._workers if w.state == "ready"]
        if stream.live and ready:
            stream.worker = min(ready, key=self.cameras)
        for predictor in self.of(name):
            predictor.open(name, live=stream.live, budget_s=stream.budget_s)

    def open_requests(self, name: str, capacity: int) -> None:
        """Each worker has its share of the capacity."""
        self.requests[name] = max(1, -(-capacity // len(self._workers)))
        for predictor in self.ready():
            predictor.open_requests(name, capacity=self.requests[name])

    def joined(self, worker: Worker) -> None:
        """A worker is ready: it gets its share of the open streams."""
        predictor = worker.predictor
        assert predictor is not None
        for name, capacity in self.requests.items():
            predictor.open_requests(name, capacity=capacity)
        for name, stream in self._streams.items():
            if not stream.live:
                predictor.open(name, live=False)
            elif stream.worker is None:
                self._introduce(name, stream)
        self._take_cameras(worker, predictor)

    def _take_cameras(self, worker: Worker, predictor: AsyncBatchPredictor) -> None:
        """Move cameras from the workers that have at least two more."""
        while True:
            fullest = max((w for w in self._workers if w.state == "ready"), key=self.cameras)
            if self.cameras(fullest) < self.cameras(worker) + 2 or fullest.predictor is None:
                return
            name, stream = next((n, s) for n, s in self._streams.items() if s.worker is fullest)
            stream.worker = worker
            predictor.open(name, live=True, budget_s=stream.budget_s)
            fullest.predictor.close(name)

    def left(self, worker: Worker) -> None:
        """A worker is gone: its cameras go to the others."""
        for name, stream in self._streams.items():
            if stream.worker is worker:
                stream.worker = None
                self._introduce(name, stream)
