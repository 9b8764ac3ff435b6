"""Predictor: the members that `AsyncBatchPredictor` and `Pool` share. Callers need not know which of them they have."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from pipelines.frame import Frame, Prediction
from pipelines.predict.engines.engine import Engine
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.worker_facts import WorkerFacts


class Predictor(Protocol):
    """Used as `with predictor:`. All methods but `__enter__` and `__exit__` may be called from any thread while it is open."""

    warmup_s: float
    """Seconds that entering took."""

    @property
    def restarts(self) -> int:
        """Workers that were replaced."""

    @property
    def engine(self) -> Engine:
        """The engine; of a pool, that of one worker."""

    @property
    def profile(self) -> Profile:
        """The measured l(b); of a pool, that of one worker."""

    @property
    def error(self) -> BaseException | None:
        """The error that ended the predictor, or keeps it from working."""

    @property
    def retry_s(self) -> float:
        """Seconds after which a refused caller may come back."""

    def __enter__(self) -> Any:
        """Returns when the engine is warm and measured.

        :raises Stopped: if it was stopped before.
        """

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Cancels the waiting frames."""

    def stop(self) -> None:
        """Cancel the waiting frames and end, also during warm-up."""

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None:
        """Announce a stream before its first frame. budget_s: of a live stream; None: that of the options."""

    def open_requests(self, name: str, *, capacity: int) -> None:
        """Announce a queue of requests, of which at most `capacity` wait."""

    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]:
        """Hand in a frame, or a request with its deadline.

        :raises Refused: if a request cannot be taken.
        """

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that got a prediction or an error from the engine."""

    def close(self, stream: str) -> None:
        """No further frame of this stream will come."""

    def waiting(self, name: str) -> int:
        """Frames of a stream, or requests of a queue, that wait now."""

    def end_s(self, name: str, deadline_s: float | None) -> float:
        """The expected end of a request with this deadline, if it came now; monotonic."""

    def workers(self) -> Sequence[WorkerFacts]:
        """The present state of each worker process; empty if there is none."""

    def memory_mb(self) -> float:
        """Memory outside this process: of GPUs, and of worker processes."""
