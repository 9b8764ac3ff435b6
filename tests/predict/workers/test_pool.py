"""Pool: worker processes that are killed, stopped, slow and poisoned; every future ends, and nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import Dropped, EngineError, EngineLost, Refused, Stopped
from pipelines.frame import Prediction, Region
from pipelines.predict.engines.engine import Engine
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.predict.workers import worker
from pipelines.predict.workers.pool import Pool
from pipelines.predict.workers.supervisor import PoolOptions
from pipelines.predict.workers.worker_engine import WorkerEngine
from pipelines.tasks.classification import ClassificationTask
from tests.fakes import labels_of
from tests.predict.fakes import frame
from tests.predict.scheduling.simulation import profile
from tests.predict.workers import faults
from tests.predict.workers.faults import BrokenEngine, DyingEngine, FaultyEngine, SlowEngine

pytestmark = pytest.mark.timeout(60)
WAIT_S = 20
TASK = ClassificationTask(topk=1)
SHAPE = profile(0.002, 0.0001, 8)


class House:
    """A pool of these engines, and its events."""

    def __init__(
        self,
        engine: Callable[[], Engine] = FaultyEngine,
        workers: int = 2,
        *,
        restarts: int = 5,
        shape: Profile = SHAPE,
        **scheduler: Any,
    ) -> None:
        self.failed = threading.Event()
        self.batches: list[int] = []
        options = PredictorOptions(
            profile=shape, scheduler=SchedulerOptions(**{"max_batch": shape.max_batch, "budget_s": 10.0, **scheduler})
        )

        def make(k: int, events: PredictorEvents) -> tuple[WorkerEngine, AsyncBatchPredictor]:
            own = replace(options, profile=Profile(shape.table, shape.max_batch), label=f"w{k}")
            worker = WorkerEngine(engine())
            return worker, AsyncBatchPredictor(worker, ProbePreprocess(), TASK, own, events=events)

        events = PredictorEvents(lambda size, seconds: self.batches.append(size), self.failed.set)
        self.pool = Pool(make, PoolOptions(workers, restarts, 60.0), events=events)

    def __enter__(self) -> House:
        self.pool.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.pool.__exit__(*error)

    def ask(self, lumas: Sequence[int], stream: str = "http") -> list[Future[Prediction]]:
        return [self.pool.submit(frame(stream, k, luma, time.monotonic())) for k, luma in enumerate(lumas)]

    def pids(self) -> list[int]:
        return [w.pid for w in self.pool.workers() if w.pid is not None]

    def until(self, what: Callable[[], object]) -> None:
        """Until it is so; it is looked at whenever a worker comes or goes."""
        with self.pool._changed:
            assert self.pool._changed.wait_for(lambda: what(), WAIT_S), self.pool.workers()


def said(future: Future[Prediction]) -> int:
    return labels_of(future.result(WAIT_S))[0].id


def outcome(future: Future[Prediction]) -> str:
    try:
        return str(said(future))
    except (CancelledError, BaseException) as error:
        return type(error).__name__


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, how)


def until_gone(pid: int) -> None:
    """Until a process that is no child of this one has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor, "rb"):
        assert select.select([descriptor], [], [], WAIT_S)[0], f"{pid} still runs"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that a test holds does not count as hung."""
    monkeypatch.setattr(worker, "HANG_S", WAIT_S)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A FIFO; it is opened for reading and writing at the end, so that its readers end."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    yield path
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@contextlib.contextmanager
def held(gate: Path) -> Iterator[None]:
    """While inside, a worker reads the gate: entering waits for it."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:  # no process reads it
            assert time.monotonic() < deadline_s, "no worker has come to the gate"
            os.sched_yield()
    try:
        yield
    finally:
        os.close(writer)


def let_through(gate: Path, futures: Sequence[Future[Prediction]]) -> None:
    """Open the gate again and again, until all are answered."""
    deadline_s = time.monotonic() + WAIT_S
    while not all(f.done() for f in futures):
        assert time.monotonic() < deadline_s
        with contextlib.suppress(OSError):
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        os.sched_yield()


