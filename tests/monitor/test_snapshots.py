"""Snapshots: the parts of a run, merged, give the figures of the whole run."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipelines.frame import CAUSES, Status
from pipelines.monitor.histogram import Distribution, Histogram
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import ConsumerReport, LatencyFigures, SessionReport
from pipelines.monitor.snapshots import Span, merged
from pipelines.watch import PacketCounts
from tests.monitor.made import BUDGET_S, Clock, end

EVENTS = 2000


class Run:
    """Two cameras and a file with random latencies, outcomes and batches; the same seed gives the same frames."""

    def __init__(self, events: Sequence[int], clock: Clock) -> None:
        self.monitor = LatencyMonitor(BUDGET_S, clock)
        ledgers = [self.monitor.open(name, live=name != "file") for name in ("door", "yard", "file")]
        for k in events:
            rng = random.Random(k)
            ledger = ledgers[k % 3]
            statuses: tuple[Status, ...] = ("ok", "dropped", "failed")
            status = rng.choices(statuses, (20, 3, 1))[0]
            cause = rng.choice(CAUSES) if status == "dropped" else None
            end(ledger, status, k / 25, rng.lognormvariate(-3.5, 0.8), cause)
            ledger.packets(PacketCounts(received=3, lost=k % 7 == 0))
            clock.now_s += 0.04
            self.monitor.batch(rng.choice((1, 2, 8)), 0.01)


def _without_device_use(report: SessionReport) -> SessionReport:
    return replace(report, device=replace(report.device, use=0.0))


@pytest.mark.parametrize("apart", [False, True], ids=["one after the other", "side by side"])
def test_two_half_runs_give_the_figures_of_the_whole(clock: Clock, apart: bool) -> None:
    """Counts, percentiles of every stage and stream, goodput, rates and batch sizes; two processes come through pickle."""
    whole = Run(range(EVENTS), Clock()).monitor.report()
    halves = (range(0, EVENTS, 2), range(1, EVENTS, 2)) if apart else (range(EVENTS // 2), range(EVENTS // 2, EVENTS))
    snapshots = [pickle.loads(pickle.dumps(Run(half, Clock()).monitor.snapshot())) for half in halves]
    # All are of this machine: its wall clock runs on between two snapshots, the manual clock does not.
    together = merged(replace(s, wall_offset_s=0.0) for s in snapshots).report()
    assert together.latency_ms["total"].count == whole.shown - whole.streams["file"].shown > 1000
    assert together.batch_sizes == whole.batch_sizes
    assert _without_device_use(together) == _without_device_use(whole)
    assert together.device.use == pytest.approx(whole.device.use, rel=0.01)
    assert together.as_dict().keys() == whole.as_dict().keys()


def test_machines_with_other_monotonic_clocks(monitor: LatencyMonitor) -> None:
    """The second machine was started 1000 s later, so its monotonic clock shows less at the same time."""
    ledger = monitor.open("door", live=True)
    for k in range(100):
        end(ledger, "ok", k / 25)
    here = monitor.snapshot()
    there = replace(here.shifted(here.wall_offset_s + 1000.0))
    assert there.streams[0].span.first_s == pytest.approx(-1000.0, abs=1e-3)
    report = merged([here, there]).report()
    assert report.throughput_fps == pytest.approx(2 * (here.report().throughput_fps or 0.0), rel=1e-3)


def test_removed_streams_of_all_parts_are_listed(monitor: LatencyMonitor) -> None:
    for name in ("door", "yard"):
        ledger = monitor.open(name, live=True)
        end(ledger, "ok", 1.0)
        monitor.retire(ledger)
    part = monitor.snapshot()
    report = merged([part, part]).report()
    assert [s.name for s in report.removed] == ["door", "yard", "door", "yard"]
    assert (report.captured, report.shown, report.goodput) == (4, 4, 1.0)


@pytest.mark.parametrize("ended_first", [True, False])
def test_an_ended_stream_is_listed_apart_from_another_of_its_name(monitor: LatencyMonitor, ended_first: bool) -> None:
    """Percentiles of two streams cannot be computed from figures, so both are given, and their frames count."""
    ledger = monitor.open("door", live=True)
    end(ledger, "ok", 1.0)
    running = monitor.snapshot()
    ledger.settle()
    parts = [monitor.snapshot(), running] if ended_first else [running, monitor.snapshot()]
    whole = merged(parts)
    assert [s.latency is not None for s in whole.streams] == [True]
    assert [s.name for s in whole.removed] == ["door"]
    assert whole.report().captured == 2


def test_consumers_of_one_name_are_added(monitor: LatencyMonitor) -> None:
    lines = ConsumerReport("JSON lines", "block", taken=5, skipped=0, missed=1, failed=True)
    callback = ConsumerReport("callback", "newest", taken=3, skipped=2, missed=0, failed=False)
    one = replace(monitor.snapshot(), consumers=(lines,))
    two = replace(monitor.snapshot(), consumers=(replace(lines, failed=False), callback))
    assert merged([one, two]).report().consumers == (ConsumerReport("JSON lines", "block", 10, 0, 2, True), callback)


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="at least one snapshot"):
        merged([])


def test_a_snapshot_does_not_change(monitor: LatencyMonitor) -> None:
    ledger = monitor.open("door", live=True)
    end(ledger, "ok", 1.0)
    snapshot = monitor.snapshot()
    before = pickle.dumps(snapshot)
    end(ledger, "failed", 2.0)
    end(ledger, "ok", 3.0, total_s=2.0)
    monitor.batch(8, 0.1)
    assert pickle.dumps(snapshot) == before


def test_a_distribution_is_as_large_as_its_values_differ() -> None:
    histogram = Histogram()
    for k in range(10_000):
        histogram.add(0.010 + 0.000001 * (k % 1000))
    assert len(pickle.dumps(histogram.frozen())) < 2_000
    assert Distribution.merged([histogram.frozen(), Distribution()]) == histogram.frozen()
    assert Distribution().figures() == LatencyFigures()


def test_a_span_without_time_has_no_rate() -> None:
    assert Span().rate(5) is None
    assert Span(1.0, 1.0).rate(5) is None
    assert (Span() | Span(1.0, 3.0) | Span(2.0, None)).rate(10) == 5.0
