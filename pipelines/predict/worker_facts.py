"""WorkerFacts: the state of a worker process, for reports and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["starting", "ready", "dead"]
USE_S = 10.0
"""Time over which the use of a device is averaged."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The present state of a worker. restarts: replacements so far. memory_mb: of its GPU, or of its process. use: share of
    the last USE_S seconds in which its device was busy, 0-1."""

    index: int
    pid: int | None
    device: str
    state: State
    restarts: int
    memory_mb: float | None
    use: float