# Without faults.


def test_requests_cameras_and_files_get_their_own_answers() -> None:
    with House() as house:
        pool = house.pool
        assert pool.ready
        pool.open_requests("http", capacity=1000)
        asked = house.ask([k % 200 for k in range(500)])
        pool.open("file", live=False)
        filed: list[Future[Prediction]] = []
        for k in range(200):
            one = frame("file", k, k, 0.0)
            filed.append(pool.submit(one))
            filed[-1].add_done_callback(lambda f, one=one: pool.finish(one))  # type: ignore[misc]
        pool.close("file")
        assert [said(f) for f in asked] == [k % 200 for k in range(500)]
        assert [said(f) for f in filed] == list(range(200))
        pool.open("camera", live=True)
        (seen,) = house.ask([77], "camera")
        assert said(seen) == 77
        facts = pool.workers()
        assert [(w.index, w.device, w.state, w.restarts) for w in facts] == [(0, "cpu", "ready", 0), (1, "cpu", "ready", 0)]
        assert all(w.memory_mb and w.memory_mb > 5 for w in facts)
        assert {w.pid for w in facts} == set(house.pids())
        assert pool.waiting("http") == 0
    assert sum(house.batches) == 701
    assert [w.pid for w in pool.workers()] == [None, None]


def test_both_workers_are_used_and_an_idle_one_first(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate)) as house:
        house.pool.open_requests("http", capacity=10)
        (first,) = house.ask([faults.HELD])
        with held(gate):
            assert [said(house.ask([luma])[0]) for luma in (5, 6, 7)] == [5, 6, 7]
            assert not first.done()
        assert said(first) == faults.HELD


def test_cameras_are_shared_out() -> None:
    with House() as house:
        for name in "abcd":
            house.pool.open(name, live=True)
        assert [house.pool._routes.cameras(w) for w in house.pool._supervisor.workers] == [2, 2]
        for name in "abcd":
            assert said(house.ask([9], name)[0]) == 9


@pytest.mark.parametrize(
    ("luma", "error"),
    [
        (faults.NOTHING, EngineError),
        (faults.FEW, EngineError),
        (faults.MEMORY, MemoryError),
        (faults.EXIT, SystemExit),
        (faults.CANCELLED, CancelledError),
        (faults.UNPICKLABLE, EngineError),
    ],
)
def test_what_the_engine_raises_over_there_is_raised_here_for_its_own_frame_only(luma: int, error: type[BaseException]) -> None:
    with House(workers=1) as house:
        house.pool.open_requests("http", capacity=10)
        futures = house.ask([1, luma, 2])
        assert [said(futures[0]), said(futures[2])] == [1, 2]
        assert type(futures[1].exception(WAIT_S)) is error
        assert said(house.ask([3])[0]) == 3
        assert house.pool.restarts == 0


def test_c07_c16_no_start_method_is_set_and_no_descriptor_is_used_up(tmp_path: Path) -> None:
    """2,000 requests, 64 in flight; a descriptor for each would show."""

    def counts() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in ("self", *house.pids())]

    gc.collect()
    before = multiprocessing.get_start_method(allow_none=True)
    alone = len(os.listdir("/proc/self/fd"))
    with House() as house:
        house.pool.open_requests("http", capacity=64)

        def ask(count: int) -> None:
            waiting: list[Future[Prediction]] = []
            for k in range(count):
                if len(waiting) == 64:
                    waiting.pop(0).result(WAIT_S)
                waiting += house.ask([k % 200])
            assert all(f.result(WAIT_S) for f in waiting)

        ask(200)
        early = counts()
        ask(1800)
        assert counts() == early
    assert multiprocessing.get_start_method(allow_none=True) == before
    assert len(os.listdir("/proc/self/fd")) == alone


