"""The ledger of a stream, on a manual clock."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from pipelines.frame import CAUSES, Cause, Prediction, Result, Status
from pipelines.monitor.ledger import QUIET_S, StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from tests.monitor.made import BUDGET_S, Clock, end, frame


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
        assert report.captured == 9
        assert report.shown == 2
        assert report.late == 1
        assert report.failed == 1
        assert report.dropped == dict.fromkeys(("overload", "deadline", "corrupt", "skipped", "shutdown"), 1)
        assert ledger.in_flight == 1

    def test_goodput_leaves_corrupt_and_skipped_frames_out(self, ledger: StreamLedger) -> None:
        for total_s in (0.01, 0.02, 0.049, 0.051):
            end(ledger, "ok", 1.0, total_s)
        for cause in ("overload", "deadline", "corrupt", "skipped", "skipped", "shutdown"):
            end(ledger, "dropped", 1.0, cause=cause)
        end(ledger, "failed", 1.0)
        assert ledger.report().goodput == pytest.approx(3 / 8)

    def test_exactly_the_budget_is_in_time(self, ledger: StreamLedger) -> None:
        index = ledger.capture(0.0)
        one = frame(index, 0.0)
        one.trace.shown_s = BUDGET_S
        ledger.end(Result(one, "ok", Prediction({}, 0, 1)))
        assert ledger.report().late == 0

    def test_a_file_is_never_late(self, monitor: LatencyMonitor) -> None:
        file = monitor.open("file", live=False)
        end(file, "ok", 1.0, total_s=30)
        assert file.report().late == 0
        assert file.report().goodput == 1

    def test_the_rate_is_over_the_whole_time(self, ledger: StreamLedger) -> None:
        for k in range(100):
            end(ledger, "ok", k / 25, total_s=0.04)
        assert ledger.report().fps == pytest.approx(25)

    def test_skipped_by_the_window(self, ledger: StreamLedger) -> None:
        index = ledger.capture(1.0)
        ledger.end(Result(frame(index, 1.0), "ok", Prediction({}, 0, 1)), skipped_by_window=True)
        end(ledger, "ok", 1.1)
        report = ledger.report()
        assert (report.shown, report.window_skipped) == (2, 1)

    def test_counts_add_up_between_threads(self, ledger: StreamLedger) -> None:
        kinds: list[tuple[Status, Cause | None]] = [("ok", None), ("failed", None), ("dropped", "overload")]

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
            ended = report.shown + report.failed + sum(report.dropped.values())
            assert 0 <= report.captured - ended <= 4, "a report is of one moment"
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
        assert glance.recent_fps == pytest.approx(25, rel=0.03)
        assert glance.silent_s is None

    def test_a_glance_at_nothing(self, ledger: StreamLedger) -> None:
        glance = ledger.glance()
        assert (glance.recent_fps, glance.p50_ms, glance.p99_ms) == (0, None, None)


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
        assert [o.seconds for o in report.outages] == [17.5, 4]
        assert report.reconnects == 1
        for outage in report.outages:
            assert outage.at.endswith("Z")
            assert len(outage.at) == len("2026-11-30T03:00:00.123Z")

    def test_the_time_of_day_is_that_of_the_beginning(self, ledger: StreamLedger, clock: Clock) -> None:
        ledger.interrupted(clock.now_s - 3600, "gone")
        at = datetime.fromisoformat(ledger.report().outages[0].at)
        assert abs((datetime.now(UTC) - at).total_seconds() - 3600) < 5


class TestSaid:
    @pytest.fixture
    def said(self) -> Iterator[list[str]]:
        """The log lines about streams."""
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
        assert ledger.report().decode_errors == 1000
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
        assert ledger.report().errors == ("disk full",)
        assert said == ["door: disk full"]
