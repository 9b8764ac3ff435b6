"""AsyncBatchPredictor: `submit(frame) -> Future[Prediction]`, on a device that it owns.

Two threads. `predict:DEVICE` opens the engine, warms and measures it, then takes batches from the scheduler, fills a
staging slot and starts the engine; no other thread touches the device. `complete:DEVICE` waits for started batches in
order, hands the answers out and gives the slot back. Slots are made once; a slot goes round

    free -> filled -> started -> waited for, answers copied out -> free

so that the bytes of a batch stay as they are until the engine has done with them. A frame whose picture cannot be read
fails alone. When the engine fails on a batch, its frames are run again one by one: the bad one gets the error, the
others their answers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pipelines.channel import Channel
from pipelines.crew import Crew
from pipelines.errors import EngineError, EngineLost, Stopped
from pipelines.frame import WHOLE_FRAME, Frame, Picture, Prediction
from pipelines.predict.engines.engine import Engine, Slot, checked, warm_sizes
from pipelines.predict.preprocess import Preprocess
from pipelines.predict.scheduling.live_policy import SchedulerOptions
from pipelines.predict.scheduling.profile import Profile, Timing, measure, measured_sizes
from pipelines.predict.scheduling.queues import Entry
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler
from pipelines.tasks.task import Geometry, Rows, Task, row_of

WARM = Picture(np.full((64, 64), 128, np.uint8), np.full((32, 32), 128, np.uint8), np.full((32, 32), 128, np.uint8))
"""A picture to warm up with."""
WARMUP_LIMIT_S = 4.0
"""Sizes that warming and measuring have not reached by then are extrapolated."""


@dataclass(frozen=True, slots=True)
class PredictorOptions:
    """`known`: figures of an earlier start, by batch size. `profile`: l(b), None: what the engine knows, or it is measured.
    `bulk`: nobody waits for a single frame, so that of the batch sizes only the best one matters. `label`: names its threads,
    in place of the device."""

    known: Mapping[int, Timing] | None = None
    profile: Profile | None = None
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    label: str | None = None
    bulk: bool = False


def _fail(entries: Sequence[Entry], error: EngineLost) -> None:
    """Nobody else is there to run them."""
    for entry in entries:
        entry.fail(error)


@dataclass(frozen=True, slots=True)
class PredictorEvents:
    """Whom the predictor tells. `batch(size, seconds)`: of every batch, in the completion thread. `failed()`: that an error
    has ended it, once, in the thread that it ended. `orphaned(entries, error)`: the engine was lost, these frames were not
    answered and are the listener's now; in any of its threads, until it has ended."""

    batch: Callable[[int, float], None] = lambda size, seconds: None
    failed: Callable[[], None] = lambda: None
    orphaned: Callable[[Sequence[Entry], EngineLost], None] = _fail


@dataclass(slots=True, eq=False)
class _Batch:
    id: int
    entries: list[Entry]
    slot: Slot
    started_s: float