def test_a_worker_that_runs_openvino_imports_no_torch(tmp_path: Path) -> None:
    from tests.predict.engines.test_engines import _openvino

    engine = WorkerEngine(_openvino(tmp_path))
    try:
        engine.open(2, 1)
        assert engine.pid is not None
        mapped = Path(f"/proc/{engine.pid}/maps").read_text()
        assert "libopenvino" in mapped
        assert not [word for word in ("libtorch", "libav", "cv2") if word in mapped]
        assert "watchline-slots" in mapped
    finally:
        engine.close()


# Overload and the end.


def test_refused_when_full_and_the_capacity_is_that_of_all_workers(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate), shape=profile(0.002, 0.0001, 1), slots=1) as house:
        house.pool.open_requests("http", capacity=6)
        running = house.ask([faults.HELD]) + house.ask([faults.HELD])
        with held(gate):
            waiting = house.ask([1, 2, 3, 4, 5, 6])
            with pytest.raises(Refused) as refused:
                house.ask([7])
            assert refused.value.why == "full"
            assert house.pool.waiting("http") == 6
        let_through(gate, running)
        assert [said(f) for f in waiting] == [1, 2, 3, 4, 5, 6]


def test_leaving_cancels_what_waits(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate), workers=1, shape=profile(0.002, 0.0001, 1), slots=1) as house:
        house.pool.open_requests("http", capacity=10)
        house.pool.open("camera", live=True)
        house.pool.open("file", live=False)
        (inside,) = house.ask([faults.HELD])
        with held(gate):
            waiting = [*house.ask([1]), *house.ask([2], "camera"), *house.ask([3], "file")]
            house.pool.stop()
        assert [outcome(f) for f in waiting] == ["CancelledError"] * 3
        assert outcome(inside) == str(faults.HELD)
        assert all(house.ask([9], name)[0].cancelled() for name in ("http", "camera", "file"))


def test_an_engine_that_cannot_be_opened_is_the_error_of_entering() -> None:
    with pytest.raises(OSError, match="no model file"), House(BrokenEngine):
        pytest.fail("entered")


def test_a_stop_while_workers_load_ends_them(gate: Path, tmp_path: Path) -> None:
    house = House(lambda: SlowEngine(gate, tmp_path / "loaded", always=True))

    def stop() -> None:
        with held(gate):
            house.pool.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Stopped), house:
        pytest.fail("entered")
    thread.join()


# Workers that die (C33).


def test_c33_a_worker_killed_under_load_costs_no_answer_and_is_replaced() -> None:
    with House() as house:
        house.pool.open_requests("http", capacity=10_000)
        futures: list[Future[Prediction]] = []
        for turn in range(3):
            futures += house.ask([k % 200 for k in range(400)])
            kill(house.pids()[turn % 2])
            futures += house.ask([k % 200 for k in range(400)])
            assert [said(f) for f in futures] == [k % 200 for k in range(400)] * 2 * (turn + 1)
            house.until(lambda turn=turn: house.pool.ready and house.pool.restarts == turn + 1)  # type: ignore[misc]
        assert sum(w.restarts for w in house.pool.workers()) == 3


def test_a_lost_worker_leaves_no_descriptor_and_no_memory_here() -> None:
    """Not even until the garbage collection: an error holds the frames of its stack."""
    with House(workers=1) as house:
        house.pool.open_requests("http", capacity=10)
        gc.disable()
        try:
            counts = []
            for turn in range(4):
                counts.append((len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("watchline-slots")))
                house.ask([1])[0].result(WAIT_S)
                kill(house.pids()[0])
                house.until(lambda turn=turn: house.pool.ready and house.pool.restarts == turn + 1)  # type: ignore[misc]
        finally:
            gc.enable()
    assert len(set(counts)) == 1, counts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_workers_leave_signals_to_their_parent(number: signal.Signals) -> None:
    """Ctrl-C goes to all of a terminal's processes; requests in flight are still answered."""
    with House(workers=1) as house:
        house.pool.open_requests("http", capacity=10)
        pids = house.pids()
        kill(pids[0], number)
        assert [said(f) for f in house.ask([1, 2, 3])] == [1, 2, 3]
        assert house.pids() == pids


