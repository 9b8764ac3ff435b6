"""Staging: the rows of a batch become model input in a slot, in one thread or in several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from pipelines.channel import Channel, Closed
from pipelines.cores import cores
from pipelines.crew import Crew
from pipelines.frame import Picture, Region
from pipelines.predict.engines.engine import Slot
from pipelines.predict.scheduling.queues import Part

Stage = Callable[[Slot, int, Picture, Region], None]
"""`Engine.stage`."""
StagedRow = tuple[Part, Region]
"""One region of a frame in a batch."""


def stagers(wanted: int | None) -> int:
    """Threads that stage a batch. None: a quarter of the cores, at least 1."""
    return max(1, cores() // 4) if wanted is None else wanted


class Staging:
    """Fills slots: the caller's thread, and `threads` - 1 threads of its own if there are several.

    Two threads reach 48 synthetic 720p cameras on a device of 2 + 0.1 b ms with a goodput of 1.000, one thread 0.499: 1.0 ms
    of preprocessing a frame limits one thread to 1,000 frames per second (tests/benchmarks/staging.py).
    """

    def __init__(self, stage: Stage, threads: int) -> None:
        self._stage = stage
        self._helpers = threads - 1
        # Never blocks: a job that a helper has not seen yet is over when the next one comes.
        self._jobs: Channel[_Job] = Channel(max(self._helpers, 1), "newest")

    def start(self, crew: Crew, label: str) -> None:
        """Start the helpers in the crew. They end after `close`."""
        for k in range(self._helpers):
            crew.start(f"stage{k}:{label}", self._help)

    def close(self) -> None:
        """End the helpers."""
        self._jobs.close()

    def fill(self, slot: Slot, parts: Sequence[Part]) -> list[StagedRow]:
        """Stage the parts; the rows of the slot in their order.

        A frame with a region that cannot be staged fails alone, and leaves no gap: the others are staged again without it.
        Thread: the predictor's.
        """
        while True:
            rows = [(p, region) for p in parts for region in p.regions]
            errors = self._run(slot, rows)
            if not errors:
                return rows
            for (part, _), error in zip(rows, errors, strict=True):
                if error is not None:
                    part.entry.fail(error)
            parts = [p for p in parts if p.valid]

    def _run(self, slot: Slot, rows: Sequence[StagedRow]) -> list[BaseException | None]:
        """Stage each row once; the error of each, or [] if there is none."""
        job = _Job(self._stage, slot, rows)
        helpers = min(self._helpers, len(rows) - 1)
        if helpers < 1:
            job.work()
        else:
            self._share(job, helpers)
        return job.errors if job.failed else []

    def _share(self, job: _Job, helpers: int) -> None:
        job.all_ended = threading.Event()
        for _ in range(helpers):
            with suppress(Closed):  # the predictor ends: all is done here
                self._jobs.put(job)
        job.work()
        job.all_ended.wait()

    def _help(self) -> None:
        for job in self._jobs:
            job.work()


class _Job:
    """The rows of one batch. Each thread takes the next row until none is left; `next` on a count is atomic."""

    def __init__(self, stage: Stage, slot: Slot, rows: Sequence[StagedRow]) -> None:
        self.errors: list[BaseException | None] = [None] * len(rows)
        self.failed = False
        self._stage = stage
        self._slot = slot
        self._rows = rows
        self._next = count()
        self._ended = count(1)
        self.all_ended: threading.Event | None = None
        """Set after the last row; None: one thread does it all."""

    def work(self) -> None:
        """Stage rows until none is left. Any thread."""
        while (k := next(self._next)) < len(self._rows):
            part, region = self._rows[k]
            try:
                self._stage(self._slot, k, part.entry.frame.picture, region)
            except BaseException as error:  # a library's SystemExit or CancelledError is the row's error, too
                self.errors[k] = error
                self.failed = True
            if next(self._ended) == len(self._rows) and self.all_ended is not None:
                self.all_ended.set()
