"""Requests: first deadline first, refused at once where they cannot be answered in time, never computed for nothing."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Dropped, EngineError, Refused
from pipelines.frame import Prediction
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Part
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.predict.scheduling.tuning import Tuning
from pipelines.tasks.classification import ClassificationTask
from tests.fakes import labels_of
from tests.predict.fakes import CLASSES, Held, LateEngine
from tests.predict.fakes import frame as coloured
from tests.predict.scheduling.simulation import ManualClock, frame, profile

pytestmark = pytest.mark.timeout(60)
LINE = profile(0.0, 0.010, 8)
"""10 ms a picture and nothing a batch: the shape of a CPU."""
STEP = profile(0.040, 0.010, 8)
"""40 ms a batch: six cost hardly more each than the cheapest."""
GPU = profile(0.008, 0.0005, 16)
MS = 1e-3
WAIT_S = 10


class Desk:
    """A scheduler with one queue of requests, "http"; the test ends its batches."""

    def __init__(self, shape: Profile = LINE, capacity: int = 100, **options: Any) -> None:
        self.clock = ManualClock()
        self.scheduler = DynamicBatchScheduler(shape, SchedulerOptions(**{"max_batch": shape.max_batch, **options}), self.clock)
        self.scheduler.open_requests("http", capacity=capacity)
        self.batches: list[list[Part]] = []
        self._index = itertools.count()

    def submit(self, deadline_ms: float | None = None) -> Future[Prediction]:
        """A request with a deadline in this many ms."""
        deadline_s = None if deadline_ms is None else self.clock.now + deadline_ms * MS
        return self.scheduler.submit(frame("http", next(self._index), self.clock.now), deadline_s)

    def poll(self) -> list[int]:
        """The numbers of the requests that are to run now."""
        batch = self.scheduler.poll()
        if batch:
            self.batches.append(batch)
        return [e.frame.index for e in batch]

    def end(self, ms: float) -> None:
        """The oldest batch ends after this time."""
        self.clock.now += ms * MS
        self.batches.pop(0)
        self.scheduler.done()

    def wait(self, ms: float) -> None:
        self.clock.now += ms * MS

    @property
    def wake_ms(self) -> float | None:
        wake_s = self.scheduler.decide().wake_s
        return None if wake_s is None else (wake_s - self.clock.now) / MS


def _cause(future: Future[Prediction]) -> str | None:
    error = future.exception(0) if future.done() and not future.cancelled() else None
    return error.cause if isinstance(error, Dropped) else None


# Which ones.


def test_the_first_deadline_goes_first_and_of_equal_ones_the_first_that_came() -> None:
    desk = Desk(max_batch=2)
    for deadline_ms in (900, 500, 700, 500, None, 200):
        desk.submit(deadline_ms)
    order = []
    while batch := desk.poll():
        order.append(batch)
        desk.end(20)
    assert order == [[5, 1], [3, 2], [0, 4]]


def test_none_replaces_another() -> None:
    desk = Desk(STEP)
    futures = [desk.submit() for _ in range(8)]
    assert desk.scheduler.waiting("http") == 8
    assert desk.poll() == list(range(6))
    assert desk.scheduler.waiting("http") == 2
    assert all(f.running() for f in futures[:6])
    desk.end(100)
    assert desk.poll() == [6, 7]
    assert all(f.running() for f in futures)


def test_as_many_as_still_meet_the_earliest_deadline() -> None:
    desk = Desk(STEP)
    for deadline_ms in (75, 500, 500, 500, 500):
        desk.submit(deadline_ms)
    assert desk.poll() == [0, 1, 2]


def test_where_time_is_a_line_nobody_waits_for_a_large_batch() -> None:
    """A batch of eight takes as long as four of two, and the first would be answered with the last."""
    desk = Desk()
    for _ in range(8):
        desk.submit(1000)
    assert desk.poll() == [0, 1]


def test_batches_are_as_large_as_what_comes_needs() -> None:
    """10 ms a picture and 10 ms a batch: in batches of four 80 a second, of eight 89."""
    sizes = {}
    for rate in (20, 75):
        desk = Desk(profile(0.010, 0.010, 8), capacity=1000)
        for _ in range(2 * rate):
            desk.submit(1000)
            desk.wait(1e3 / rate)
            desk.scheduler.poll()
            desk.scheduler.done()
        for _ in range(8):
            desk.submit(1000)
        sizes[rate] = len(desk.poll())
    assert sizes[20] < sizes[75] == 8


def test_what_expires_while_it_waits_is_not_computed() -> None:
    desk = Desk()
    desk.submit()
    assert desk.poll() == [0]
    late, good = desk.submit(50), desk.submit(500)
    desk.end(45)
    assert desk.poll() == [2]
    assert _cause(late) == "deadline"
    assert good.running()


def test_what_its_sender_cancelled_is_not_computed_and_takes_nobodys_place() -> None:
    desk = Desk(max_batch=2)
    futures = [desk.submit() for _ in range(4)]
    assert futures[0].cancel()
    assert desk.poll() == [1, 2]


def test_a_request_of_a_failed_batch_is_not_run_again_after_its_deadline() -> None:
    desk = Desk()
    futures = [desk.submit(50), desk.submit(500)]
    assert desk.poll() == [0, 1]
    failed = desk.batches[0]
    desk.end(60)
    desk.scheduler.retry(failed)
    assert desk.poll() == [1]
    assert [_cause(f) for f in futures] == ["deadline", None]


def test_stop_cancels_what_waits() -> None:
    desk = Desk()
    waiting = desk.submit(500)
    desk.scheduler.stop()
    assert waiting.cancelled()
    assert desk.submit(500).cancelled()


# Which ones are refused.


def test_a_full_queue_says_so_at_once_and_when_to_come_back() -> None:
    desk = Desk(capacity=4)
    for _ in range(4):
        desk.submit()
    with pytest.raises(Refused) as refused:
        desk.submit()
    assert refused.value.why == "full"
    assert refused.value.retry_after_s == pytest.approx(0.050)
    desk.poll()
    desk.submit()


def test_cancelled_requests_make_room() -> None:
    desk = Desk(capacity=2)
    first, _ = desk.submit(), desk.submit()
    first.cancel()
    desk.submit()
    with pytest.raises(Refused):
        desk.submit()


@pytest.mark.parametrize(("deadline_ms", "taken"), [(39.9, False), (40.1, True)])
def test_who_cannot_be_answered_in_time_behind_the_others_is_refused(deadline_ms: float, taken: bool) -> None:
    desk = Desk()
    for _ in range(3):
        desk.submit(35)
    if taken:
        desk.submit(deadline_ms)
        return
    with pytest.raises(Refused) as refused:
        desk.submit(deadline_ms)
    assert refused.value.why == "deadline"
    assert refused.value.retry_after_s == pytest.approx(0.0001)
    assert desk.scheduler.waiting("http") == 3


def test_only_those_with_earlier_deadlines_and_what_runs_are_in_front() -> None:
    desk = Desk(max_batch=2)
    for _ in range(2):
        desk.submit(500)
    assert desk.poll() == [0, 1]
    for _ in range(4):
        desk.submit(75)
    with pytest.raises(Refused):
        desk.submit(29.9)  # 20 ms of the running batch, and its own
    desk.submit(30.1)
    with pytest.raises(Refused):
        desk.submit(79.9)  # 20 ms, and three batches of two: five that wait, and itself
    desk.submit(80.1)


def test_a_device_that_is_overdue_is_believed_to_take_as_long_again() -> None:
    desk = Desk()
    desk.submit(500)
    assert desk.poll() == [0]
    desk.wait(10 + 100)
    with pytest.raises(Refused):
        desk.submit(100 + 9.9)
    desk.submit(100 + 10.1)


def test_a_slow_moment_refuses_nobody_for_ever() -> None:
    """A request that is not run is not measured: an idle device is tried by its times alone."""
    desk = Desk()
    for k in range(20):
        desk.scheduler.profile.observe(1, 0.100, desk.clock.now + 1e-3 * k)
    desk.submit(15)
    assert desk.poll() == [0]
    with pytest.raises(Refused):
        desk.submit(50)  # behind one that may take 100


def test_a_deadline_that_is_over_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        Desk().submit(-1)
    assert refused.value.why == "deadline"


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_queue_for_nobody_is_an_error(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1, got {capacity}"):
        Desk(capacity=capacity)


# When: "fixed".


def test_fixed_waits_for_exactly_the_batch() -> None:
    desk = Desk(GPU, max_batch=4, batching="fixed", max_wait_s=1.0)
    for k in range(3):
        desk.submit(5000)
        assert desk.poll() == [], k
    desk.submit(5000)
    desk.submit(5000)
    assert desk.poll() == [0, 1, 2, 3]


def test_fixed_waits_no_longer_than_its_bound_from_the_first_one_on() -> None:
    desk = Desk(GPU, max_batch=4, batching="fixed", max_wait_s=0.005)
    assert desk.wake_ms is None, "no window is open where nothing waits"
    desk.wait(100)
    desk.submit(5000)
    assert desk.wake_ms == pytest.approx(5)
    desk.wait(3)
    desk.submit(5000)
    assert desk.wake_ms == pytest.approx(2)
    desk.wait(2.001)
    assert desk.poll() == [0, 1]


def test_fixed_does_not_wait_until_a_deadline_is_missed() -> None:
    desk = Desk(GPU, max_batch=4, batching="fixed", max_wait_s=1.0)
    desk.submit(50)
    assert desk.wake_ms == pytest.approx(50 - 9)
    assert Desk(GPU, batching="fixed").wake_ms is None


@pytest.mark.parametrize("why", ["closed", "full"])
def test_fixed_never_waits_for_requests_that_cannot_come(why: str) -> None:
    desk = Desk(GPU, capacity=2, max_batch=4, batching="fixed", max_wait_s=1000.0)
    desk.submit()
    assert desk.poll() == []
    if why == "closed":
        desk.scheduler.close("http")
        assert desk.poll() == [0]
    else:
        desk.submit()
        assert desk.poll() == [0, 1]


# When: "dynamic".


def _flow(desk: Desk, gap_ms: float, count: int = 2000) -> None:
    """Requests that come at a steady pace and are worked off; one more comes now."""
    for _ in range(count):
        desk.submit(1000)
        while desk.poll():
            desk.end(0)
        desk.wait(gap_ms)
    while desk.scheduler.waiting("http"):
        desk.wait(20)
        while desk.poll():
            desk.end(0)
    desk.submit(1000)


def test_dynamic_runs_a_lone_request_at_once() -> None:
    desk = Desk(GPU)
    desk.submit(1000)
    assert desk.poll() == [0]


def test_dynamic_waits_where_more_comes_than_small_batches_work_off_and_soon_enough() -> None:
    """A batch of one works off 118 a second, 500 come, one every 2 ms, and a batch of two saves 8 ms."""
    desk = Desk(GPU)
    _flow(desk, 2)
    assert desk.poll() == []
    assert desk.wake_ms == pytest.approx(OVERDUE * 2, rel=0.1)
    desk.wait(OVERDUE * 2.2)
    assert len(desk.poll()) == 1, "the next one is overdue"


def test_dynamic_waits_at_most_for_what_a_batch_saves() -> None:
    desk = Desk(GPU)
    _flow(desk, 2)
    for _ in range(3):
        desk.wait(2)
        desk.submit(1000)
    assert desk.poll() == []
    desk.wait(2.001)
    desk.submit(1000)
    assert len(desk.poll()) == 5, "8 ms after the first one"


def test_max_wait_bounds_the_free_wait() -> None:
    desk = Desk(GPU, max_wait_s=0.001)
    _flow(desk, 2)
    assert desk.wake_ms == pytest.approx(1)


@pytest.mark.parametrize(("shape", "gap_ms"), [(LINE, 2), (GPU, 9)], ids=["nothing to save", "one at a time is enough"])
def test_dynamic_does_not_wait_where_that_gains_nothing(shape: Profile, gap_ms: float) -> None:
    desk = Desk(shape)
    _flow(desk, gap_ms)
    assert len(desk.poll()) == 1


def test_dynamic_waits_at_most_half_of_what_the_deadline_leaves() -> None:
    desk = Desk(GPU)
    _flow(desk, 2)
    assert desk.poll() == []
    desk.submit(11)
    assert desk.wake_ms == pytest.approx((11 - 9.5) / 2)
    desk.submit(9.9)
    assert len(desk.poll()) == 3


def test_a_burst_is_no_flood() -> None:
    """32 at once each second are 32 a second, not one every microsecond."""
    desk = Desk(GPU)
    for _ in range(20):
        for _ in range(32):
            desk.submit(1000)
        while desk.poll():
            desk.end(16)
        desk.wait(968)
    desk.submit(1000)
    assert len(desk.poll()) == 1


def test_the_next_batch_is_bound_when_the_device_is_about_to_be_free() -> None:
    desk = Desk(STEP, max_batch=4)
    for _ in range(4):
        desk.submit(1000)
    assert desk.poll() == [0, 1, 2, 3]
    desk.submit(1000)
    assert desk.poll() == []
    desk.wait(79.5)
    desk.submit(900)
    assert desk.poll() == [5, 4]


def test_an_overloaded_device_does_not_fall_into_ever_smaller_batches() -> None:
    desk = Desk(GPU)
    _flow(desk, 0.5)
    for _ in range(15):
        desk.submit(1000)
    desk.submit(8.6)
    assert len(desk.poll()) == 16, "the one that is nearly late is left behind"


# Beside cameras.


def test_cameras_go_first_and_requests_get_what_they_leave() -> None:
    desk = Desk(profile(0.004, 0.005, 16))
    desk.scheduler.open("camera", live=True)
    desk.scheduler.submit(frame("camera", 0, desk.clock.now))
    for _ in range(16):
        desk.submit(5000)
    assert [e.frame.stream for e in desk.scheduler.poll()] == ["camera"]
    assert desk.scheduler.poll() == []
    desk.clock.now += 0.009
    desk.scheduler.done()
    assert len(desk.poll()) == 5, "a camera's frame that comes right now is still in time"
    assert desk.poll() == [], "never behind a running batch"


def test_beside_cameras_that_leave_no_room_a_request_still_runs() -> None:
    desk = Desk(profile(0.004, 0.005, 16), budget_s=0.015)
    desk.scheduler.open("camera", live=True)
    desk.submit(5000)
    desk.submit(5000)
    assert desk.poll() == [0]


# Under load, on a clock that moves by events.


@dataclass
class Answers:
    """The ends of the requests of a simulated load."""

    offered: int = 0
    refused: int = 0
    expired: int = 0
    late: int = 0
    good: int = 0
    sizes: list[int] = field(default_factory=list)


def _load(shape: Profile, rate: float, deadline_ms: float, seconds: float, seed: int = 1, **options: Any) -> Answers:
    """Poisson arrivals on a device that takes 0.95 to 1.1 times its profile."""
    chance, answers, order = random.Random(seed), Answers(), itertools.count()
    shape = Profile(shape.table, shape.max_batch)  # it learns
    desk = Desk(shape, capacity=3 * shape.max_batch, **options)
    end_s, free_s = desk.clock.now + seconds, 0.0
    events: list[tuple[float, int, str, Any]] = [(desk.clock.now, next(order), "arrival", None)]
    while events:
        desk.clock.now, _, kind, what = heapq.heappop(events)
        if kind == "arrival":
            answers.offered += 1
            try:
                future = desk.submit(deadline_ms)
                future.add_done_callback(lambda f: answers.__setattr__("expired", answers.expired + (_cause(f) is not None)))
            except Refused:
                answers.refused += 1
            if desk.clock.now < end_s:
                heapq.heappush(events, (desk.clock.now + chance.expovariate(rate), next(order), "arrival", None))
        elif kind == "done":
            batch, took_s = what
            desk.scheduler.profile.observe(len(batch), took_s, desk.clock.now)
            desk.scheduler.done()
            in_time = sum(desk.clock.now <= part.entry.deadline_s for part in batch)
            answers.good += in_time
            answers.late += len(batch) - in_time
            answers.sizes.append(len(batch))
        while batch := desk.scheduler.poll():
            took_s = shape.table[len(batch)].median_s * chance.uniform(0.95, 1.1)
            free_s = max(free_s, desk.clock.now) + took_s
            heapq.heappush(events, (free_s, next(order), "done", (batch, took_s)))
        wake_s = desk.scheduler.decide().wake_s
        if wake_s is not None:
            heapq.heappush(events, (max(wake_s, desk.clock.now) + 1e-6, next(order), "wake", None))
    return answers


@pytest.mark.parametrize(
    ("shape", "deadline_ms"), [(GPU, 50), (profile(0.0, 0.010, 16), 500), (GPU, 5000)], ids=["GPU", "CPU", "GPU, patient"]
)
def test_at_twice_what_can_be_done_the_device_is_full_of_good_answers_and_the_rest_is_told_at_once(
    shape: Profile, deadline_ms: float
) -> None:
    most = 16 / shape.median(16)
    answers = _load(shape, 2 * most, deadline_ms, 10)
    assert answers.offered == answers.refused + answers.expired + answers.late + answers.good
    assert answers.good / 10 >= 0.9 * most / 1.025
    assert answers.expired + answers.late <= 0.02 * answers.offered


@pytest.mark.parametrize("batching", ["dynamic", "fixed"])
def test_below_that_nobody_is_refused_and_all_are_in_time(batching: str) -> None:
    answers = _load(GPU, 500, 50, 10, batching=batching, max_wait_s=0.005)
    assert answers.good >= 0.99 * answers.offered


def test_dynamic_batches_grow_with_the_load() -> None:
    means = []
    for rate in (50, 300, 900):
        sizes = _load(GPU, rate, 1000, 5).sizes
        means.append(sum(sizes) / len(sizes))
    assert means[0] < 1.6 < means[1] < means[2]
    assert means[2] > 8


# With the predictor: every future ends (C30).

OVERDUE = Tuning().overdue
TASK = ClassificationTask(topk=1)
OPTIONS = PredictorOptions(scheduler=SchedulerOptions(max_batch=8))


def _answer_or_error(future: Future[Prediction]) -> str:
    try:
        return str(labels_of(future.result(WAIT_S))[0].id)
    except (CancelledError, Exception) as error:
        return type(error).__name__


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.field)])
def test_c30_bursts_of_the_batch_and_one_more_are_all_answered(count: int) -> None:
    """Gaps without sleeping: go on, wait for the first answer of the burst, or for its last."""
    chance = random.Random(30)
    predictor = AsyncBatchPredictor(LateEngine(), ProbePreprocess(), TASK, replace(OPTIONS, profile=profile(1e-5, 1e-6, 8)))
    predictor.engine.batches = _Count()  # type: ignore[attr-defined]
    wrong = done = 0
    with predictor:
        predictor.open_requests("http", capacity=64)
        burst: list[tuple[int, Future[Prediction]]] = []
        waiting: list[tuple[int, Future[Prediction]]] = []
        while done + len(waiting) < count:
            burst = []
            for _ in range(min(8 + chance.randrange(2), count - done - len(waiting))):
                luma = chance.randrange(256)
                while True:
                    try:
                        burst.append((luma, predictor.submit(coloured("http", done, luma, 0.0))))
                        break
                    except Refused:
                        (waiting or burst)[0][1].result(WAIT_S)
            waiting += burst
            gap = chance.randrange(4)
            if gap:
                waiting[-1 if gap == 1 else -len(burst)][1].result(WAIT_S)
            if len(waiting) > 100:
                wrong += sum(labels_of(f.result(WAIT_S))[0].id != luma for luma, f in waiting)
                done += len(waiting)
                waiting = []
        wrong += sum(labels_of(f.result(WAIT_S))[0].id != luma for luma, f in waiting)
        done += len(waiting)
    assert (done, wrong) == (count, 0)


class _Count(list[int]):
    """Keeps nothing: a hundred thousand batch sizes are not looked at."""

    def append(self, size: int) -> None: ...


@pytest.mark.parametrize("capacity", [8, 9, 64])
def test_c30_a_lost_wake_up_would_leave_the_last_of_a_burst_waiting(capacity: int) -> None:
    """`fixed` with a bound that never comes: exactly the batch runs without any further arrival, one more waits for its
    company."""
    options = replace(OPTIONS, scheduler=SchedulerOptions(max_batch=8, batching="fixed", max_wait_s=1000.0))
    predictor = AsyncBatchPredictor(LateEngine(), ProbePreprocess(), TASK, replace(options, profile=profile(1e-5, 1e-6, 8)))
    with predictor:
        predictor.open_requests("http", capacity=capacity)
        for turn in range(300):
            futures = [predictor.submit(coloured("http", turn, k, 0.0)) for k in range(8)]
            assert [labels_of(f.result(WAIT_S))[0].id for f in futures] == list(range(8))


@pytest.mark.parametrize(
    "error",
    [RuntimeError("bad"), MemoryError(), CancelledError(), None, np.zeros((1, 3)), np.zeros((99, CLASSES))],
    ids=["RuntimeError", "MemoryError", "CancelledError", "None", "few", "many"],
)
def test_c30_what_the_engine_does_to_a_colour_harms_no_other_request_and_not_the_next(error: Any) -> None:
    gate, engine = Held(), LateEngine()
    engine.gate = gate
    bad = 66

    def answer(logits: Any) -> Any:
        if not (logits[:, bad] > 0).any():
            return logits
        if isinstance(error, BaseException):
            raise error
        return error

    engine.answer = answer
    predictor = AsyncBatchPredictor(engine, ProbePreprocess(), TASK, replace(OPTIONS, profile=profile(0.001, 1e-5, 8)))
    with predictor:
        predictor.open_requests("http", capacity=64)
        first = predictor.submit(coloured("http", 0, 1, 0.0))
        gate.until_waiting()
        futures = [predictor.submit(coloured("http", k, luma, 0.0)) for k, luma in enumerate((64, 65, bad, 67))]
        gate.open()
        expected = type(error).__name__ if isinstance(error, BaseException) else EngineError.__name__
        assert [_answer_or_error(f) for f in (first, *futures)] == ["1", "64", "65", expected, "67"]
        assert _answer_or_error(predictor.submit(coloured("http", 9, 99, 0.0))) == "99"
    assert predictor.error is None


def test_c30_cancelled_expired_refused_and_answered_add_up() -> None:
    """A hundred senders cancel their requests while the device is held."""
    gate, engine = Held(), LateEngine()
    engine.gate = gate
    clock = ManualClock(1000.0)
    predictor = AsyncBatchPredictor(
        engine, ProbePreprocess(), TASK, replace(OPTIONS, profile=profile(0.001, 1e-5, 8)), clock=clock
    )
    with predictor:
        predictor.open_requests("http", capacity=50)
        running = predictor.submit(coloured("http", 0, 1, 0.0))
        gate.until_waiting()
        futures, refused = [], 0
        for k in range(100):
            try:
                futures.append(predictor.submit(coloured("http", k, k, 0.0), clock.now + (5 if k % 2 else 50)))
            except Refused:
                refused += 1
        cancelled = [f for f in futures[::10] if f.cancel()]
        clock.now += 10
        gate.open()
        outcomes = Counter("answered" if (a := _answer_or_error(f)).isdigit() else a for f in futures)
        assert _answer_or_error(running) == "1"
    assert (refused, len(cancelled)) == (50, 5)
    assert outcomes == {"CancelledError": 5, "Dropped": 25, "answered": 20}
    assert sum(engine.batches) == 1 + 20, "no cancelled request was computed"
