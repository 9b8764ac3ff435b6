"""The table of cameras, and the summary of a run."""

from __future__ import annotations

import pytest
from rich.console import Console

from app.terminal.console import camera_table, summary
from pipelines.clock import wall_s
from pipelines.frame import NOTHING, CameraClock, Frame, Prediction, Result, StreamInfo, Trace
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import EngineReport, RunReport
from pipelines.watch import PacketCounts

AGE_S = 0.080


def _watched(clock: CameraClock) -> LatencyMonitor:
    """A camera that has shown one frame, 80 ms old by its own clock and 30 ms by ours."""
    monitor = LatencyMonitor(0.05)
    ledger = monitor.open("door", live=True)
    ledger.capture(100.0)
    trace = Trace(100.0, 100.001, 100.002, 100.003, 100.004, 100.005, 100.006, 100.030)
    frame = Frame("door", 0, 0, NOTHING, 0.0, StreamInfo(camera_clock=clock), trace, captured_s=wall_s(100.030) - AGE_S)
    ledger.end(Result(frame, "ok", Prediction({}, 1, 1)))
    return monitor


def _table(monitor: LatencyMonitor) -> str:
    console = Console(width=120)
    with console.capture() as said:
        console.print(camera_table([ledger.glance() for ledger in monitor.ledgers]))
    return said.get()


def _summary(monitor: LatencyMonitor) -> str:
    return "\n".join(summary(_report(monitor), ()))


def _report(monitor: LatencyMonitor) -> RunReport:
    return RunReport(monitor.report(), EngineReport("probe", "probe", "exact", "cpu"), 50.0, None, None, {})


@pytest.mark.parametrize(("clock", "why"), [("same host", "on this host"), ("trusted", "trusted")])
def test_the_age_by_a_clock_that_can_be_compared(clock: CameraClock, why: str) -> None:
    monitor = _watched(clock)
    assert "camera age ms" in _table(monitor)
    assert " 80.0 " in _table(monitor)
    assert f"by its own clock ({why})" in _summary(monitor)
    stream = monitor.report().streams["door"]
    assert stream.camera_clock == clock
    assert stream.camera_age_ms is not None
    assert stream.camera_age_ms.p50 == pytest.approx(80, abs=1)
    assert stream.latency_ms.p50 == pytest.approx(30, abs=0.1)


def test_no_age_by_a_clock_that_cannot() -> None:
    monitor = _watched("not compared")
    assert "age" not in _table(monitor)
    assert "clock" not in _summary(monitor)
    stream = monitor.report().streams["door"]
    assert (stream.camera_clock, stream.camera_age_ms) == ("not compared", None)


def test_packets_that_were_lost_are_in_the_summary_and_add_up_over_sessions() -> None:
    monitor = LatencyMonitor(0.05)
    ledger = monitor.open("door", live=True)
    assert ledger.report().packets is None
    ledger.packets(PacketCounts(received=100, lost=2, reordered=1))
    ledger.packets(PacketCounts(received=50, lost=1, duplicated=4))
    assert ledger.report().as_dict()["packets"] == {"received": 150, "lost": 3, "reordered": 1, "duplicated": 4}
    assert "door: 3 packets lost" in _summary(monitor)


def test_one_of_a_thing_is_one_thing_and_streams_that_gave_nothing_do_not_count() -> None:
    monitor = _watched("not compared")
    ledger = monitor.ledgers[0]
    ledger.decode_error("bad packet")
    ledger.interrupted(100.0, "gone")
    ledger.packets(PacketCounts(received=1, lost=1))
    said = _summary(monitor)
    assert "1 of 1 frames shown from 1 stream" in said
    assert "1 decode error, 1 outage, 1 packet lost" in said
    monitor.open("nope", live=False)
    assert "1 of 1 frames shown from 1 of 2 streams" in summary(_report(monitor), ())[0]