def test_c33_what_was_in_flight_is_run_once_more_on_another_worker(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate)) as house:
        house.pool.open_requests("http", capacity=10)
        (future,) = house.ask([faults.HELD])
        with held(gate):
            kill(house.pids()[0])
            house.until(lambda: house.pool.restarts)
        let_through(gate, [future])
        assert said(future) == faults.HELD


def test_c33_the_only_worker_killed_its_requests_wait_for_the_next_one(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate), workers=1) as house:
        house.pool.open_requests("http", capacity=10)
        futures = house.ask([faults.HELD])
        with held(gate):
            futures += house.ask([1, 2])
            kill(house.pids()[0])
            house.until(lambda: house.pool.restarts)
        let_through(gate, futures)
        assert [said(f) for f in futures] == [faults.HELD, 1, 2]


def test_c33_but_not_longer_than_two_seconds_and_the_next_are_told_to_come_back(gate: Path, tmp_path: Path) -> None:
    with House(lambda: SlowEngine(gate, tmp_path / "loaded"), workers=1) as house:
        house.pool.open_requests("http", capacity=10)
        began_s = time.monotonic()
        futures = house.ask([faults.POISON, 1, 2])
        with held(gate):
            assert [outcome(f) for f in futures] == ["Refused"] * 3
            assert 1.9 < time.monotonic() - began_s < 4
            with pytest.raises(Refused) as refused:
                house.ask([3])
            assert refused.value.retry_after_s > 0
            assert refused.value.why == "no_worker"
        house.until(lambda: house.pool.ready)
        assert said(house.ask([4])[0]) == 4


def test_c33_all_killed_at_once() -> None:
    with House() as house:
        house.pool.open_requests("http", capacity=1000)
        futures = house.ask([k % 200 for k in range(600)])
        for pid in house.pids():
            kill(pid)
        assert {outcome(f) for f in futures} <= {str(k) for k in range(200)} | {"EngineLost"}
        house.until(lambda: house.pool.ready and house.pool.restarts == 2)
        assert [said(f) for f in house.ask([8, 9])] == [8, 9]


def test_a_frame_that_kills_its_worker_is_tried_twice_and_harms_no_other() -> None:
    with House(restarts=6) as house:
        house.pool.open_requests("http", capacity=1000)
        for turn in range(3):
            futures = house.ask([1, 2, 3, faults.POISON, 4, 5, 6])
            assert [outcome(f) for f in futures] == ["1", "2", "3", "EngineLost", "4", "5", "6"]
            assert "SIGKILL" in str(futures[3].exception())
            house.until(lambda turn=turn: house.pool.ready and house.pool.restarts == 2 * turn + 2)  # type: ignore[misc]


def test_c33_a_worker_that_is_stopped_is_killed_and_replaced_and_its_requests_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "HANG_S", 0.3)
    with House() as house:
        house.pool.open_requests("http", capacity=1000)
        stopped = house.pids()[0]
        kill(stopped, signal.SIGSTOP)
        futures = house.ask(list(range(100)))
        assert [said(f) for f in futures] == list(range(100))
        house.until(lambda: house.pool.ready and house.pool.restarts == 1)
        assert stopped not in house.pids()


def test_an_idle_worker_that_dies_is_replaced_too() -> None:
    with House(workers=1) as house:
        kill(house.pids()[0])
        house.until(lambda: house.pool.restarts == 1 and house.pool.ready)


