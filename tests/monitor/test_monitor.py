"""The figures of all streams together, on a manual clock."""

from __future__ import annotations

import json
import logging
import random
import threading
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from pipelines.frame import CAUSES, STAGES
from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import ConsumerReport, StreamReport
from pipelines.watch import PacketCounts
from tests.monitor.made import Clock, end

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
        report = _strict(monitor.report().as_dict())
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
        report = _strict(monitor.report().as_dict())
        assert report["streams"] == {}
        assert report["goodput"] is None
        assert report["throughput_fps"] is None

    def test_each_stage_has_its_own_time(self, monitor: LatencyMonitor, ledger: StreamLedger) -> None:
        end(ledger, "ok", 5.0, total_s=0.021)
        figures = monitor.report().latency_ms
        wanted = dict(zip(("decode", "queue", "preprocess", "infer", "render", "sink"), range(1, 7), strict=True))
        assert {s: round(figures[s].max or 0) for s in wanted} == wanted
        assert figures["total"].max == pytest.approx(21)

    def test_throughput_is_from_the_first_arrival_to_the_last_sink(self, monitor: LatencyMonitor) -> None:
        for name, begin in (("a", 10.0), ("b", 12.0)):
            ledger = monitor.open(name, live=False)
            for k in range(100):
                end(ledger, "ok", begin + k / 50, total_s=0.02)
        assert monitor.report().throughput_fps == pytest.approx(200 / 4, rel=0.01)

    def test_goodput_of_all_cameras(self, monitor: LatencyMonitor) -> None:
        for name, late in (("a", 10), ("b", 30)):
            ledger = monitor.open(name, live=True)
            for k in range(100):
                end(ledger, "ok", k / 25, total_s=0.06 if k < late else 0.01)
        assert monitor.report().goodput == pytest.approx(160 / 200)

    @pytest.mark.parametrize("cameras", [1, 2])
    def test_a_camera_that_showed_nothing_counts(self, monitor: LatencyMonitor, cameras: int) -> None:
        """The promise to it was broken. A file beside it does not count."""
        file, blind, good = (monitor.open(name, live=name != "file") for name in ("file", "blind", "good"))
        for k in range(50):
            end(file, "ok", k / 25)
            end(blind, "dropped", k / 25, cause="deadline")
            if cameras == 2:
                end(good, "ok", k / 25)
        assert monitor.report().goodput == (cameras - 1) / 2

    def test_batches_and_the_device(self, monitor: LatencyMonitor, clock: Clock) -> None:
        for size in (16, 4, 16, 2):
            clock.now_s += 0.1
            monitor.batch(size, 0.05)
        report = monitor.report()
        assert list(report.batch_sizes.items()) == [(2, 1), (4, 1), (16, 2)]
        assert report.device.use == pytest.approx(0.2 / 0.35, abs=1e-3)

    def test_a_device_is_never_busier_than_the_time(self, monitor: LatencyMonitor, clock: Clock) -> None:
        for _ in range(10):
            clock.now_s += 0.01
            monitor.batch(8, 0.5)
        assert monitor.report().device.use == 1

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
        def play(k: int) -> StreamReport:
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


