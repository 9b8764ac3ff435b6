"""Completion: started batches are waited for in order, their rows decoded, and the futures of their frames completed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.channel import Channel
from pipelines.errors import EngineError, EngineLost
from pipelines.frame import Box, Picture, Prediction, Region
from pipelines.predict.engines.engine import Engine, Slot, checked
from pipelines.predict.recovery import Recovery
from pipelines.predict.scheduling.queues import Entry, Part
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler
from pipelines.predict.staging import StagedRow
from pipelines.tasks.task import Geometry, Rows, Task, row_of

BoxOf = Callable[[Picture, Region], Box | None]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A staged batch. id: counts from 1; rows: those of the slot; started_s: the time at which the engine was asked."""

    id: int
    rows: list[StagedRow]
    slot: Slot
    started_s: float

    @property
    def parts(self) -> list[Part]:
        """Its parts, each once."""
        return list(dict.fromkeys(part for part, _ in self.rows))


class Completion:
    """`run` is the thread complete:DEVICE. It ends after `close` with the last started batch."""

    def __init__(
        self,
        engine: Engine,
        task: Task,
        box_of: BoxOf,
        scheduler: DynamicBatchScheduler,
        free: Channel[Slot],
        recovery: Recovery,
        *,
        parallel: int,
        told: Callable[[int, float], None],
        clock: Callable[[], float],
    ) -> None:
        """free: gets the slots back. told: of each batch, its rows and the seconds that it took the device."""
        self._engine = engine
        self._task = task
        self._box_of = box_of
        self._scheduler = scheduler
        self._free = free
        self._recovery = recovery
        self._parallel = parallel
        self._told = told
        self._clock = clock
        self._started: Channel[Batch] = Channel(1024, "block")
        self._ended_s = deque([0.0] * parallel, maxlen=parallel)
        """Ends of the last batches, as many as run side by side."""

    def put(self, batch: Batch) -> None:
        """Hand over a started batch. Thread: the predictor's."""
        self._started.put(batch)

    def close(self) -> None:
        """No further batch comes."""
        self._started.close()

    def run(self) -> None:
        """Complete every started batch in order."""
        try:
            for batch in self._started:
                self._complete(batch)
        finally:
            # Batches are left only after an error of this class: no future may stay open.
            self._scheduler.stop()
            for batch in self._started:
                self.failed(batch, EngineError("the completion thread has ended"))

    def _complete(self, batch: Batch) -> None:
        try:
            rows = self._rows(batch)
        except BaseException as error:
            if isinstance(error, EngineLost):
                for part in batch.parts:  # not the parts of batches that were staged behind it
                    part.entry.losses += 1
            self.failed(batch, error)
            if self._recovery.lost is not None:
                raise
            return
        try:
            self._hand_out(batch, rows)
        except BaseException as error:
            for part in batch.parts:
                part.entry.fail(error)
            raise

    def _rows(self, batch: Batch) -> Rows:
        """The batch's rows, copied out of the slot."""
        n = len(batch.rows)
        rows = checked(self._engine.wait(batch.slot, n), n, self._engine.outputs)
        return tuple(np.array(output) for output in rows)

    def _hand_out(self, batch: Batch, rows: Rows) -> None:
        now = self._clock()
        # A batch that was staged while the device was full begins when the oldest of those before it ends.
        took_s = now - max(batch.started_s, self._ended_s[0])
        self._ended_s.append(now)
        n = len(batch.rows)
        try:
            self._scheduler.profile.observe(n, took_s, now)
        finally:
            self.release(batch)  # before the rows are decoded: the next batch need not wait for that
        for k, (part, region) in enumerate(batch.rows):
            if part.valid:
                self._answer(part.entry, region, row_of(rows, k), batch, now)
        self._told(n, took_s / self._parallel)  # side by side each batch had a share of the device

    def _answer(self, entry: Entry, region: Region, outputs: Rows, batch: Batch, now: float) -> None:
        """Decode one row; the last row of a frame completes its future."""
        try:
            answer = self._task.decode(outputs, Geometry(entry.frame.picture, region, self._box_of))
        except EngineError as error:
            entry.fail(error)
            return
        entry.answers[region.name] = answer
        entry.left -= 1
        if not entry.left:
            entry.frame.trace.inferred_s = now
            entry.succeed(Prediction(entry.answers, batch.id, len(batch.rows)))

    def failed(self, batch: Batch, error: BaseException, *, newest: bool = False) -> None:
        """The engine failed on a batch. newest: it could not be started. Thread: this one or the predictor's."""
        self.release(batch, newest=newest)
        self._recovery.failed(batch.parts, error)

    def release(self, batch: Batch, *, newest: bool = False) -> None:
        """The device is done with the batch: its slot is free."""
        self._free.put(batch.slot)
        self._scheduler.done(newest=newest)