class AsyncBatchPredictor:
    """Used as `with predictor:`; entering returns when the engine is warm and measured (raises `Stopped` if it was stopped
    before), leaving cancels what waits.

    When an error of its own ends it, `error` says which, and nothing is predicted any more.
    """

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
        self._started: Channel[_Batch] = Channel(options.scheduler.slots + 1, "block")
        self._scheduler: DynamicBatchScheduler | None = None
        self._batches = 0
        self._ended_s = deque([0.0] * options.scheduler.parallel, maxlen=options.scheduler.parallel)
        """When the last batches ended, as many as run side by side."""
        self._lost: EngineLost | None = None

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
        """Cancel what waits and end; a running batch is finished first. Any thread, any time, also during warm-up."""
        self._stop.set()
        if self._scheduler is not None:
            self._scheduler.stop()

    def lose(self, error: EngineLost) -> None:
        """The engine is gone: what waits is the listener's, and the predictor ends. Any thread."""
        self._lost = error
        self._stop.set()
        if self._scheduler is not None:
            self._events.orphaned(self._scheduler.evict(), error)

    def _abort(self) -> None:
        self.stop()
        if self._crew.error is not None:
            self._events.failed()

    @property
    def profile(self) -> Profile:
        """The measured l(b). Known once the predictor was entered."""
        return self._running.profile

    @property
    def error(self) -> BaseException | None:
        """What ended the predictor, if something did."""
        return self._crew.error

    @property
    def _running(self) -> DynamicBatchScheduler:
        if self._scheduler is None:
            raise RuntimeError("the predictor is used before it was entered")
        return self._scheduler

    # What lanes use: see the scheduler for the meaning.

    def open(self, stream: str, *, live: bool) -> None:
        """Announce a stream before its first frame."""
        self._running.open(stream, live=live)

    def open_requests(self, name: str, *, capacity: int) -> None:
        """Announce a queue of requests: first deadline first, none replaces another, at most `capacity` waiting."""
        self._running.open_requests(name, capacity=capacity)

    def submit(self, frame: Frame, deadline_s: float | None = None) -> Future[Prediction]:
        """Hand in a frame, or a request with its deadline (monotonic). The future ends with the prediction, an error,
        `Dropped`, or cancelled: at shutdown, or by the caller. A request that was cancelled, or whose deadline passed while
        it waited, is not computed. For requests `finish` is not needed.

        :raises Refused: at once, if the queue is full, or the deadline cannot be met by what the profile says.
        """
        return self._running.submit(frame, deadline_s)

    def end_s(self, name: str, deadline_s: float | None) -> float:
        """When a request with this deadline should be answered, if it came now."""
        return self._running.end_s(name, deadline_s)

    def on_its_way(self, stream: str) -> int:
        """Frames of a stream that it has, or that the lane has from it."""
        return self._running.on_its_way(stream)

    def adopt(self, entry: Entry) -> bool:
        """Take over a frame of a predictor that has lost its engine; False if this one has ended, too."""
        return self._running.adopt(entry)

    @property
    def retry_s(self) -> float:
        """When to come back where nothing is taken: see `Pool`. This one takes nothing only while it ends."""
        return 1.0

    def waiting(self, name: str) -> int:
        """Frames of a stream, or requests of a queue, that wait now."""
        return self._running.waiting(name)

    def finish(self, frame: Frame) -> None:
        """The lane is done with a frame that got a prediction or an error from the engine."""
        self._running.finish(frame)

    def close(self, stream: str) -> None:
        """No further frame of this stream will come."""
        self._running.close(stream)

    # Thread predict:DEVICE.

    def _predict(self) -> None:
        try:
            slots = self._open()
            if self._stop.is_set():
                return
            for slot in slots:
                self._free.put(slot)
            self._crew.start(f"complete:{self._label}", self._complete)
            self._ready.set()
            try:
                while (entries := self._running.take()) is not None:
                    self._run(entries)
            finally:
                self._running.stop()
                self._started.close()
                # Slots come home only when nothing is in flight any more.
                for _ in slots:
                    self._free.get()
        finally:
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
        # The first call of a library's function costs up to half a second: not at a frame's expense.
        self.engine.stage(slots[0], 0, WARM, WHOLE_FRAME[0])
        self.task.prepare(self.engine.outputs, self._example(slots[0]))
        profile = options.profile or self.engine.known_profile(options.scheduler.max_batch)
        profile = profile or self._measured(slots[: options.scheduler.parallel])
        self.warmup_s = self._clock() - started_s
        if not self._stop.is_set():
            self._scheduler = DynamicBatchScheduler(profile, options.scheduler, self._clock)
        return slots

    def _measured(self, slots: Sequence[Slot]) -> Profile:
        """l(b) with as many batches side by side as there are slots given, and every size warm that will occur."""
        options, max_batch, pads = self._options, self._options.scheduler.max_batch, self.engine.sizes is not None
        if options.bulk and options.known and set(measured_sizes(max_batch)) <= set(options.known):
            profile = Profile(options.known, max_batch, pads=pads)
            self._time(slots, profile.best_batch)
            return profile
        return measure(
            lambda b: self._time(slots, b),
            [] if options.bulk else warm_sizes(self.engine, max_batch),
            max_batch,
            pads=pads,
            limit_s=WARMUP_LIMIT_S,
            keep_on=lambda: not self._stop.is_set(),
            known=options.known,
        )

    def _time(self, slots: Sequence[Slot], b: int) -> float:
        began = time.perf_counter()
        for slot in slots:
            self.engine.start(slot, b)
        for slot in slots:
            self.engine.wait(slot, b)
        return time.perf_counter() - began

    def _example(self, slot: Slot) -> Rows:
        """The rows of the grey picture in the slot."""
        self.engine.start(slot, 1)
        rows = checked(self.engine.wait(slot, 1), 1, self.engine.outputs)
        return tuple(np.array(output[0]) for output in rows)

    def _run(self, entries: list[Entry]) -> None:
        slot = self._free.get()
        try:
            began_s = self._clock()
            staged = self._stage(entries, slot)
            self._running.staged(len(entries), self._clock() - began_s)
        except BaseException as error:
            # Only an error of this class itself: it ends the predictor, and nobody may wait for these frames for ever.
            self._free.put(slot)
            for entry in entries:
                if not entry.future.done():
                    entry.future.set_exception(error)
            raise
        if not staged:
            self._free.put(slot)
            self._running.done(newest=True)
            return
        self._batches += 1
        batch = _Batch(self._batches, staged, slot, self._clock())
        for entry in staged:
            entry.frame.trace.staged_s = batch.started_s
        try:
            self.engine.start(slot, len(staged))
        except BaseException as error:  # a library's SystemExit or CancelledError must not end the predictor either
            self._failed(batch, error, newest=True)
            if self._lost is not None:
                raise
        else:
            self._started.put(batch)

    def _stage(self, entries: list[Entry], slot: Slot) -> list[Entry]:
        """Fill the slot's rows; frames whose picture cannot be read get their error and leave no gap."""
        staged: list[Entry] = []
        for entry in entries:
            try:
                self.engine.stage(slot, len(staged), entry.frame.picture, entry.frame.regions[0])
            except BaseException as error:
                entry.future.set_exception(error)
            else:
                staged.append(entry)
        return staged

    # Thread complete:DEVICE.

    def _complete(self) -> None:
        try:
            for batch in self._started:
                try:
                    rows = self._rows(batch)
                except BaseException as error:
                    if isinstance(error, EngineLost):
                        for entry in batch.entries:  # not those of batches that were staged behind it
                            entry.losses += 1
                    self._failed(batch, error)
                    if self._lost is not None:
                        raise
                else:
                    try:
                        self._hand_out(batch, rows)
                    except BaseException as error:
                        for entry in batch.entries:
                            if not entry.future.done():
                                entry.fail(error)
                        raise
        finally:
            # Only an error of this class itself comes here with batches left: nobody may wait for them for ever.
            self._running.stop()
            for batch in self._started:
                self._failed(batch, EngineError("the completion thread has ended"))

    def _rows(self, batch: _Batch) -> Rows:
        """The batch's rows, copied out of the slot."""
        n = len(batch.entries)
        rows = checked(self.engine.wait(batch.slot, n), n, self.engine.outputs)
        return tuple(np.array(output) for output in rows)

    def _hand_out(self, batch: _Batch, rows: Rows) -> None:
        now = self._clock()
        # A batch that was staged while the device was full begins when the oldest of those before it ends.
        took_s = now - max(batch.started_s, self._ended_s[0])
        self._ended_s.append(now)
        n = len(batch.entries)
        try:
            self.profile.observe(n, took_s, now)
        finally:
            self._release(batch)  # before the answers are made of the logits: the next batch need not wait for that
        for k, entry in enumerate(batch.entries):
            entry.frame.trace.inferred_s = now
            region = entry.frame.regions[0]
            try:
                answer = self.task.decode(row_of(rows, k), Geometry(entry.frame.picture, region, self.preprocess.box))
            except EngineError as error:
                entry.future.set_exception(error)
            else:
                entry.future.set_result(Prediction({region.name: answer}, batch.id, n))
        self._events.batch(n, took_s / self._options.scheduler.parallel)  # of one place it was all

    def _failed(self, batch: _Batch, error: BaseException, *, newest: bool = False) -> None:
        """One bad frame fails one frame: a batch of several is run again, one by one; elsewhere, if the engine is gone."""
        self._release(batch, newest=newest)
        if isinstance(error, EngineLost):
            self.lose(error)
        if self._lost is not None:
            self._events.orphaned(batch.entries, self._lost)
        elif len(batch.entries) > 1:
            self._running.again(batch.entries)
        else:
            batch.entries[0].future.set_exception(error)

    def _release(self, batch: _Batch, *, newest: bool = False) -> None:
        self._free.put(batch.slot)
        self._running.done(newest=newest)
