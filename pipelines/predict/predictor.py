"""AsyncBatchPredictor: `submit(frame) -> Future[Prediction]`, on a device that it owns.

Two threads. `predict:DEVICE` opens the engine, warms and measures it, then takes batches from the scheduler, stages each in
a slot and starts the engine; no other thread starts work on the device. `complete:DEVICE` waits for started batches in order,
completes their futures and gives the slot back. `stageK:DEVICE`, if several threads stage, share the rows of a batch with
`predict:DEVICE`. Slots are made once; a slot goes round

    free -> staged -> started -> waited for, rows copied out -> free

so that the bytes of a batch stay unchanged until the engine has read them. A frame with an unreadable picture fails alone.
When the engine fails on a batch, its frames are run again one by one: the bad one gets the error, the others their answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.channel import Channel
from pipelines.crew import Crew
from pipelines.errors import EngineLost, Stopped
from pipelines.frame import Frame, Prediction
from pipelines.predict import warmup
from pipelines.predict.completion import Batch, Completion
from pipelines.predict.engines.engine import Engine, Slot
from pipelines.predict.preprocess import Preprocess
from pipelines.predict.recovery import Orphaned, Recovery, fail
from pipelines.predict.scheduling.profile import Profile, Timing
from pipelines.predict.scheduling.queues import Entry, Part
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.predict.staging import StagedRow, Staging, stagers
from pipelines.predict.worker_facts import WorkerFacts
from pipelines.tasks.task import Task


@dataclass(frozen=True, slots=True)
class PredictorOptions:
    """Options of one predictor."""

    known: Mapping[int, Timing] | None = None
    """Measured times of an earlier start, by batch size."""
    profile: Profile | None = None
    """l(b); None: the engine's known profile, or it is measured."""
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    label: str | None = None
    """Names its threads; None: the device."""
    bulk: bool = False
    """All work is files: only the best batch size matters."""
    stagers: int | None = None
    """Threads that stage the rows of a batch; None: a quarter of the cores, at least 1."""


@dataclass(frozen=True, slots=True)
class PredictorEvents:
    """Callbacks."""

    batch: Callable[[int, float], None] = lambda size, seconds: None
    """After each batch: its rows, and the seconds that it took the device. Thread: completion."""
    failed: Callable[[], None] = lambda: None
    """Once, after an error has ended the predictor. Thread: the one that failed."""
    orphaned: Orphaned = fail
    """Takes over the frames of a lost engine. Any thread of the predictor, until it has ended."""