class TestStreamsThatComeAndGo:
    def test_a_removed_stream_keeps_its_final_figures_and_its_name_comes_back(
        self, monitor: LatencyMonitor, ledger: StreamLedger, clock: Clock
    ) -> None:
        end(ledger, "ok", 1.0, total_s=0.04)
        end(ledger, "dropped", 1.1, cause="overload")
        ledger.packets(PacketCounts(received=10, lost=2))
        ledger.interrupted(clock.now_s - 5, "gone")
        ledger.resumed()
        figures = ledger.report()
        monitor.retire(ledger)
        monitor.retire(ledger)
        again = monitor.open("door", live=True)
        end(again, "failed", 2.0)
        report = monitor.report()
        # The system's clock runs on, so the time of day of the outage may differ by a millisecond.
        assert [replace(s, outages=()) for s in report.removed] == [replace(figures, outages=())]
        assert [o.seconds for o in report.removed[0].outages] == [5.0]
        assert report.streams["door"].failed == 1
        removed = _strict(report.as_dict())["removed"]
        assert removed == [{"name": "door"} | _strict(report.removed[0].as_dict())]
        assert removed[0]["packets"]["lost"] == removed[0]["reconnects"] + 1 == 2

    def test_nothing_is_said_of_removed_streams_and_consumers_unless_there_are_some(self, monitor: LatencyMonitor) -> None:
        monitor.open("door", live=True)
        assert not monitor.report().as_dict().keys() & {"removed", "consumers"}
        consumers = (ConsumerReport("web", "newest", taken=3, skipped=4, missed=0, failed=False),)
        (figures,) = replace(monitor.report(), consumers=consumers).as_dict()["consumers"]
        assert figures == {"name": "web", "policy": "newest", "taken": 3, "skipped": 4, "missed": 0, "failed": False}

    def test_frames_of_removed_streams_count_in_the_whole(self, monitor: LatencyMonitor) -> None:
        for name, late in (("a", 10), ("b", 30)):
            ledger = monitor.open(name, live=True)
            for k in range(100):
                end(ledger, "ok", k / 25, total_s=0.06 if k < late else 0.01)
            before = monitor.report()
            monitor.retire(ledger)
            after = monitor.report()
            assert (after.goodput, after.throughput_fps, after.latency_ms) == (
                before.goodput,
                before.throughput_fps,
                before.latency_ms,
            )
            assert (after.captured, after.shown) == (before.captured, before.shown)
        assert monitor.report().goodput == 0.8

    @pytest.mark.parametrize(("budget_s", "late"), [(None, 1), (0.03, 2), (0.1, 0)])
    def test_a_stream_can_have_a_budget_of_its_own(self, monitor: LatencyMonitor, budget_s: float | None, late: int) -> None:
        ledger = monitor.open("door", live=True, budget_s=budget_s)
        for total_s in (0.02, 0.04, 0.06):
            end(ledger, "ok", 1.0, total_s)
        assert ledger.report().late == late

    def test_a_name_that_is_opened_twice_loses_no_frame(self, monitor: LatencyMonitor, ledger: StreamLedger) -> None:
        end(ledger, "ok", 1.0)
        ledger.capture(1.1)
        end(monitor.open("door", live=True), "ok", 2.0)
        end(ledger, "ok", 1.2)  # An outcome that comes late disturbs nobody.
        report = monitor.report()
        assert [(s.captured, s.shown, s.in_flight) for s in report.every_stream()] == [(2, 1, 1), (1, 1, 0)]

    def test_the_ledger_adds_up_while_streams_come_and_go(self, monitor: LatencyMonitor) -> None:
        """In every report the frames of all streams add up, and no frame is counted twice or missed."""
        done = threading.Event()
        ended = 0

        def work() -> None:
            nonlocal ended
            rng = random.Random(2)
            for k in range(60):
                ledger = monitor.open(f"cam{k % 3}", live=True)
                for _ in range(20):
                    end(ledger, "ok" if rng.random() < 0.8 else "failed", 1.0)
                    ended += 1
                monitor.retire(ledger)
            done.set()

        worker = threading.Thread(target=work)
        worker.start()
        while not done.is_set():
            before = ended
            report = monitor.report()
            assert all(0 <= s.in_flight <= 1 for s in report.every_stream())
            assert before <= report.captured <= ended + 1
        worker.join()
        assert monitor.report().captured == 60 * 20

    def test_five_hundred_removed_streams_need_little_memory(self, monitor: LatencyMonitor, clock: Clock) -> None:
        def play(k: int) -> None:
            ledger = monitor.open(f"camera {k % 7}", live=True)
            for n in range(3):
                end(ledger, "ok", n / 25)
            ledger.packets(PacketCounts(received=10, lost=k))
            ledger.interrupted(clock.now_s, "gone")
            ledger.resumed()
            monitor.retire(ledger)

        logging.getLogger("watchline.stream").setLevel(logging.CRITICAL)
        tracemalloc.start()
        try:
            play(0)
            before = tracemalloc.get_traced_memory()[0]
            for k in range(500):
                play(k)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
            logging.getLogger("watchline.stream").setLevel(logging.NOTSET)
        assert grown < 1_000_000