def test_a_slow_batch_is_not_taken_for_a_hang(gate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its profile: five times the 99th percentile."""
    monkeypatch.setattr(worker, "HANG_S", 0.0)
    with House(lambda: ProbeEngine(0.2), shape=profile(0.1, 0.0, 8)) as house:
        house.pool.open_requests("http", capacity=10)
        assert said(house.ask([4])[0]) == 4
        assert house.pool.restarts == 0


def test_c33_a_slow_start_is_under_no_limit_of_requests(gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker's successor loads for as long as the test likes, while the first one serves, and is not killed."""
    monkeypatch.setattr(worker, "HANG_S", 0.05)
    marks = marks_of(tmp_path)
    with House(lambda: SlowEngine(gate, next(marks))) as house:
        house.pool.open_requests("http", capacity=100)
        kill(house.pids()[1])
        with held(gate):
            assert [said(f) for f in house.ask(list(range(50)))] == list(range(50))
            assert not house.pool.ready
            assert house.pool.workers()[1].state == "starting"
        house.until(lambda: house.pool.ready)
        assert house.pool.restarts == 1


def marks_of(folder: Path) -> Iterator[Path]:
    """Marks for the engines in the order in which they are made: the third is the first's or second's again."""
    yield folder / "0"
    yield folder / "1"
    (folder / "again").touch()
    while True:
        yield folder / "again"


@pytest.mark.parametrize("how", ["poison", "open"])
def test_c33_more_crashes_than_allowed_and_the_pool_is_not_ready_says_why_and_still_stops(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watchline.pool")
    make = FaultyEngine if how == "poison" else lambda: BrokenEngine(tmp_path / "opened")
    with _heard("watchline.pool", caplog), House(make, workers=1, restarts=2) as house:
        house.pool.open_requests("http", capacity=100)
        if how == "poison":
            for said in ("EngineLost", "Refused"):  # the first costs two workers, and for the second none is left
                house.until(lambda: house.pool.ready)
                assert [outcome(f) for f in house.ask([faults.POISON])] == [said]
        else:
            kill(house.pids()[0])
        assert house.failed.wait(WAIT_S)
        assert not house.pool.ready
        assert [w.state for w in house.pool.workers()] == ["dead"]
        with pytest.raises(Refused):
            house.ask([1])
        assert isinstance(house.pool.error, EngineLost)
        assert "2 were replaced within 60 s" in str(house.pool.error)
        reason = "SIGKILL" if how == "poison" else "OSError: no model file"
        assert reason in caplog.records[-1].message
        assert caplog.records[-1].levelno == logging.ERROR


@contextlib.contextmanager
def _heard(name: str, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The records of this logger reach the test, also if another test has set it up."""
    logger = logging.getLogger(name)
    logger.addHandler(caplog.handler)
    try:
        yield
    finally:
        logger.removeHandler(caplog.handler)


def test_a_pool_whose_workers_die_while_they_load_says_so_at_the_end() -> None:
    with pytest.raises(EngineLost, match="SIGKILL; 1 were replaced"), House(DyingEngine, workers=1, restarts=1):
        pytest.fail("entered")


# Streams of a dead worker.


def test_a_file_loses_no_frame_though_its_only_worker_is_killed(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate), workers=1) as house:
        pool = house.pool
        pool.open("file", live=False)
        lumas = [faults.HELD, *range(100)]
        futures: list[Future[Prediction]] = []
        submitted = threading.Event()

        def decode() -> None:
            for k, luma in enumerate(lumas):
                one = frame("file", k, luma, 0.0)
                future = pool.submit(one)
                future.add_done_callback(lambda f, one=one: pool.finish(one))  # type: ignore[misc]
                futures.append(future)
            pool.close("file")
            submitted.set()

        decoder = threading.Thread(target=decode)
        decoder.start()
        with held(gate):
            kill(house.pids()[0])
            house.until(lambda: pool.restarts == 1)
        let_through(gate, futures[:1])
        assert submitted.wait(WAIT_S)
        decoder.join()
        assert [said(f) for f in futures] == lumas


def test_a_file_that_was_closed_loses_nothing_either(gate: Path) -> None:
    with House(lambda: FaultyEngine(gate), workers=1) as house:
        house.pool.open("file", live=False)
        frames = [frame("file", k, luma, 0.0) for k, luma in enumerate((faults.HELD, 1, 2, 3))]
        futures = [house.pool.submit(one) for one in frames]
        house.pool.close("file")
        with held(gate):
            kill(house.pids()[0])
            house.until(lambda: house.pool.restarts == 1)
        let_through(gate, futures)
        assert [said(f) for f in futures] == [faults.HELD, 1, 2, 3]
        for one in frames:
            house.pool.finish(one)


def test_a_frame_of_several_regions_survives_its_worker_and_is_answered_once(gate: Path) -> None:
    """Its rows are in two batches when the worker dies."""
    with House(lambda: FaultyEngine(gate), workers=1, shape=profile(0.002, 0.0001, 2)) as house:
        house.pool.open("file", live=False)
        one = frame("file", 0, faults.HELD, 0.0)
        one.regions = tuple(Region(str(k)) for k in range(5))
        future = house.pool.submit(one)
        with held(gate):
            kill(house.pids()[0])
            house.until(lambda: house.pool.restarts == 1)
        let_through(gate, [future])
        assert list(future.result(WAIT_S).answers) == ["0", "1", "2", "3", "4"]
        house.pool.finish(one)


def test_cameras_of_a_dead_worker_go_to_the_others_and_some_come_back() -> None:
    with House() as house:
        pool = house.pool
        for name in "abcd":
            pool.open(name, live=True)
        kill(house.pids()[0])
        house.until(lambda: pool.restarts == 1 and pool.ready)
        assert [pool._routes.cameras(w) for w in pool._supervisor.workers] == [2, 2]
        for name in "abcd":
            one = frame(name, 0, 50, time.monotonic())
            assert said(pool.submit(one)) == 50
            pool.finish(one)


def test_cameras_of_a_dead_worker_do_not_wait_for_its_successor(gate: Path, tmp_path: Path) -> None:
    marks = marks_of(tmp_path)
    with House(lambda: SlowEngine(gate, next(marks))) as house:
        for name in "ab":
            house.pool.open(name, live=True)
        kill(house.pids()[0])
        with held(gate):
            assert [said(house.ask([luma], name)[0]) for luma, name in ((7, "a"), (8, "b"))] == [7, 8]
        house.until(lambda: house.pool.ready)
        assert [house.pool._routes.cameras(w) for w in house.pool._supervisor.workers] == [1, 1]


def test_cameras_without_any_worker_drop_their_frames_and_go_on_with_the_next(gate: Path, tmp_path: Path) -> None:
    mark = tmp_path / "loaded"
    with House(lambda: SlowEngine(gate, mark), workers=1) as house:
        house.pool.open("a", live=True)
        kill(house.pids()[0])
        with held(gate):
            house.pool.open("b", live=True)
            for name in "ab":
                (future,) = house.ask([1], name)
                error = future.exception(WAIT_S)
                assert isinstance(error, Dropped)
                assert error.cause == "overload"
        house.until(lambda: house.pool.ready)
        assert [said(house.ask([2], name)[0]) for name in "ab"] == [2, 2]


# Nothing is left behind.

PARENT = """
import os, signal
from app import build
from app.config import Settings
from pipelines.predict.predictor import PredictorEvents
pool = build.make_pool(Settings(model="probe"), 2, PredictorEvents()).predictor
pool.__enter__()
pids = [w.pid for w in pool.workers()]
if {stopped}:
    os.kill(pids[0], signal.SIGSTOP)
print(*pids, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "one of them stopped"])
def test_c33_a_dead_parent_leaves_no_worker_and_no_shared_memory(stopped: bool) -> None:
    """The parent is a program without a main module that could be imported again."""
    shared = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-c", PARENT.format(stopped=stopped)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
        for pid in pids:
            until_gone(pid)
    assert set(os.listdir("/dev/shm")) <= shared