class AsyncBatchPredictor:
    """Used as `with predictor:`. Entering returns when the engine is warm and measured; leaving cancels the waiting frames.

    If an error ends it, `error` holds it, and no frame is predicted any more.

    :raises Stopped: on entering, if it was stopped before.
    """

    restarts = 0
    """There are no workers."""
    retry_s = 1.0
    """Seconds after which a refused caller may come back, see `Pool`. This predictor refuses all only while it ends."""

    def __init__(
        self,
        engine: Engine,
        preprocess: Preprocess,
        task: Task,
        options: PredictorOptions,
        *,
        events: PredictorEvents | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.preprocess = engine.preprocess = preprocess
        self.task = task
        self.warmup_s = 0.0
        self._options = options
        self._label = options.label or engine.device
        self._events = events or PredictorEvents()
        self._clock = clock
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._crew = Crew(self._abort)
        self._free: Channel[Slot] = Channel(options.scheduler.slots, "block")
        self._staging = Staging(engine.stage, stagers(options.stagers))
        self._recovery = Recovery(self._events.orphaned)
        self._scheduler: DynamicBatchScheduler | None = None
        self._batches = 0

    # Life cycle.

    def __enter__(self) -> AsyncBatchPredictor:
        self._crew.__enter__()
        self._crew.start(f"predict:{self._label}", self._predict)
        self._ready.wait()
        if self._scheduler is None:
            self._crew.join()
            raise self._crew.error or Stopped
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop()
        self._crew.__exit__(kind, error, trace)

    def stop(self) -> None:
        """Cancel the waiting frames and end; a running batch is finished first. Any thread, any time, also during warm-up."""
        self._stop.set()
        if self._scheduler is not None:
            self._scheduler.stop()

    def lose(self, error: EngineLost) -> None:
        """The engine is gone: evict the waiting frames, and end. Any thread."""
        self._stop.set()
        self._recovery.lose(error)

    def _abort(self) -> None:
        self.stop()
        if self._crew.error is not None:
            self._events.failed()

    @property
    def profile(self) -> Profile:
        """The measured l(b). Known after entering."""
        return self._running.profile

    @property
    def error(self) -> BaseException | None:
        """The error that ended the predictor; None if there is none."""
        return self._crew.error

    def workers(self) -> Sequence[WorkerFacts]:
        """None: this predictor runs in this process. See `Pool`."""
        return ()

    def memory_mb(self) -> float:
        """Memory in use outside this process: of the GPU."""
        return self.engine.memory_mb() or 0.0

    @property
    def _running(self) -> DynamicBatchScheduler:
        if self._scheduler is None:
            raise RuntimeError("the predictor is used before it was entered")
        return self._scheduler

    # For lanes and services: see the scheduler for the meaning.

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None:
        """Announce a stream before its first frame. budget_s: its latency budget; None: that of the options."""
        self._running.open(stream, live=live, budget_s=budget_s)

    def open_requests(self, name: str, *, capacity: int) -> None:
        """Announce a queue of requests: first deadline first, none replaces another, at most `capacity` waiting."""
        self._running.open_requests(name, capacity=capacity)

    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]:
        """Hand in a frame, or a request with its deadline (monotonic). The future ends with the prediction, an error,
        `Dropped`, or cancelled: at shutdown, or by the caller. A request that is cancelled, or
        late before its batch, is not computed. For requests `finish` is not needed.

        :raises Refused: at once, if the queue is full, or the deadline cannot be met by the profile.
        """
        return self._running.submit(frame, deadline_s)

    def end_s(self, name: str, deadline_s: float | None) -> float:
        """The expected end of a request with this deadline, if it came now."""
        return self._running.end_s(name, deadline_s)

    def on_its_way(self, stream: str) -> int:
        """Frames of a stream that wait, are in batches or with the lane."""
        return self._running.on_its_way(stream)

    def requeue(self, entry: Entry) -> bool:
        """Take over a frame of a predictor that has lost its engine; False if this one has ended, too."""
        return self._running.requeue(entry)

    def waiting(self, name: str) -> int:
        """Frames of a stream, or requests of a queue, that wait now."""
        return self._running.waiting(name)

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that got a prediction or an error from the engine."""
        self._running.finish(frame)

    def close(self, stream: str) -> None:
        """No further frame of this stream will come. It is forgotten with the end of its last frame."""
        self._running.close(stream)

    # Thread predict:DEVICE.

    def _predict(self) -> None:
        try:
            slots = self._open()
            if self._stop.is_set():
                return
            for slot in slots:
                self._free.put(slot)
            completion = self._completion()
            self._crew.start(f"complete:{self._label}", completion.run)
            self._staging.start(self._crew, self._label)
            self._ready.set()
            try:
                while (parts := self._running.take()) is not None:
                    self._run(parts, completion)
            finally:
                self._running.stop()
                completion.close()
                # All slots are free only when no batch is in flight any more.
                for _ in slots:
                    self._free.get()
        finally:
            self._staging.close()
            self._ready.set()
            self.engine.close()

    def _open(self) -> list[Any]:
        started_s = self._clock()
        options = self._options
        if self.engine.sizes is not None and len(self.engine.sizes) == 1:
            # A file that was exported for one size cannot take a larger batch.
            only = replace(options.scheduler, max_batch=min(options.scheduler.max_batch, self.engine.sizes[0]))
            options = self._options = replace(options, scheduler=only)
        slots = self.engine.open(options.scheduler.max_batch, options.scheduler.slots)
        warmup.stage(self.engine, slots[0])
        profile = options.profile or self.engine.known_profile(options.scheduler.max_batch)
        # An engine with a known profile runs no batch before the first frame: a probe of 30 s would start after 30 s.
        self.task.prepare(self.engine.outputs, None if profile else warmup.example(self.engine, slots[0]))
        profile = profile or self._measured(slots)
        self.warmup_s = self._clock() - started_s
        if not self._stop.is_set():
            self._scheduler = DynamicBatchScheduler(profile, options.scheduler, self._clock)
            self._recovery.begin(self._scheduler)
        return slots

    def _measured(self, slots: Sequence[Any]) -> Profile:
        options, scheduler = self._options, self._options.scheduler
        return warmup.measured(
            self.engine,
            slots[: scheduler.parallel],
            scheduler.max_batch,
            known=options.known,
            bulk=options.bulk,
            keep_on=lambda: not self._stop.is_set(),
        )

    def _completion(self) -> Completion:
        return Completion(
            self.engine,
            self.task,
            self.preprocess.box,
            self._running,
            self._free,
            self._recovery,
            parallel=self._options.scheduler.parallel,
            told=self._events.batch,
            clock=self._clock,
        )

    def _run(self, parts: list[Part], completion: Completion) -> None:
        """Stage a batch and start the engine."""
        slot = self._free.get()
        try:
            rows = self._stage(parts, slot)
        except BaseException as error:
            # Only an error of this class: it ends the predictor, and no future may stay open.
            self._free.put(slot)
            for part in parts:
                part.entry.fail(error)
            raise
        if not rows:
            self._free.put(slot)
            self._running.done(newest=True)
            return
        self._batches += 1
        batch = Batch(self._batches, rows, slot, self._clock())
        for part in batch.parts:
            part.frame.trace.staged_s = batch.started_s
        try:
            self.engine.start(slot, len(rows))
        except BaseException as error:  # a library's SystemExit or CancelledError must not end the predictor either
            completion.failed(batch, error, newest=True)
            if self._recovery.lost is not None:
                raise
        else:
            completion.put(batch)

    def _stage(self, parts: list[Part], slot: Slot) -> list[StagedRow]:
        began_s = self._clock()
        rows = self._staging.fill(slot, parts)
        self._running.staged(sum(part.rows for part in parts), self._clock() - began_s)
        return rows
