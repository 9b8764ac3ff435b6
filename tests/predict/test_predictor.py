"""AsyncBatchPredictor: futures that always complete, slots that are never reused too early, errors that reach their frame."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.errors import EngineError, UsageError
from pipelines.frame import Picture, Prediction
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduler import SchedulerOptions
from tests.predict.fakes import CLASSES, Held, LateEngine, frame

pytestmark = pytest.mark.timeout(30)
OPTIONS = PredictorOptions(topk=3, scheduler=SchedulerOptions(max_batch=4))
WAIT_S = 10


def _predictor(engine: Any, preprocess: Any = None, options: PredictorOptions = OPTIONS) -> AsyncBatchPredictor:
    return AsyncBatchPredictor(engine, preprocess or ProbePreprocess(), options)


def _submit(predictor: AsyncBatchPredictor, lumas: Sequence[int], stream: str = "a") -> list[Future[Prediction]]:
    return [predictor.submit(frame(stream, k, v, time.monotonic())) for k, v in enumerate(lumas)]


def _said(future: Future[Prediction]) -> int:
    return future.result(WAIT_S).labels[0].id


@pytest.fixture
def gate() -> Iterator[Held]:
    held = Held()
    yield held
    held.open()


def test_a_slot_is_not_filled_again_before_the_device_has_read_it(gate: Held) -> None:
    engine = LateEngine(gate)
    lumas = list(range(10, 22))
    with _predictor(engine) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, lumas[:4])
        futures += _submit(predictor, lumas[4:8])
        gate.until_waiting()
        # Two batches are on the device: the predictor has staged all it may. What comes now must wait for a slot.
        third = threading.Thread(target=lambda: futures.extend(_submit(predictor, lumas[8:])))
        third.start()
        gate.open()
        third.join()
        predictor.close("a")
        assert [_said(f) for f in futures] == lumas


def test_the_test_above_can_fail_a_slot_reused_at_once_gives_wrong_labels(gate: Held) -> None:
    class Careless(AsyncBatchPredictor):
        """Gives every slot back as soon as it was started."""

        def _run(self, entries: Any) -> None:
            slot = self._free.get()
            self._free.put(slot)
            super()._run(entries)

        def _release(self, batch: Any) -> None:
            self._running.done()

    engine = LateEngine(gate)
    predictor = Careless(engine, ProbePreprocess(), OPTIONS)
    predictor._free = _Endless()  # type: ignore[assignment]
    with predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [10, 11, 12, 13])
        gate.until_waiting()
        futures += _submit(predictor, [20, 21, 22, 23])
        while not any(int(v) >= 20 for v in predictor._free.slots[0].input[:, 0]):  # type: ignore[attr-defined]
            threading.Event().wait(0.001)
        gate.open()
        assert [_said(f) for f in futures[:4]] != [10, 11, 12, 13]


class _Endless:
    """Gives out its first slot again and again."""

    def __init__(self) -> None:
        self.slots: list[Any] = []

    def put(self, slot: Any) -> None:
        self.slots.append(slot)

    def get(self) -> Any:
        return self.slots[0]


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
        engine, ProbePreprocess(), replace(OPTIONS, names=tuple(f"n{k}" for k in range(CLASSES))),
        done=lambda n, s: done.append((n, s)),
    )  # fmt: skip
    with predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [5])
        predictor.close("a")
        prediction = future.result(WAIT_S)
    assert [k.id for k in prediction.labels] == [255, 254, 253]
    assert [k.name for k in prediction.labels] == ["n255", "n254", "n253"]
    assert prediction.labels[0].p == pytest.approx(256 / sum(range(1, 257)))
    assert prediction.batch_size == 1
    assert done[0][0] == 1
    assert done[0][1] > 0


def _refuse(bad: int, error: BaseException) -> Callable[[Sequence[int]], None]:
    def check(values: Sequence[int]) -> None:
        if bad in values:
            raise error

    return check


@pytest.mark.parametrize("where", ["fail", "fail_start"])
@pytest.mark.parametrize("error", [RuntimeError("bad colour"), MemoryError("full"), CancelledError("engine")])
def test_a_frame_that_the_engine_refuses_fails_alone(where: str, error: Exception) -> None:
    engine = LateEngine()
    setattr(engine, where, _refuse(66, error))
    with _predictor(engine) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [65, 66, 67, 68])
        predictor.close("a")
        assert [_said(futures[k]) for k in (0, 2, 3)] == [65, 67, 68]
        assert futures[1].exception(WAIT_S) is error
        predictor.open("b", live=False)
        (after,) = _submit(predictor, [99], "b")
        predictor.close("b")
        assert _said(after) == 99


@pytest.mark.parametrize("wrong", [None, np.zeros((1, 3), np.float32), np.zeros((7, CLASSES), np.float32)])
def test_an_answer_of_the_wrong_shape_is_an_error_of_its_frames(wrong: Any) -> None:
    engine = LateEngine()
    engine.answer = lambda logits: wrong
    with _predictor(engine) as predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [1])
        predictor.close("a")
        assert isinstance(future.exception(WAIT_S), EngineError)


def test_a_picture_that_cannot_be_read_fails_alone_and_leaves_no_gap() -> None:
    class Choosy(ProbePreprocess):
        def __call__(self, picture: Picture, out: Any) -> None:
            if picture.y[0, 0] == 2:
                raise ValueError("no such picture")
            super().__call__(picture, out)

    with _predictor(LateEngine(), Choosy()) as predictor:
        predictor.open("a", live=False)
        futures = _submit(predictor, [1, 2, 3, 4])
        predictor.close("a")
        assert [_said(futures[k]) for k in (0, 2, 3)] == [1, 3, 4]
        assert isinstance(futures[1].exception(WAIT_S), ValueError)


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
    options = replace(OPTIONS, names=("one", "two"))
    with pytest.raises(UsageError, match=r"2 labels.*256 classes"), _predictor(LateEngine(), options=options):
        pytest.fail("entered")


def test_a_stop_during_warm_up_ends_it() -> None:
    predictor: AsyncBatchPredictor | None = None

    class Slow(LateEngine):
        def start(self, slot: Any, n: int) -> None:
            super().start(slot, n)
            assert predictor is not None
            predictor.stop()

    predictor = _predictor(Slow())
    with pytest.raises(UsageError, match="stopped"), predictor:
        pytest.fail("entered")


def test_probabilities_are_not_softmaxed_again() -> None:
    class Softmaxed(LateEngine):
        def wait(self, slot: Any, n: int) -> Any:
            p = np.zeros((n, CLASSES), np.float32)
            p[np.arange(n), slot.input[:n, 0]] = 0.75
            p[:, 200] = 0.25
            return p

    with _predictor(Softmaxed()) as predictor:
        predictor.open("a", live=False)
        (future,) = _submit(predictor, [7])
        predictor.close("a")
        assert [(k.id, k.p) for k in future.result(WAIT_S).labels[:2]] == [(7, 0.75), (200, 0.25)]


def test_a_file_of_a_hundred_frames_goes_in_full_batches_and_its_rest() -> None:
    """The probe with 10 ms a batch and 0.5 ms a frame: 32 + 32 + 32 + 4."""
    options = PredictorOptions(topk=1, scheduler=SchedulerOptions(max_batch=32))
    sizes: list[int] = []
    predictor = AsyncBatchPredictor(ProbeEngine(0.010, 0.0005), ProbePreprocess(), options, done=lambda n, s: sizes.append(n))
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
