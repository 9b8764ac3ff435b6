from __future__ import annotations

import pytest

from pipelines.monitor import LatencyMonitor, StreamLedger
from tests.monitor.made import BUDGET_S, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> LatencyMonitor:
    return LatencyMonitor(BUDGET_S, clock)


@pytest.fixture
def ledger(monitor: LatencyMonitor) -> StreamLedger:
    return monitor.open("door", live=True)
