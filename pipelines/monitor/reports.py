"""The figures of a session as frozen dataclasses, and their only JSON form.

A report is of one moment and is rounded for people: times in milliseconds, rates per second. `snapshots.py` has the same
figures with histograms, which can be merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from pipelines.frame import CAUSES, STAGES, CameraClock, Cause
from pipelines.watch import PacketCounts


def plain(value: Any) -> Any:
    """The JSON form of a report: dataclasses and mappings become dictionaries in their order, tuples become lists."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Percentiles, maximum and number of measured times: milliseconds, to the microsecond; None without a value."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class OutageReport:
    """A time without a live source."""

    at: str
    """Its beginning by the wall clock, UTC: 2026-11-30T03:00:00.123Z."""
    seconds: float
    """Its length, or its length so far."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The figures of one stream. captured = shown + dropped + failed + in flight."""

    name: str
    captured: int = 0
    shown: int = 0
    dropped: Mapping[Cause, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    """Dropped frames by cause; every cause has a value."""
    failed: int = 0
    late: int = 0
    """Frames of a live stream that were shown after the latency budget."""
    decode_errors: int = 0
    window_skipped: int = 0
    """Shown frames that the window replaced by a newer one before it drew them."""
    interlaced: int = 0
    """Captured frames that show two moments, one on every second line."""
    reconnects: int = 0
    outages: Sequence[OutageReport] = ()
    fps: float | None = None
    """Shown frames per second, from the first arrival to the last shown frame."""
    goodput: float | None = None
    """The share of frames that were shown within the budget, 0-1. Corrupt and skipped frames do not count."""
    latency_ms: LatencyFigures = LatencyFigures()
    """From the arrival of a frame until it was shown."""
    packets: PacketCounts | None = None
    """None unless the source counts packets."""
    camera_clock: CameraClock | None = None
    """Whether the camera's clock can be compared with this machine's, and the reason (`StreamInfo`); None without times."""
    camera_age_ms: LatencyFigures | None = None
    """From the camera's own time of a picture until it was shown; None unless the clocks can be compared."""
    errors: Sequence[str] = ()
    """Losses of the source or of an output; any makes a run fail."""
    live: bool = False

    @property
    def in_flight(self) -> int:
        """Captured frames without an outcome."""
        return self.captured - self.shown - self.failed - sum(self.dropped.values())

    @property
    def counted(self) -> int:
        """Frames that goodput counts: all but the corrupt and the skipped ones."""
        return self.captured - self.dropped["corrupt"] - self.dropped["skipped"]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, without the name: it is the key in the report of the session."""
        figures = plain(self)
        del figures["name"]
        return figures


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """use: the share of time in which the device worked, 0-1. memory_mb: resident memory of this process and of the device, in
    MB; None if nobody measured it."""

    use: float
    memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """Figures of one consumer. taken: results that it handled; skipped: replaced by a newer one before it took them ("newest"
    only); missed: results that it did not get because it failed or was interrupted; failed: whether it failed."""

    name: str
    policy: Literal["block", "newest"]
    taken: int
    skipped: int
    missed: int
    failed: bool

    def __add__(self, other: ConsumerReport) -> ConsumerReport:
        """The figures of two consumers of one name together."""
        return ConsumerReport(
            self.name,
            self.policy,
            self.taken + other.taken,
            self.skipped + other.skipped,
            self.missed + other.missed,
            self.failed or other.failed,
        )


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The engine of a run. All but the model's name is None or empty until an engine is chosen."""

    model: str
    """The model's name, as it was asked for."""
    name: str | None = None
    precision: str | None = None
    device: str | None = None
    why: str | None = None
    """The reason for this engine and precision."""
    profile_ms: Mapping[str, float] = field(default_factory=dict)
    """Measured milliseconds of a batch, by its number of rows."""
    workers: Sequence[Mapping[str, Any]] = ()
    """The worker processes; empty without."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        order = ("name", "precision", "device", "model", "why", "profile_ms", "workers")
        return {name: plain(getattr(self, name)) for name in order}


@dataclass(frozen=True, slots=True)
class SessionReport:
    """The measured figures of a session."""

    streams: Mapping[str, StreamReport]
    """Streams that have not been removed, by name."""
    latency_ms: Mapping[str, LatencyFigures]
    """Times of shown frames by stage ("total" and `STAGES`): those of cameras if there are any, else those of files."""
    batch_sizes: Mapping[int, int]
    """Number of batches by number of rows."""
    goodput: float | None
    """As of a stream; of all cameras together, or of all files if no camera captured a frame."""
    throughput_fps: float | None
    """Shown frames of all streams per second."""
    device: DeviceReport
    errors: Sequence[str] = ()
    """Losses that belong to all streams."""
    removed: Sequence[StreamReport] = ()
    """Final figures of removed streams, in the order of their removal. A name can occur more than once."""
    consumers: Sequence[ConsumerReport] = ()

    def every_stream(self) -> Iterator[StreamReport]:
        """All streams of the session, the removed ones first."""
        yield from self.removed
        yield from self.streams.values()

    @property
    def captured(self) -> int:
        """Captured frames of all streams."""
        return sum(s.captured for s in self.every_stream())

    @property
    def shown(self) -> int:
        """Shown frames of all streams."""
        return sum(s.shown for s in self.every_stream())

    def as_dict(self) -> dict[str, Any]:
        """The JSON form. "removed" and "consumers" are in it only if there are any."""
        queue, device = self.latency_ms["queue"], plain(self.device)
        if self.device.memory_mb is None:
            del device["memory_mb"]
        return {
            "streams": {name: stream.as_dict() for name, stream in self.streams.items()},
            "latency_ms": {stage: plain(self.latency_ms[stage]) for stage in ("total", *STAGES)},
            "batch_sizes": plain(self.batch_sizes),
            "goodput": self.goodput,
            "throughput_fps": self.throughput_fps,
            "queue_wait_ms": {"p50": queue.p50, "p99": queue.p99},
            "device": device,
            "errors": list(self.errors),
            **({"removed": plain(self.removed)} if self.removed else {}),
            **({"consumers": plain(self.consumers)} if self.consumers else {}),
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything that is known of a run."""

    session: SessionReport
    engine: EngineReport
    budget_ms: float
    """The latency budget of streams without one of their own."""
    warmup_s: float | None
    """Seconds of the model's warm-up; None if it was not reached."""
    ready_s: float | None
    """Seconds from the start until the model was warm; None if it was not reached."""
    machine: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return self.session.as_dict() | {
            "budget_ms": self.budget_ms,
            "warmup_s": self.warmup_s,
            "ready_s": self.ready_s,
            "engine": self.engine.as_dict(),
            "machine": dict(self.machine),
        }
