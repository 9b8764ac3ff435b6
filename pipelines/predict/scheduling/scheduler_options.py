"""The options of a scheduler: the promise and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.choices import Batching
from pipelines.predict.scheduling.tuning import DEFAULT, Tuning


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Sizes count rows: one per region of a frame."""

    budget_s: float = 0.050
    """Latency budget of live streams that name none of their own, from arrival to shown."""
    max_batch: int = 32
    """Rows of a batch at most."""
    max_wait_s: float | None = None
    """Longest wait for a full batch, after the first frame of it arrived. None: by deadlines."""
    slots: int = 2
    """Batches that may be staged or running at once."""
    parallel: int = 1
    """Of these, batches that the engine computes side by side."""
    batching: Batching = "dynamic"
    tuning: Tuning = DEFAULT
