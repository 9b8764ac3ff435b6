"""Snapshots: the figures of a session at one moment, with histograms. Several can be merged into one.

They can be pickled: the halves of a run, the processes of a machine, or several machines are merged into the figures of the
whole, with exact counts and with the percentiles of all frames together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pipelines.frame import STAGES, Cause
from pipelines.monitor.histogram import Distribution
from pipelines.monitor.reports import ConsumerReport, DeviceReport, SessionReport, StreamReport
from pipelines.watch import PacketCounts

StageDistributions = Mapping[str, Distribution]
"""Times of shown frames by stage, one for each of STAGES."""


@dataclass(frozen=True, slots=True)
class Span:
    """From the first arrival to the last shown frame, monotonic seconds; None before."""

    first_s: float | None = None
    last_s: float | None = None

    def __or__(self, other: Span) -> Span:
        """The shortest span that holds both."""
        firsts = [s for s in (self.first_s, other.first_s) if s is not None]
        lasts = [s for s in (self.last_s, other.last_s) if s is not None]
        return Span(min(firsts, default=None), max(lasts, default=None))

    def shifted(self, by_s: float) -> Span:
        """The same span by a clock that is ahead by so many seconds."""
        return Span(*(None if s is None else s + by_s for s in (self.first_s, self.last_s)))

    def rate(self, count: int) -> float | None:
        """Frames per second, to 0.001; None without a span."""
        if self.first_s is None or self.last_s is None or self.last_s <= self.first_s:
            return None
        return round(count / (self.last_s - self.first_s), 3)


def share(part: int, whole: int) -> float | None:
    """A share, 0-1, to 0.00001; None of nothing."""
    return round(part / whole, 5) if whole else None


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """One stream."""

    figures: StreamReport
    span: Span
    latency: Distribution | None
    """None after the stream has ended: only its figures are kept."""
    camera_age: Distribution | None

    def __add__(self, later: StreamSnapshot) -> StreamSnapshot:
        """The stream as a whole, from two parts that both have their histograms."""
        a, b, span = self.figures, later.figures, self.span | later.span
        assert self.latency is not None
        assert later.latency is not None
        latency = Distribution.merged([self.latency, later.latency])
        ages = [age for age in (self.camera_age, later.camera_age) if age is not None]
        age = Distribution.merged(ages) if ages else None
        shown, late = a.shown + b.shown, a.late + b.late
        figures = replace(
            a,
            captured=a.captured + b.captured,
            shown=shown,
            dropped=_sum_by_cause(a, b),
            failed=a.failed + b.failed,
            late=late,
            decode_errors=a.decode_errors + b.decode_errors,
            window_skipped=a.window_skipped + b.window_skipped,
            interlaced=a.interlaced + b.interlaced,
            reconnects=a.reconnects + b.reconnects,
            outages=(*a.outages, *b.outages),
            fps=span.rate(shown),
            goodput=share(shown - late, a.counted + b.counted),
            latency_ms=latency.figures(),
            packets=_sum_of_packets(a.packets, b.packets),
            camera_clock=b.camera_clock or a.camera_clock,
            camera_age_ms=age.figures() if age else None,
            errors=tuple(dict.fromkeys((*a.errors, *b.errors))),
        )
        return StreamSnapshot(figures, span, latency, age)


def _sum_by_cause(a: StreamReport, b: StreamReport) -> Mapping[Cause, int]:
    return {cause: count + b.dropped[cause] for cause, count in a.dropped.items()}


def _sum_of_packets(a: PacketCounts | None, b: PacketCounts | None) -> PacketCounts | None:
    return a + b if a and b else a or b


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """busy_s: seconds in which a device worked; open_s: seconds from the beginning of its first batch to the end of its last
    one. Of several devices, the sums."""

    busy_s: float = 0.0
    open_s: float = 0.0
    batch_sizes: Mapping[int, int] = field(default_factory=dict)
    """Number of batches by number of rows."""

    def __add__(self, other: DeviceSnapshot) -> DeviceSnapshot:
        sizes = Counter(self.batch_sizes) + Counter(other.batch_sizes)
        return DeviceSnapshot(self.busy_s + other.busy_s, self.open_s + other.open_s, dict(sizes))

    def report(self) -> DeviceReport:
        return DeviceReport(round(min(self.busy_s / self.open_s, 1.0), 4) if self.open_s > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """All streams of a session, and the device."""

    streams: Sequence[StreamSnapshot]
    """Streams that have not been removed; each has a name of its own."""
    removed: Sequence[StreamReport]
    removed_span: Span
    """The span of all removed streams together."""
    stages: Mapping[bool, StageDistributions]
    """Times of live streams (True) and of stored ones (False), the removed ones included."""
    device: DeviceSnapshot
    errors: Sequence[str]
    wall_offset_s: float
    """Seconds since 1970 (UTC) at time 0 of the monotonic clock: places the spans of several machines side by side."""
    consumers: Sequence[ConsumerReport] = ()

    def report(self) -> SessionReport:
        """The figures, as people read them."""
        streams = [s.figures for s in self.streams]
        every = [*self.removed, *streams]
        # The promise is about cameras: files beside them have no deadline and wait in line, so they do not count.
        promised = [s for s in every if s.live and s.captured] or every
        used = [self.stages[live] for live in {s.live for s in promised}]
        good, counted = sum(s.shown - s.late for s in promised), sum(s.counted for s in promised)
        span = reduce(Span.__or__, (s.span for s in self.streams), self.removed_span)
        sizes = self.device.batch_sizes
        return SessionReport(
            streams={s.name: s for s in streams},
            latency_ms={stage: Distribution.merged(u[stage] for u in used).figures() for stage in STAGES},
            batch_sizes={rows: sizes[rows] for rows in sorted(sizes)},
            goodput=share(good, counted),
            throughput_fps=span.rate(sum(s.shown for s in every)),
            device=self.device.report(),
            errors=tuple(self.errors),
            removed=tuple(self.removed),
            consumers=tuple(self.consumers),
        )

    def shifted(self, wall_offset_s: float) -> SessionSnapshot:
        """The same figures by another monotonic clock, given by its offset."""
        by_s = self.wall_offset_s - wall_offset_s
        streams = tuple(replace(s, span=s.span.shifted(by_s)) for s in self.streams)
        removed_span = self.removed_span.shifted(by_s)
        return replace(self, streams=streams, removed_span=removed_span, wall_offset_s=wall_offset_s)

    def __add__(self, later: SessionSnapshot) -> SessionSnapshot:
        later = later.shifted(self.wall_offset_s)
        streams, ended = _joined([*self.streams, *later.streams])
        return SessionSnapshot(
            streams=streams,
            removed=(*self.removed, *later.removed, *(s.figures for s in ended)),
            removed_span=reduce(Span.__or__, (s.span for s in ended), self.removed_span | later.removed_span),
            stages={live: _merged_stages(self.stages[live], later.stages[live]) for live in self.stages},
            device=self.device + later.device,
            errors=(*self.errors, *later.errors),
            wall_offset_s=self.wall_offset_s,
            consumers=_joined_consumers([*self.consumers, *later.consumers]),
        )


def merged(snapshots: Iterable[SessionSnapshot]) -> SessionSnapshot:
    """The whole that the snapshots are parts of, in the order of their time.

    Streams of one name become one. Of an ended stream only figures are left, which cannot be merged: if another stream has
    its name, it is listed as removed.

    :raises ValueError: if there is no snapshot.
    """
    parts = list(snapshots)
    if not parts:
        raise ValueError("merged() needs at least one snapshot, got none")
    return reduce(SessionSnapshot.__add__, parts)


def _joined(parts: Sequence[StreamSnapshot]) -> tuple[Sequence[StreamSnapshot], Sequence[StreamSnapshot]]:
    """Streams with a name of their own, and ended ones that gave their name to another."""
    joined: dict[str, StreamSnapshot] = {}
    ended: list[StreamSnapshot] = []
    for part in parts:
        name = part.figures.name
        known = joined.get(name)
        if known is None:
            joined[name] = part
        elif known.latency is not None and part.latency is not None and known.figures.live == part.figures.live:
            joined[name] = known + part
        elif known.latency is None:
            ended.append(known)
            joined[name] = part
        else:
            ended.append(part)
    return tuple(joined.values()), ended


def _joined_consumers(parts: Sequence[ConsumerReport]) -> Sequence[ConsumerReport]:
    """Consumers of one name are one."""
    joined: dict[str, ConsumerReport] = {}
    for part in parts:
        joined[part.name] = joined[part.name] + part if part.name in joined else part
    return tuple(joined.values())


def _merged_stages(a: StageDistributions, b: StageDistributions) -> StageDistributions:
    return {stage: Distribution.merged([a[stage], b[stage]]) for stage in a}
