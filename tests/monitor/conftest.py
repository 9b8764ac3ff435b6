from __future__ import annotations

import pytest

from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
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
