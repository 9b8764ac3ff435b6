"""The ledger and its figures, on a clock that is moved."""

from __future__ import annotations

import json
import logging
import math
import random
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.frame import CAUSES, STAGES, Frame, Picture, Prediction, Result, Status, StreamInfo, Trace
from pipelines.monitor import QUIET_S, Histogram, LatencyMonitor, StreamLedger
from tests.clips import grey

BUDGET_S = 0.05


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> LatencyMonitor:
    return LatencyMonitor(BUDGET_S, clock)


@pytest.fixture
def ledger(monitor: LatencyMonitor) -> StreamLedger:
    return monitor.open("door", live=True)


def frame(index: int, arrived_s: float, total_s: float = 0.01) -> Frame:
    """A frame whose stages take 1 to 6 parts of the total, in the order of STAGES."""
    parts = [total_s * n / 21 for n in (1, 2, 3, 4, 5, 6)]
    stamps = [arrived_s + sum(parts[:k]) for k in range(7)]
    trace = Trace(stamps[0], stamps[1], stamps[2], stamps[3], stamps[4], stamps[4], stamps[5], arrived_s + total_s)
    return Frame("door", 0, index, Picture(*grey(16, (4, 4))), None, StreamInfo(), trace)


def end(ledger: StreamLedger, status: Status, arrived_s: float, total_s: float = 0.01, cause: str | None = None) -> None:
    """Capture a frame and end it."""
    index = ledger.capture(arrived_s)
    prediction = Prediction({}, 0, 1) if status == "ok" else None
    ledger.end(Result(frame(index, arrived_s, total_s), status, prediction, cause))


class TestHistogram:
    @pytest.mark.parametrize(("q", "wanted"), [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (1.0, 1.0), (0.001, 0.001)])
    def test_quantiles_of_one_to_a_thousand_ms(self, q: float, wanted: float) -> None:
        histogram = Histogram()
        values = [k / 1000 for k in range(1, 1001)]
        random.Random(1).shuffle(values)
        for value in values:
            histogram.add(value)
        found = histogram.quantile(q)
        assert found is not None
        assert abs(found - wanted) < 1e-3
        assert found == pytest.approx(wanted, rel=6e-4)

    def test_in_milliseconds(self) -> None:
        histogram = Histogram()
        for k in range(1, 1001):
            histogram.add(k / 1000)
        figures = histogram.as_ms()
        assert figures["max"] == 1000
        assert figures["count"] == 1000
        assert figures["p50"] == pytest.approx(500, abs=1)
        assert figures["p95"] == pytest.approx(950, abs=1)
        assert figures["p99"] == pytest.approx(990, abs=1)

    def test_without_values(self) -> None:
        assert Histogram().as_ms() == {"p50": None, "p95": None, "p99": None, "max": None, "count": 0}

    @pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 1e-6, 0.04, 3600.0, 1e6])
    def test_one_value(self, value: float) -> None:
        histogram = Histogram()
        histogram.add(value)
        for q in (0.01, 0.5, 0.99, 1):
            found = histogram.quantile(q)
            assert found is not None
            assert found <= max(value, 0)
            assert found == pytest.approx(max(value, 0), rel=6e-4, abs=1.1e-6)

    def test_no_quantile_is_above_the_maximum(self) -> None:
        rng = random.Random(3)
        histogram = Histogram()
        for _ in range(500):
            histogram.add(rng.expovariate(50))
        quantiles = [histogram.quantile(q / 100) for q in range(1, 101)]
        assert quantiles == sorted(quantiles)  # type: ignore[type-var]
        assert quantiles[-1] <= histogram.max_s  # type: ignore[operator]

    def test_merging_is_adding_all(self) -> None:
        one, other, both = Histogram(), Histogram(), Histogram()
        for k in range(1, 301):
            (one if k % 3 else other).add(k / 1000)
            both.add(k / 1000)
        one.merge(other)
        assert one.as_ms() == both.as_ms()

    def test_memory_does_not_grow_with_values(self) -> None:
        rng = random.Random(5)
        histogram = Histogram()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(50_000):
                histogram.add(rng.uniform(0.001, 10))
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 10_000


