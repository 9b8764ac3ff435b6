"""Recovery after an engine has failed, in three verbs: evict (take out), requeue (run again), fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.errors import EngineLost
from pipelines.predict.scheduling.queues import Entry, Part, detached
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler

Orphaned = Callable[[Sequence[Entry], EngineLost], None]


def fail(entries: Sequence[Entry], error: EngineLost) -> None:
    """End the frames with the error: no other engine is there to run them."""
    for entry in entries:
        entry.fail(error)


class Recovery:
    """One bad frame fails one frame; a lost engine loses none. Any thread."""

    def __init__(self, orphaned: Orphaned) -> None:
        """orphaned: takes over the evicted frames of a lost engine."""
        self.lost: EngineLost | None = None
        self._orphaned = orphaned
        self._scheduler: DynamicBatchScheduler | None = None

    def begin(self, scheduler: DynamicBatchScheduler) -> None:
        """The engine is warm: from now on frames can wait."""
        self._scheduler = scheduler

    def lose(self, error: EngineLost) -> None:
        """The engine is gone: evict the waiting frames and stop the scheduler."""
        self.lost = error
        if self._scheduler is not None:
            self._orphaned(self._scheduler.evict(), error)

    def failed(self, parts: Sequence[Part], error: BaseException) -> None:
        """The engine failed on a batch. If it is lost, evict the frames. Otherwise requeue each of several parts as a batch of
        its own, or fail the frame of a single part."""
        if isinstance(error, EngineLost):
            self.lose(error)
        if self.lost is not None:
            self._orphaned(detached(parts), self.lost)
        elif len(parts) > 1:
            assert self._scheduler is not None
            self._scheduler.retry(parts)
        else:
            parts[0].entry.fail(error)
