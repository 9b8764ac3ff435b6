"""The ledger of every stream, and the time that everything took."""

from pipelines.monitor.histogram import Distribution, Histogram
from pipelines.monitor.ledger import Glance, StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import SessionReport, StreamReport
from pipelines.monitor.snapshots import SessionSnapshot, merged

__all__ = [
    "Distribution",
    "Glance",
    "Histogram",
    "LatencyMonitor",
    "SessionReport",
    "SessionSnapshot",
    "StreamLedger",
    "StreamReport",
    "merged",
]
