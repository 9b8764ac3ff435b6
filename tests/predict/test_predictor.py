"""AsyncBatchPredictor: futures that always complete, slots that are never reused too early, errors that reach their frame."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.errors import EngineError, Stopped, UsageError
from pipelines.frame import Picture, Prediction, Region
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduling.profile import Profile, Timing
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.tasks.classification import ClassificationTask
from tests.fakes import labels_of
from tests.predict.fakes import CLASSES, Held, LateEngine, frame

pytestmark = pytest.mark.timeout(30)
TASK = ClassificationTask(topk=3)
OPTIONS = PredictorOptions(scheduler=SchedulerOptions(max_batch=4))
WAIT_S = 10


def _predictor(
    engine: Any, preprocess: Any = None, options: PredictorOptions = OPTIONS, names: Sequence[str] | None = None, topk: int = 3
) -> AsyncBatchPredictor:
    return AsyncBatchPredictor(engine, preprocess or ProbePreprocess(), ClassificationTask(names, topk), options)


def _submit(predictor: AsyncBatchPredictor, lumas: Sequence[int], stream: str = "a") -> list[Future[Prediction]]:
    return [predictor.submit(frame(stream, k, v, time.monotonic())) for k, v in enumerate(lumas)]


def _said(future: Future[Prediction]) -> int:
    return labels_of(future.result(WAIT_S))[0].id


@pytest.fixture
def gate() -> Iterator[Held]:
    held = Held()
    yield held
    held.open()


FULL = replace(OPTIONS, profile=Profile({1: Timing(0.010, 0.010), 4: Timing(0.012, 0.012)}, 4))
"""A shape of time for which batches of files are filled to four."""


def _three_batches_on_a_late_device(predictor: AsyncBatchPredictor, engine: LateEngine, gate: Held) -> list[int]:
    """The answers of twelve frames if the device reads each batch as late as possible: after the next one was staged."""
    with predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, range(10, 22))
        for started in (2, 3, 3):
            engine.until_started(started)
            gate.until_waiting()
            gate.release()
        predictor.close("a")
        said = [_said(f) for f in futures]
    assert engine.batches == [4, 4, 4]
    return said


def test_a_slot_is_not_filled_again_before_the_device_has_read_it(gate: Held) -> None:
    engine = LateEngine(gate)
    assert _three_batches_on_a_late_device(_predictor(engine, options=FULL), engine, gate) == list(range(10, 22))


def test_the_test_above_can_fail_a_slot_that_is_reused_too_early_gives_wrong_labels(gate: Held) -> None:
    class Careless(AsyncBatchPredictor):
        """Takes slots for free when they were started, not when they were read."""

        def _run(self, parts: Any, completion: Any) -> None:
            slot = self._free.get()
            self._free.put(slot)
            super()._run(parts, completion)

    engine = LateEngine(gate)
    predictor = Careless(engine, ProbePreprocess(), TASK, FULL)
    predictor._free = _Endless()  # type: ignore[assignment]
    assert _three_batches_on_a_late_device(predictor, engine, gate)[:4] == [14, 15, 16, 17]


class _Endless:
    """Gives out its first slot again and again."""

    def __init__(self) -> None:
        self.slots: list[Any] = []

    def put(self, slot: Any) -> None:
        self.slots.append(slot)

    def get(self) -> Any:
        return self.slots[0]


def test_batches_of_cameras_run_side_by_side_on_an_engine_that_can(gate: Held) -> None:
    """The second one starts at once, and not when the first, of 10 s, nearly ends."""
    slow = Profile({1: Timing(10.0, 10.0)}, 1)
    side_by_side = SchedulerOptions(budget_s=60.0, max_batch=1, slots=3, parallel=2)
    engine = LateEngine(gate)
    with _predictor(engine, options=PredictorOptions(profile=slow, scheduler=side_by_side)) as predictor:
        for name in "abc":
            predictor.open(name, live=True)
        futures = [f for name, luma in zip("abc", (10, 20, 30), strict=True) for f in _submit(predictor, [luma], name)]
        engine.until_started(2)
        gate.until_waiting()
        assert engine.starts == 2, "the third waits for the end of one of them"
        gate.open()
        assert [_said(f) for f in futures] == [10, 20, 30]


def test_a_size_is_warmed_in_each_place_that_it_may_run_in() -> None:
    class Counting(LateEngine):
        """Notes how many batches of each size were begun before the first of them was waited for."""

        def __init__(self) -> None:
            super().__init__(sizes=(1, 2))
            self.begun: list[int] = []
            self.together: dict[int, int] = {}

        def start(self, slot: Any, n: int) -> None:
            self.begun.append(n)
            super().start(slot, n)

        def wait(self, slot: Any, n: int) -> Any:
            self.together[n] = max(self.together.get(n, 0), self.begun.count(n))
            self.begun.clear()
            return super().wait(slot, n)

    engine = Counting()
    with _predictor(engine, options=PredictorOptions(scheduler=SchedulerOptions(max_batch=2, slots=3, parallel=2))):
        assert engine.together == {1: 2, 2: 2}


def test_no_more_batches_are_on_the_device_than_there_are_slots(gate: Held) -> None:
    engine = LateEngine(gate)
    with _predictor(engine, options=FULL) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, range(12))
        engine.until_started(2)
        gate.until_waiting()
        assert engine.starts == 2
        gate.open()
        predictor.close("a")
        assert [_said(f) for f in futures] == list(range(12))


def test_one_thread_starts_the_device_and_it_is_not_the_one_that_waits() -> None:
    engine = LateEngine()
    with _predictor(engine) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [1, 2, 3])
        predictor.close("a")
        assert [_said(f) for f in futures] == [1, 2, 3]
    assert engine.threads == {"predict:cpu"}
    assert engine.closed == 1


def test_labels_come_with_the_most_probable_first_and_the_batch_is_told() -> None:
    engine = LateEngine()
    engine.answer = lambda logits: np.tile(np.log(np.arange(1, CLASSES + 1, dtype=np.float32)), (len(logits), 1))
    done: list[tuple[int, float]] = []
    predictor = AsyncBatchPredictor(
        engine,
        ProbePreprocess(),
        ClassificationTask(tuple(f"n{k}" for k in range(CLASSES)), 3),
        OPTIONS,
        events=PredictorEvents(lambda n, s: done.append((n, s))),
    )
    with predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [5])
        predictor.close("a")
        prediction = future.result(WAIT_S)
    assert [k.id for k in labels_of(prediction)] == [255, 254, 253]
    assert [k.name for k in labels_of(prediction)] == ["n255", "n254", "n253"]
    assert labels_of(prediction)[0].p == pytest.approx(256 / sum(range(1, 257)))
    assert prediction.batch_size == 1
    assert done[0][0] == 1
    assert done[0][1] > 0


def _refuse(bad: int, error: BaseException) -> Callable[[Sequence[int]], None]:
    def check(values: Sequence[int]) -> None:
        if bad in values:
            raise error

    return check


@pytest.mark.parametrize("where", ["fail", "fail_start"])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("bad colour"),
        MemoryError("full"),
        CancelledError("engine"),
        asyncio.CancelledError("engine"),
        SystemExit(3),
        GeneratorExit(),
    ],
    ids=lambda e: f"{type(e).__module__}.{type(e).__name__}",
)
def test_a_frame_that_the_engine_refuses_fails_alone(where: str, error: BaseException) -> None:
    engine = LateEngine()
    setattr(engine, where, _refuse(66, error))
    with _predictor(engine, options=FULL) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [65, 66, 67, 68])
        predictor.close("a")
        assert [_said(futures[k]) for k in (0, 2, 3)] == [65, 67, 68]
        assert futures[1].exception(WAIT_S) is error
        predictor.open("b", live=False)
        (after,) = _submit(predictor, [99], "b")
        predictor.close("b")
        assert _said(after) == 99
    assert predictor.error is None


@pytest.mark.parametrize("wrong", [None, np.zeros((1, 3), np.float32), np.zeros((7, CLASSES), np.float32)])
def test_an_answer_of_the_wrong_shape_is_an_error_of_its_frames(wrong: Any) -> None:
    engine = LateEngine()
    engine.answer = lambda logits: wrong
    with _predictor(engine) as predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [1])
        predictor.close("a")
        assert isinstance(future.exception(WAIT_S), EngineError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_answer_that_is_no_number_is_an_error_of_its_own_frame_only(value: float) -> None:
    engine = LateEngine()

    def spoil(logits: Any) -> Any:
        if value > -np.inf or np.isnan(value):
            logits[logits[:, 66] > 0, 3] = value
        else:
            logits[logits[:, 66] > 0] = value
        return logits

    engine.answer = spoil
    with _predictor(engine, options=FULL) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [65, 66, 67, 68])
        predictor.close("a")
        assert [_said(futures[k]) for k in (0, 2, 3)] == [65, 67, 68]
        assert isinstance(futures[1].exception(WAIT_S), EngineError)


def test_a_class_that_is_impossible_is_fine() -> None:
    engine = LateEngine()
    engine.answer = lambda logits: np.where(logits < 0, np.float32(-np.inf), logits)
    with _predictor(engine) as predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [7])
        predictor.close("a")
        assert [(k.id, k.p) for k in labels_of(future.result(WAIT_S))[:1]] == [(7, 1.0)]


class Choosy(ProbePreprocess):
    """Cannot read a picture of luma 2, 3 or 4."""

    errors: Mapping[int, type[BaseException]] = {2: ValueError, 3: MemoryError, 4: asyncio.CancelledError}

    def __call__(self, picture: Picture, region: Region, out: Any) -> None:
        if (error := self.errors.get(int(picture.y[0, 0]))) is not None:
            raise error("no such picture")
        super().__call__(picture, region, out)


def test_pictures_that_cannot_be_read_fail_alone_and_leave_no_gap() -> None:
    engine = LateEngine()
    with _predictor(engine, Choosy(), FULL) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [1, 2, 5, 3, 2, 3, 4, 4, 6, 7, 8, 9])
        predictor.close("a")
        assert [_said(futures[k]) for k in (0, 2, 8, 9, 10, 11)] == [1, 5, 6, 7, 8, 9]
        for k, luma in ((1, 2), (3, 3), (4, 2), (5, 3), (6, 4), (7, 4)):
            assert type(futures[k].exception(WAIT_S)) is Choosy.errors[luma]
    assert engine.batches == [2, 4], "a batch of which nothing is left is not started"


def test_a_future_that_was_cancelled_stops_nobody(gate: Held) -> None:
    engine = LateEngine(gate)
    with _predictor(engine, options=FULL) as predictor:
        predictor.open("a", live=False)
        running = _submit(predictor, range(8))
        engine.until_started(2)
        waiting = _submit(predictor, range(20, 24))
        assert not running[0].cancel()
        assert waiting[1].cancel()
        gate.open()
        predictor.close("a")
        assert [_said(f) for f in running] == list(range(8))
        assert [_said(waiting[k]) for k in (0, 2, 3)] == [20, 22, 23]


def test_a_listener_that_raises_ends_the_predictor_and_every_future(gate: Held) -> None:
    """An error of the program itself: leaving the predictor raises it, and no future stays open."""

    def broken(size: int, seconds: float) -> None:
        raise ZeroDivisionError

    engine, gone = LateEngine(gate), threading.Event()
    predictor = AsyncBatchPredictor(engine, ProbePreprocess(), TASK, FULL, events=PredictorEvents(broken, gone.set))
    futures: list[Future[Prediction]] = []

    def run() -> None:
        with predictor:
            predictor.open("a", live=False)
            futures.extend(_submit(predictor, range(12)))
            engine.until_started(2)
            gate.open()
            concurrent.futures.wait(futures, WAIT_S)

    with pytest.raises(ZeroDivisionError) as caught:
        run()
    assert [_said(f) for f in futures[:4]] == list(range(4))
    assert all(f.cancelled() or f.exception(0) is not None for f in futures[4:])
    assert "complete:cpu" in str(caught.value.__notes__)
    assert gone.is_set()
    assert engine.closed == 1


def test_a_table_of_an_earlier_start_that_is_not_whole_is_filled() -> None:
    """A run of one camera knows batches of one only; files that believed it would run in batches of one for ever."""
    options = PredictorOptions(known={1: KNOWN[1]}, bulk=True, scheduler=SchedulerOptions(max_batch=4))
    with _predictor(LateEngine(), options=options) as predictor:
        assert list(predictor.profile.table) == [1, 2, 4]


@pytest.mark.parametrize("where", ["observe", "top"])
def test_an_error_among_the_answers_ends_the_predictor_and_every_future(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the slot is given back, and between two answers: no future of the batch in hand stays open."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    predictor = _predictor(LateEngine(), options=FULL)
    if where == "top":
        monkeypatch.setattr(predictor.task, "decode", broken)
    futures: list[Future[Prediction]] = []

    def run() -> None:
        with predictor:
            if where == "observe":
                monkeypatch.setattr(predictor.profile, "observe", broken)
            predictor.open("a", live=False)
            futures.extend(_submit(predictor, range(8)))
            concurrent.futures.wait(futures, WAIT_S)

    with pytest.raises(ZeroDivisionError):
        run()
    assert all(f.done() for f in futures)


def test_leaving_cancels_what_waits_and_finishes_what_runs(gate: Held) -> None:
    engine = LateEngine(gate)
    with _predictor(engine, options=replace(OPTIONS, scheduler=SchedulerOptions(max_batch=1, slots=1))) as predictor:
        predictor.open("a", live=True)
        (running,) = _submit(predictor, [1])
        gate.until_waiting()
        (waiting,) = _submit(predictor, [2])
        predictor.stop()
        gate.open()
    assert _said(running) == 1
    assert waiting.cancelled()
    assert predictor.submit(frame("a", 9, 9, 0.0)).cancelled()


def test_an_engine_that_cannot_be_opened_is_the_error_of_entering() -> None:
    class Broken(LateEngine):
        def open(self, max_batch: int, slots: int) -> Any:
            raise OSError("no model file")

    engine = Broken()
    with pytest.raises(OSError, match="no model file"), _predictor(engine):
        pytest.fail("entered")
    assert engine.closed == 1


def test_labels_that_do_not_match_the_classes_are_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"2 labels.*256 classes"), _predictor(LateEngine(), names=("one", "two")):
        pytest.fail("entered")


def test_a_stop_during_warm_up_ends_it() -> None:
    predictor: AsyncBatchPredictor | None = None

    class Slow(LateEngine):
        def start(self, slot: Any, n: int) -> None:
            super().start(slot, n)
            assert predictor is not None
            predictor.stop()

    predictor = _predictor(Slow())
    with pytest.raises(Stopped), predictor:
        pytest.fail("entered")
    assert predictor.engine.closed == 1  # type: ignore[attr-defined]


KNOWN = {b: Timing(0.001 * b, 0.001 * b) for b in (1, 2)} | {4: Timing(0.002, 0.002)}


def test_where_nobody_waits_for_a_frame_a_second_start_warms_the_best_batch_alone() -> None:
    """On every slot but the one that is staged meanwhile; before it, one of 1 shows whether the answers are probabilities."""
    engine = LateEngine(sizes=(1, 2, 4))
    scheduler = SchedulerOptions(max_batch=4, slots=3, parallel=2)
    with _predictor(engine, options=PredictorOptions(known=KNOWN, bulk=True, scheduler=scheduler)) as predictor:
        assert engine.starts == 1 + 2
        assert predictor.profile.table == KNOWN
        predictor.open("a", live=False)
        assert [_said(f) for f in _submit(predictor, [7, 8, 9, 10])] == [7, 8, 9, 10]


def test_batches_that_run_side_by_side_are_measured_side_by_side() -> None:
    engine = LateEngine()
    scheduler = SchedulerOptions(max_batch=1, slots=3, parallel=2)
    with _predictor(engine, options=PredictorOptions(bulk=True, scheduler=scheduler)):
        assert engine.starts % 2 == 1, "all but the look at the answers run in pairs"
        assert engine.starts >= 1 + 2 * 3, "one pair warms, two at least are measured"


def test_an_engine_that_fails_while_it_warms_up_is_the_error_of_entering() -> None:
    engine = LateEngine()
    engine.fail_start = _refuse(128, RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory") as caught, _predictor(engine):
        pytest.fail("entered")
    assert "predict:cpu" in str(caught.value.__notes__)
    assert engine.closed == 1


def test_a_predictor_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="before it was entered"):
        _predictor(LateEngine()).open("a", live=True)


def test_an_error_of_the_house_leaves_no_frame_waiting(gate: Held) -> None:
    engine = LateEngine(gate)
    futures: list[Future[Prediction]] = []

    def run() -> None:
        with _predictor(engine, options=FULL) as predictor:
            predictor.open("a", live=False)
            futures.extend(_submit(predictor, range(12)))
            engine.until_started(2)
            gate.open()
            raise KeyError("a house of cards")

    with pytest.raises(KeyError, match="a house of cards"):
        run()
    assert [_said(f) for f in futures[:8]] == list(range(8))
    assert all(f.done() for f in futures)


def test_more_labels_are_wanted_than_there_are_classes() -> None:
    with _predictor(LateEngine(), topk=1000) as predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [7])
        predictor.close("a")
        labels = labels_of(future.result(WAIT_S))
    assert len(labels) == CLASSES
    assert [k.p for k in labels] == sorted((k.p for k in labels), reverse=True)
    assert labels[0].name == "class 7"


def test_an_engine_of_one_size_is_never_given_more() -> None:
    engine = LateEngine(sizes=(2,))
    with _predictor(engine, options=replace(FULL, profile=None)) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [1, 2, 3, 4, 5])
        predictor.close("a")
        assert [_said(f) for f in futures] == [1, 2, 3, 4, 5]
    assert max(engine.batches) <= 2


def test_probabilities_are_not_softmaxed_again() -> None:
    class Softmaxed(LateEngine):
        def wait(self, slot: Any, n: int) -> Any:
            p = np.zeros((n, CLASSES), np.float32)
            p[np.arange(n), slot.input[:n, 0]] = 0.75
            p[:, 200] = 0.25
            return (p,)

    with _predictor(Softmaxed()) as predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [7])
        predictor.close("a")
        assert [(k.id, k.p) for k in labels_of(future.result(WAIT_S))[:2]] == [(7, 0.75), (200, 0.25)]


def test_a_file_of_a_hundred_frames_goes_in_full_batches_and_its_rest() -> None:
    """The probe with 10 ms a batch and 0.5 ms a frame: 32 + 32 + 32 + 4."""
    options = PredictorOptions(scheduler=SchedulerOptions(max_batch=32))
    sizes: list[int] = []
    events = PredictorEvents(lambda n, s: sizes.append(n))
    predictor = AsyncBatchPredictor(ProbeEngine(0.010, 0.0005), ProbePreprocess(), TASK, options, events=events)
    with predictor:
        predictor.open("a", live=False)
        futures: list[Future[Prediction]] = []
        for k in range(100):
            one = frame("a", k, k, time.monotonic())
            future = predictor.submit(one)
            future.add_done_callback(lambda _, f=one: predictor.finish(f))  # type: ignore[misc]
            futures.append(future)
        predictor.close("a")
        assert [_said(f) for f in futures] == list(range(100))
    assert sorted(sizes, reverse=True) == [32, 32, 32, 4]