class TestLedger:
    def test_indices_count_captured_frames(self, ledger: StreamLedger) -> None:
        assert [ledger.capture(1.0) for _ in range(3)] == [0, 1, 2]
        assert ledger.in_flight == 3

    def test_each_end_has_its_account(self, ledger: StreamLedger) -> None:
        end(ledger, "ok", 1.0)
        end(ledger, "ok", 1.1, total_s=0.06)
        end(ledger, "failed", 1.2)
        for cause in CAUSES:
            end(ledger, "dropped", 1.3, cause=cause)
        ledger.capture(1.4)
        report = ledger.report()
        assert report["captured"] == 9
        assert report["shown"] == 2
        assert report["late"] == 1
        assert report["failed"] == 1
        assert report["dropped"] == dict.fromkeys(("overload", "deadline", "corrupt", "skipped", "shutdown"), 1)
        assert ledger.in_flight == 1

    def test_goodput_leaves_corrupt_and_skipped_frames_out(self, ledger: StreamLedger) -> None:
        for total_s in (0.01, 0.02, 0.049, 0.051):
            end(ledger, "ok", 1.0, total_s)
        for cause in ("overload", "deadline", "corrupt", "skipped", "skipped", "shutdown"):
            end(ledger, "dropped", 1.0, cause=cause)
        end(ledger, "failed", 1.0)
        assert ledger.report()["goodput"] == pytest.approx(3 / 8)

    def test_exactly_the_budget_is_in_time(self, ledger: StreamLedger) -> None:
        index = ledger.capture(0.0)
        one = frame(index, 0.0)
        one.trace.shown_s = BUDGET_S
        ledger.end(Result(one, "ok", Prediction({}, 0, 1)))
        assert ledger.report()["late"] == 0

    def test_a_file_is_never_late(self, monitor: LatencyMonitor) -> None:
        file = monitor.open("file", live=False)
        end(file, "ok", 1.0, total_s=30)
        assert file.report()["late"] == 0
        assert file.report()["goodput"] == 1

    def test_the_rate_is_over_the_whole_time(self, ledger: StreamLedger) -> None:
        for k in range(100):
            end(ledger, "ok", k / 25, total_s=0.04)
        assert ledger.report()["fps"] == pytest.approx(25)

    def test_skipped_by_the_window(self, ledger: StreamLedger) -> None:
        index = ledger.capture(1.0)
        ledger.end(Result(frame(index, 1.0), "ok", Prediction({}, 0, 1)), skipped_by_window=True)
        end(ledger, "ok", 1.1)
        report = ledger.report()
        assert (report["shown"], report["window_skipped"]) == (2, 1)

    def test_counts_add_up_between_threads(self, ledger: StreamLedger) -> None:
        kinds: list[tuple[Status, str | None]] = [("ok", None), ("failed", None), ("dropped", "overload")]

        def work(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(500):
                status, cause = rng.choice(kinds)
                end(ledger, status, 1.0, cause=cause)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert 0 <= ledger.in_flight <= 4
            report = ledger.report()
            ended = report["shown"] + report["failed"] + sum(report["dropped"].values())
            assert 0 <= report["captured"] - ended <= 4, "a report is of one moment"
        for thread in threads:
            thread.join()
        assert ledger.captured == 2000
        assert ledger.in_flight == 0

    def test_a_glance(self, ledger: StreamLedger) -> None:
        for k in range(100):
            end(ledger, "ok", k / 25, total_s=0.001 * (k + 1))
        glance = ledger.glance()
        assert (glance.stream, glance.live, glance.captured, glance.shown, glance.late) == ("door", True, 100, 100, 50)
        assert glance.p99_ms == pytest.approx(99)
        assert glance.p50_ms == pytest.approx(50, abs=1.1)
        assert glance.fps == pytest.approx(25, rel=0.03)
        assert glance.silent_s is None

    def test_a_glance_at_nothing(self, ledger: StreamLedger) -> None:
        glance = ledger.glance()
        assert (glance.fps, glance.p50_ms, glance.p99_ms) == (0, None, None)


class TestOutages:
    def test_one_that_ended_and_one_that_goes_on(self, ledger: StreamLedger, clock: Clock) -> None:
        ledger.interrupted(995.0, "gone")
        clock.now_s = 1010.0
        assert ledger.glance().silent_s == pytest.approx(15)
        ledger.interrupted(995.0, "refused")
        clock.now_s = 1012.5
        ledger.resumed()
        assert ledger.glance().silent_s is None
        ledger.interrupted(1020.0, "gone")
        clock.now_s = 1024.0
        report = ledger.report()
        assert [o["seconds"] for o in report["outages"]] == [17.5, 4]
        assert report["reconnects"] == 1
        for outage in report["outages"]:
            assert outage["at"].endswith("Z")
            assert len(outage["at"]) == len("2026-11-30T03:00:00.123Z")

    def test_the_time_of_day_is_that_of_the_beginning(self, ledger: StreamLedger, clock: Clock) -> None:
        from datetime import UTC, datetime

        ledger.interrupted(clock.now_s - 3600, "gone")
        at = datetime.fromisoformat(ledger.report()["outages"][0]["at"])
        assert abs((datetime.now(UTC) - at).total_seconds() - 3600) < 5


class TestSaid:
    @pytest.fixture
    def said(self) -> Iterator[list[str]]:
        """What was said about streams, as it is said."""
        logger, lines = logging.getLogger("watchline.stream"), list[str]()
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        yield lines
        logger.removeHandler(handler)

    def test_decode_errors_are_said_at_most_every_ten_seconds_and_all_counted(
        self, ledger: StreamLedger, clock: Clock, said: list[str]
    ) -> None:
        for _ in range(1000):
            ledger.decode_error("a packet could not be decoded")
            clock.now_s += 0.025
        assert ledger.report()["decode_errors"] == 1000
        assert len(said) == math.ceil(25 / QUIET_S)
        assert said[0].endswith("so far: 1)")

    def test_once_means_once(self, ledger: StreamLedger, said: list[str]) -> None:
        for _ in range(3):
            ledger.once("range", "the range is unknown")
            ledger.once("size", "the size has changed")
        assert said == ["door: the range is unknown", "door: the size has changed"]

    def test_a_fault_is_said_and_kept(self, ledger: StreamLedger, said: list[str]) -> None:
        ledger.fault("disk full")
        assert ledger.faults == ["disk full"]
        assert ledger.report()["errors"] == ["disk full"]
        assert said == ["door: disk full"]


STREAM_KEYS = {
    "captured",
    "shown",
    "dropped",
    "failed",
    "late",
    "decode_errors",
    "window_skipped",
    "reconnects",
    "outages",
    "fps",
    "live",
}
FIGURES = {"p50", "p95", "p99", "max", "count"}


def _strict(report: dict[str, Any]) -> dict[str, Any]:
    """The report as another program reads it: no NaN, no infinity."""
    text = json.dumps(report, allow_nan=False)
    return json.loads(text)  # type: ignore[no-any-return]


class TestReport:
    @pytest.mark.parametrize("frames", [0, 1, 50])
    def test_has_the_keys_that_the_design_promises(self, monitor: LatencyMonitor, ledger: StreamLedger, frames: int) -> None:
        for k in range(frames):
            end(ledger, "ok", k / 25)
        report = _strict(monitor.report())
        assert set(report) >= {
            "streams",
            "latency_ms",
            "batch_sizes",
            "goodput",
            "throughput_fps",
            "queue_wait_ms",
            "device",
        }
        assert set(report["streams"]) == {"door"}
        assert set(report["streams"]["door"]) >= STREAM_KEYS
        assert set(report["streams"]["door"]["dropped"]) == set(CAUSES)
        assert set(report["latency_ms"]) == set(STAGES)
        assert all(set(figures) == FIGURES for figures in report["latency_ms"].values())
        assert set(report["queue_wait_ms"]) == {"p50", "p99"}
        assert "use" in report["device"]
        assert report["latency_ms"]["total"]["count"] == frames

    def test_without_a_stream(self, monitor: LatencyMonitor) -> None:
        report = _strict(monitor.report())
        assert report["streams"] == {}
        assert report["goodput"] is None
        assert report["throughput_fps"] is None

    def test_each_stage_has_its_own_time(self, monitor: LatencyMonitor, ledger: StreamLedger) -> None:
        end(ledger, "ok", 5.0, total_s=0.021)
        figures = monitor.report()["latency_ms"]
        wanted = dict(zip(("decode", "queue", "preprocess", "infer", "render", "sink"), range(1, 7), strict=True))
        assert {s: round(figures[s]["max"]) for s in wanted} == wanted
        assert figures["total"]["max"] == pytest.approx(21)

    def test_throughput_is_from_the_first_arrival_to_the_last_sink(self, monitor: LatencyMonitor) -> None:
        for name, begin in (("a", 10.0), ("b", 12.0)):
            ledger = monitor.open(name, live=False)
            for k in range(100):
                end(ledger, "ok", begin + k / 50, total_s=0.02)
        assert monitor.report()["throughput_fps"] == pytest.approx(200 / 4, rel=0.01)

    def test_goodput_of_all_cameras(self, monitor: LatencyMonitor) -> None:
        for name, late in (("a", 10), ("b", 30)):
            ledger = monitor.open(name, live=True)
            for k in range(100):
                end(ledger, "ok", k / 25, total_s=0.06 if k < late else 0.01)
        assert monitor.report()["goodput"] == pytest.approx(160 / 200)

    @pytest.mark.parametrize("cameras", [1, 2])
    def test_a_camera_that_showed_nothing_counts(self, monitor: LatencyMonitor, cameras: int) -> None:
        """It is the one that the promise was broken to; what a file beside it did says nothing."""
        file, blind, good = (monitor.open(name, live=name != "file") for name in ("file", "blind", "good"))
        for k in range(50):
            end(file, "ok", k / 25)
            end(blind, "dropped", k / 25, cause="deadline")
            if cameras == 2:
                end(good, "ok", k / 25)
        assert monitor.report()["goodput"] == (cameras - 1) / 2

    def test_batches_and_the_device(self, monitor: LatencyMonitor, clock: Clock) -> None:
        for size in (16, 4, 16, 2):
            clock.now_s += 0.1
            monitor.batch(size, 0.05)
        report = monitor.report()
        assert list(report["batch_sizes"].items()) == [("2", 1), ("4", 1), ("16", 2)]
        assert report["device"]["use"] == pytest.approx(0.2 / 0.35, abs=1e-3)

    def test_a_device_is_never_busier_than_the_time(self, monitor: LatencyMonitor, clock: Clock) -> None:
        for _ in range(10):
            clock.now_s += 0.01
            monitor.batch(8, 0.5)
        assert monitor.report()["device"]["use"] == 1

    def test_a_long_run_costs_as_much_memory_as_a_short_one(self, monitor: LatencyMonitor, ledger: StreamLedger) -> None:
        rng = random.Random(7)

        def play(frames: int) -> None:
            for k in range(frames):
                end(ledger, "ok", k / 25, total_s=rng.uniform(0.005, 0.1))
                ledger.decode_error("bad")
                monitor.batch(1 + k % 32, 0.01)

        logging.getLogger("watchline.stream").setLevel(logging.CRITICAL)
        try:
            play(8_000)
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            play(4_000)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            logging.getLogger("watchline.stream").setLevel(logging.NOTSET)
        assert grown < 200_000

    def test_a_thousand_files_that_have_ended_cost_no_more_than_their_figures(self, monitor: LatencyMonitor) -> None:
        def play(k: int) -> dict[str, Any]:
            ledger = monitor.open(f"file {k}", live=False)
            for n in range(130):
                end(ledger, "ok", n / 25)
            before = ledger.report()
            ledger.settle()
            ledger.settle()
            assert ledger.report() == before
            return before

        play(0)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for k in range(1, 21):
                play(k)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 20 * 10_000
