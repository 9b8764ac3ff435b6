"""Results fan out: each consumer gets every result in order in a thread of its own, and delays nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pipelines.errors import SinkError, Stopped
from pipelines.frame import NOTHING, Frame, Result, StreamInfo, Trace
from pipelines.monitor.reports import ConsumerReport
from pipelines.results import MOST, Callback, Results
from pipelines.sinks.sink import Consumer

pytestmark = pytest.mark.timeout(20)
PATIENCE_S = 10.0


def result(index: int, stream: str = "door") -> Result:
    return Result(Frame(stream, 0, index, NOTHING, None, StreamInfo(), Trace(0.0, 0.0)), "dropped", cause="skipped")


def run_of(count: int, stream: str = "door") -> list[Result]:
    return [result(k, stream) for k in range(count)]


class Remembers(Consumer):
    """Remembers all indices; `hold` blocks every call of `take` until it is set, or until an interrupt."""

    def __init__(self, *, held: bool = False, fails_at: int | None = None) -> None:
        self.name = "remembers"
        self.calls: list[list[int]] = []
        self.threads: set[str] = set()
        self.closed = 0
        self.interrupted = False
        self.entered = threading.Event()
        self.free = threading.Event()
        self._fails_at = fails_at
        if not held:
            self.free.set()

    def take(self, results: Sequence[Result]) -> None:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        assert self.free.wait(PATIENCE_S)
        if self.interrupted:
            raise SinkError("interrupted")
        for one in results:
            if one.frame.index == self._fails_at:
                raise SinkError("disk full: lines")
        self.calls.append([r.frame.index for r in results])

    def interrupt(self) -> None:
        self.interrupted = True
        self.free.set()

    def close(self) -> None:
        self.closed += 1

    @property
    def indices(self) -> list[int]:
        return [k for call in self.calls for k in call]


class Newest(Remembers):
    policy = "newest"


@contextmanager
def fanout(*consumers: Consumer, capacity: int = 512) -> Iterator[tuple[Results, list[str]]]:
    """Results with these consumers, and the list of their failures. Leaving closes them."""
    lost: list[str] = []
    results = Results(lambda consumer, error: lost.append(f"{consumer.name}: {error}"))
    for consumer in consumers:
        results.subscribe(consumer, capacity)
    try:
        yield results, lost
    finally:
        assert results.close(running) == []


def running() -> None:
    """The time of a stop that has not come."""


def long_ago() -> float:
    """The time of a stop that came so long ago that the consumers have only LAST_S."""
    return 0.0


def test_every_consumer_gets_every_result_in_order_in_its_own_thread() -> None:
    first, second = Remembers(), Remembers()
    first.name, second.name = "first", "second"
    with fanout(first, second) as (results, lost):
        for one in run_of(500):
            results.put([one])
    assert first.indices == second.indices == list(range(500))
    assert (first.threads, second.threads) == ({"consume:first"}, {"consume:second"})
    assert (first.closed, second.closed) == (1, 1)
    assert lost == []


def test_a_consumer_gets_all_waiting_results_at_once() -> None:
    slow = Remembers(held=True)
    with fanout(slow) as (results, _):
        results.put(run_of(1))
        assert slow.entered.wait(PATIENCE_S)
        for one in run_of(300)[1:]:
            results.put([one])
        slow.free.set()
    assert slow.indices == list(range(300))
    assert [len(call) for call in slow.calls] == [1, MOST, MOST, 299 - 2 * MOST]


def test_a_slow_consumer_delays_no_other_and_no_putter() -> None:
    slow, quick = Remembers(held=True), Remembers()
    seen = threading.Event()
    with fanout(slow, quick, Callback(lambda r: seen.set() if r.frame.index == 99 else None), capacity=10) as (results, _):
        results.put(run_of(100))
        assert seen.wait(PATIENCE_S)
        slow.free.set()
    assert slow.indices == quick.indices == list(range(100))


def test_a_lane_waits_while_a_channel_is_full_and_until_its_stop() -> None:
    slow, stop = Remembers(held=True), threading.Event()
    went_on = threading.Event()
    with fanout(slow, capacity=2) as (results, _):
        results.put(run_of(1))
        assert slow.entered.wait(PATIENCE_S)
        results.put(run_of(2))
        lane = threading.Thread(target=lambda: (results.wait_for_room(threading.Event()), went_on.set()))
        lane.start()
        stop.set()
        results.wait_for_room(stop)  # a lane that stops does not wait
        assert not went_on.is_set()
        slow.free.set()
        assert went_on.wait(PATIENCE_S)
        lane.join()


def test_newest_takes_the_latest_result_of_each_stream_and_counts_the_others() -> None:
    viewer = Newest(held=True)
    with fanout(viewer) as (results, _):
        results.put([result(0, "a")])
        assert viewer.entered.wait(PATIENCE_S)
        results.put([*run_of(50, "a"), *run_of(20, "b")])
        results.wait_for_room(threading.Event())  # never full
        viewer.free.set()
        results.unsubscribe(viewer)
    assert viewer.calls == [[0], [49, 19]]


def test_figures_of_every_consumer() -> None:
    good, bad = Remembers(), Remembers(fails_at=3)
    good.name, bad.name = "good", "bad"
    results = Results()
    results.subscribe(good)
    results.subscribe(bad)
    results.put(run_of(10))
    assert results.close(running) == []
    assert results.report() == (
        ConsumerReport("good", "block", 10, 0, 0, failed=False),
        ConsumerReport("bad", "block", 0, 0, 10, failed=True),
    )


def test_a_consumer_that_fails_is_told_once_closed_and_gets_nothing_more() -> None:
    bad, good = Remembers(fails_at=0), Remembers()
    with fanout(bad, good) as (results, lost):
        for one in run_of(20):
            results.put([one])
        assert results.alive
    assert lost == ["remembers: disk full: lines"]
    assert (bad.indices, bad.closed) == ([], 1)
    assert good.indices == list(range(20))


def test_any_error_of_a_consumer_is_a_failure_of_that_consumer_alone() -> None:
    def broken(result: Result) -> None:
        raise ZeroDivisionError("in somebody's code")

    with fanout(Callback(broken)) as (results, lost):
        results.put(run_of(5))
    assert lost == ["broken: broken failed: ZeroDivisionError: in somebody's code"]
    assert not results.alive


def test_a_failed_consumer_holds_no_lane() -> None:
    bad = Remembers(fails_at=0)
    with fanout(bad, capacity=1) as (results, lost):
        results.put(run_of(1))
        results.wait_for_room(threading.Event())
        results.put(run_of(5))
        results.wait_for_room(threading.Event())
    assert len(lost) == 1


def test_an_error_at_the_close_is_told() -> None:
    class Last(Remembers):
        def close(self) -> None:
            raise SinkError("disk full at the close")

    with fanout(Last()) as (results, lost):
        results.put(run_of(1))
    assert lost == ["remembers: disk full at the close"]


def test_without_a_stop_the_close_waits_as_long_as_a_slow_reader_needs() -> None:
    slow = Remembers(held=True)
    results = Results()
    results.subscribe(slow)
    results.put(run_of(10))
    closing = threading.Thread(target=results.close, args=(running,))
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    slow.free.set()
    closing.join(PATIENCE_S)
    assert slow.indices == list(range(10))


def test_a_stop_interrupts_a_consumer_that_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.results.LAST_S", 0.05)
    stuck = Remembers(held=True)
    results = Results()
    results.subscribe(stuck)
    results.put(run_of(10))
    assert stuck.entered.wait(PATIENCE_S)
    assert results.close(long_ago) == []
    assert stuck.interrupted
    (report,) = results.report()
    assert (report.taken, report.failed) == (0, True)


def test_a_consumer_that_cannot_be_interrupted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Remembers):
        def interrupt(self) -> None: ...

    monkeypatch.setattr("pipelines.results.LAST_S", 0.01)
    monkeypatch.setattr("pipelines.results.INTERRUPT_S", 0.01)
    deaf = Deaf(held=True)
    results = Results()
    results.subscribe(deaf)
    results.put(run_of(2))
    assert deaf.entered.wait(PATIENCE_S)
    assert results.close(long_ago) == ["consume:remembers"]
    deaf.free.set()


def test_consumers_come_and_go() -> None:
    early, late = Remembers(), Remembers()
    with fanout(early) as (results, _):
        results.put(run_of(3))
        results.subscribe(late)
        results.put([result(3)])
        results.unsubscribe(early)
        results.put([result(4)])
        with pytest.raises(ValueError, match="is not subscribed"):
            results.unsubscribe(early)
    assert early.indices == [0, 1, 2, 3]
    assert late.indices == [3, 4]
    assert early.closed == 1


def test_a_plain_function_is_a_consumer() -> None:
    got: list[int] = []
    with fanout(Callback(lambda r: got.append(r.frame.index), "mine")) as (results, _):
        results.put(run_of(4))
        assert results.report()[0].name == "mine"
    assert got == [0, 1, 2, 3]


def test_results_that_a_stop_leaves_are_a_failure_of_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.results.LAST_S", 0.01)
    slow, lost = Remembers(held=True), []
    results = Results(lambda consumer, error: lost.append(str(error)))
    results.subscribe(slow)
    results.put(run_of(1))
    assert slow.entered.wait(PATIENCE_S)
    results.put(run_of(5))
    monkeypatch.setattr(Remembers, "interrupt", lambda self: self.free.set())  # a reader that reads, but too slowly
    assert results.close(long_ago) == []
    assert lost == ["remembers: 5 results were not taken before the stop"]
    (report,) = results.report()
    assert (report.taken, report.missed, report.failed) == (1, 5, True)


def test_a_consumer_that_ends_its_thread_holds_no_lane() -> None:
    def leaving(result: Result) -> None:
        raise SystemExit(3)

    with fanout(Callback(leaving), capacity=1) as (results, lost):
        results.put(run_of(3))
        results.wait_for_room(threading.Event())
    assert lost == ["leaving: leaving failed: SystemExit: 3"]


def test_a_consumer_may_unsubscribe_itself_and_another() -> None:
    seen: list[int] = []
    other = Remembers()

    def once(result: Result) -> None:
        seen.append(result.frame.index)
        if result.frame.index == 0:
            results.unsubscribe(callback)
            results.unsubscribe(other)

    callback = Callback(once)
    with fanout(callback, other) as (results, lost):
        results.put(run_of(1))
    assert (seen, lost) == ([0], [])


def test_nothing_is_subscribed_after_the_close() -> None:
    results = Results()
    assert results.close(running) == []
    with pytest.raises(Stopped):
        results.subscribe(Remembers())


def test_a_consumer_has_its_time_from_the_stop_on() -> None:
    slow = Remembers(held=True)
    results = Results()
    results.subscribe(slow)
    results.put(run_of(3))
    asked: list[float] = []

    def stop_s() -> float:
        asked.append(time.monotonic())
        if len(asked) == 3:
            slow.free.set()
        return asked[0]

    assert results.close(stop_s) == []
    assert slow.indices == [0, 1, 2]


def test_an_interrupt_that_fails_is_a_failure_of_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clumsy(Remembers):
        def interrupt(self) -> None:
            super().interrupt()
            raise OSError("no pipe")

    monkeypatch.setattr("pipelines.results.LAST_S", 0.01)
    clumsy, other = Clumsy(held=True), Remembers()
    results = Results()
    for consumer in (clumsy, other):
        results.subscribe(consumer)
    results.put(run_of(2))
    assert clumsy.entered.wait(PATIENCE_S)
    assert results.close(long_ago) == []
    assert results.failed == (clumsy,)
    assert other.indices == [0, 1]
