"""Regions: one row each, one future per frame, batches that count rows."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Dropped, EngineError
from pipelines.frame import WHOLE, Frame, Picture, Prediction, Region, StreamInfo, Trace
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduling.profile import Profile, Timing
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.tasks.classification import Classification, ClassificationTask
from tests.predict.fakes import LateEngine

pytestmark = pytest.mark.timeout(30)
WAIT_S = 10
FLAT = Profile({1: Timing(0.010, 0.010), 8: Timing(0.012, 0.012)}, 8)
"""A shape of time for which files fill batches of eight."""
QUARTERS = {
    "left": (0.0, 0.0, 0.25, 1.0),
    "middle": (0.25, 0.0, 0.5, 1.0),
    "right": (0.5, 0.0, 0.75, 1.0),
    "far right": (0.75, 0.0, 1.0, 1.0),
}


def _picture(*lumas: int) -> Picture:
    """Four columns of 8x8 samples, each of one luma."""
    y = np.repeat(np.array(lumas, np.uint8), 8)[None].repeat(8, 0)
    return Picture(y.copy(), np.full((4, 16), 128, np.uint8), np.full((4, 16), 128, np.uint8))


def _frame(stream: str, index: int, lumas: tuple[int, int, int, int], names: tuple[str, ...]) -> Frame:
    now = time.monotonic()
    regions = tuple(Region(name, QUARTERS.get(name)) for name in names)
    return Frame(stream, 0, index, _picture(*lumas), None, StreamInfo(), Trace(now, now), regions=regions)


def _predictor(engine: Any = None, max_batch: int = 4, **options: Any) -> AsyncBatchPredictor:
    scheduler = SchedulerOptions(max_batch=max_batch, budget_s=60.0)
    chosen = replace(PredictorOptions(scheduler=scheduler), **options)
    return AsyncBatchPredictor(engine or ProbeEngine(), ProbePreprocess(), ClassificationTask(topk=1), chosen)


def _said(future: Future[Prediction]) -> dict[str, int]:
    answers = future.result(WAIT_S).answers
    return {name: a.labels[0].id for name, a in answers.items() if isinstance(a, Classification)}


def test_a_frame_of_three_regions_has_one_future_and_three_answers() -> None:
    with _predictor() as predictor:
        predictor.open("a", live=True)
        future = predictor.submit(_frame("a", 0, (10, 20, 30, 40), ("left", "right", WHOLE)))
        assert _said(future) == {"left": 10, "right": 30, WHOLE: 25}
        assert future.result(0).batch_size == 3, "its rows ride in one batch"


@pytest.mark.parametrize("stagers", [1, 3])
def test_a_frame_of_more_rows_than_a_batch_ends_with_its_last_batch(stagers: int) -> None:
    sizes: list[int] = []
    names = ("left", "middle", "right", "far right", WHOLE)
    with _predictor(max_batch=2, stagers=stagers) as predictor:
        predictor.open("a", live=False)
        future = predictor.submit(_frame("a", 0, (10, 20, 30, 40), names))
        assert _said(future) == {"left": 10, "middle": 20, "right": 30, "far right": 40, WHOLE: 25}
        sizes.append(future.result(0).batch_size)
    assert sizes == [1], "5 rows in batches of 2: the last one has 1"


@pytest.mark.parametrize("live", [False, True])
def test_a_frame_without_regions_is_answered_at_once(live: bool) -> None:
    with _predictor() as predictor:
        predictor.open("a", live=live)
        frame = _frame("a", 0, (1, 2, 3, 4), ())
        future = predictor.submit(frame)
        assert future.result(0) == Prediction({}, 0, 0)
        frame.trace.picked_s = frame.trace.rendered_s = frame.trace.shown_s = time.monotonic()
        stages = frame.trace.stages()
        assert stages["total"] == pytest.approx(sum(s for name, s in stages.items() if name != "total"))
        predictor.finish(frame)
        predictor.close("a")


@pytest.mark.parametrize("stagers", [1, 2])
def test_eight_streams_with_any_number_of_regions_keep_order_and_pairing(stagers: int) -> None:
    chance = random.Random(7)
    names = (*QUARTERS, WHOLE)
    with _predictor(max_batch=8, stagers=stagers) as predictor:
        sent: list[tuple[tuple[int, ...], tuple[str, ...], Future[Prediction]]] = []
        for k in range(8):
            predictor.open(f"s{k}", live=False)
        for index in range(12):
            for k in range(8):
                lumas = tuple(4 * chance.randrange(60) for _ in range(4))
                chosen = tuple(chance.sample(names, chance.randrange(6)))
                frame = _frame(f"s{k}", index, lumas, chosen)  # type: ignore[arg-type]
                future = predictor.submit(frame)
                future.add_done_callback(lambda _, f=frame: predictor.finish(f))  # type: ignore[misc]
                sent.append((lumas, chosen, future))
        for k in range(8):
            predictor.close(f"s{k}")
        for lumas, chosen, future in sent:
            right = {**dict(zip(QUARTERS, lumas, strict=True)), WHOLE: sum(lumas) // 4}
            assert _said(future) == {name: right[name] for name in chosen}
            assert list(future.result(0).answers) == list(chosen), "in the order of the regions"
        assert not predictor._running._queues.streams


class _Refusing(ProbeEngine):
    """Fails on every batch with a row of luma 66."""

    def wait(self, slot: Any, n: int) -> Any:
        if 66 in slot.input[:n, 0]:
            raise EngineError("no 66")
        return super().wait(slot, n)


def test_a_bad_region_fails_its_frame_and_no_other() -> None:
    with _predictor(
        _Refusing(), max_batch=8, profile=Profile({1: Timing(0.010, 0.010), 8: Timing(0.012, 0.012)}, 8)
    ) as predictor:
        predictor.open("a", live=False)
        good = predictor.submit(_frame("a", 0, (10, 20, 30, 40), ("left", "right")))
        bad = predictor.submit(_frame("a", 1, (10, 66, 30, 40), ("left", "middle")))
        other = predictor.submit(_frame("a", 2, (11, 21, 31, 41), ("far right",)))
        predictor.close("a")
        assert _said(good) == {"left": 10, "right": 30}
        assert isinstance(bad.exception(WAIT_S), EngineError)
        assert _said(other) == {"far right": 41}
    assert predictor.error is None


@pytest.mark.parametrize("stagers", [1, 3])
def test_a_region_that_cannot_be_staged_fails_its_frame_alone_and_leaves_no_gap(stagers: int) -> None:
    class Choosy(ProbePreprocess):
        """Refuses the region "middle"."""

        def __call__(self, picture: Picture, region: Region, out: Any) -> None:
            if region.name == "middle":
                raise ValueError("not this one")
            super().__call__(picture, region, out)

    engine = LateEngine()
    options = PredictorOptions(
        scheduler=SchedulerOptions(max_batch=8),
        profile=FLAT,
        stagers=stagers,
    )
    with AsyncBatchPredictor(engine, Choosy(), ClassificationTask(topk=1), options) as predictor:
        predictor.open("a", live=False)
        bad = predictor.submit(_frame("a", 0, (10, 20, 30, 40), ("left", "middle")))
        good = [predictor.submit(_frame("a", k, (k, 20, 30 + k, 40), ("left", "right"))) for k in range(1, 4)]
        predictor.close("a")
        assert isinstance(bad.exception(WAIT_S), ValueError)
        assert [_said(f) for f in good] == [{"left": k, "right": 30 + k} for k in range(1, 4)]
    assert engine.batches == [6]


def test_the_limit_of_a_region_bounds_its_answer() -> None:
    with _predictor() as predictor:
        predictor.open_requests("r", capacity=4)
        frame = _frame("r", 0, (10, 20, 30, 40), ())
        frame.regions = (Region(limit=7), Region("left", QUARTERS["left"]))
        answers = predictor.submit(frame).result(WAIT_S).answers
    counts = {name: len(a.labels) for name, a in answers.items() if isinstance(a, Classification)}
    assert counts == {WHOLE: 7, "left": 1}


def test_rows_are_staged_by_several_threads_and_torch_is_not_among_them() -> None:
    threads: set[str] = set()
    both = threading.Barrier(2, timeout=WAIT_S)

    class Noting(ProbePreprocess):
        """Waits until two threads are here."""

        def __call__(self, picture: Picture, region: Region, out: Any) -> None:
            if region.name != WHOLE:
                both.wait()
                threads.add(threading.current_thread().name)
            super().__call__(picture, region, out)

    engine = LateEngine()
    options = PredictorOptions(scheduler=SchedulerOptions(max_batch=4), stagers=2)
    with AsyncBatchPredictor(engine, Noting(), ClassificationTask(topk=1), options) as predictor:
        predictor.open("a", live=True)
        assert _said(predictor.submit(_frame("a", 0, (10, 20, 30, 40), ("left", "right")))) == {"left": 10, "right": 30}
    assert threads == {"predict:cpu", "stage0:cpu"}
    assert engine.threads == {"predict:cpu"}, "the engine is started by one thread"


def test_each_stream_has_its_own_budget() -> None:
    """One batch takes 100 ms: too long for a budget of 50, not for one of a second."""
    with _predictor(ProbeEngine(0.1), max_batch=1) as predictor:
        predictor.open("slow", live=True, budget_s=1.0)
        predictor.open("fast", live=True, budget_s=0.05)
        for name in ("slow", "fast"):
            shown = _frame(name, 0, (1, 1, 1, 1), (WHOLE,))
            predictor.submit(shown).result(WAIT_S)
            shown.trace.shown_s = time.monotonic()
            predictor.finish(shown)
        assert isinstance(predictor.submit(_frame("fast", 1, (1, 1, 1, 1), (WHOLE,))).exception(WAIT_S), Dropped)
        assert _said(predictor.submit(_frame("slow", 1, (2, 2, 2, 2), (WHOLE,)))) == {WHOLE: 2}


@pytest.mark.parametrize("box", [(0.5, 0.0, 0.5, 1.0), (-0.1, 0.0, 1.0, 1.0), (0.0, 0.9, 1.0, 0.1), (0.0, 0.0, 1.0, 1.1)])
def test_a_box_outside_the_picture_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="region 'door'"):
        Region("door", box)
