"""The promises, each read from a soak's record."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.soak.record import Happened, Line, Outage, Record, Sample, Stream
from tests.soak.schedule import OUTAGES

FRAMES = 100
"""Of the clip."""
BACK_S = 10.0
MATCH_S = 1.5
"""By how much the times of a fault and of its outage may differ: starting a camera takes a while."""
GROWTH_MB_MIN = 1.0
WARM_S = 60.0
LEAST_S = 60.0
"""Of samples after the warm-up, or nothing can be said of growth."""
STILL_S = 15.0
"""Without a sample: the machine was held up, or nobody was there to restart a camera in time."""
TERMINATED = 143
END_S = 3.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a promise was kept; None: it could not be seen. `text`: the figures, or the fault."""

    promise: str
    kept: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """How a fault was seen: its outage, if one was reported, and the seconds from the camera's return to the first new
    frame that was shown; None if none was."""

    fault: Happened
    outage: Outage | None
    first_new_s: float | None


def verdicts(record: Record) -> list[Verdict]:
    """All of them."""
    promises: list[tuple[str, Callable[[Record], Iterator[str]], Callable[[Record], str]]] = [
        ("the soak itself was not held up", _held_up, lambda r: f"{len(r.samples)} samples, {len(r.happened)} faults"),
        ("the ledger adds up for every stream", _ledger, _counts),
        ("every outage is reported, and nothing else is", _unreported, _outages),
        (f"a new frame within {BACK_S:g} s of a camera's return", _late, _slowest),
        ("no picture is classified twice or out of order", _disordered, _compared),
        ("threads and descriptors are back at their first value", _held, _figures),
        (f"exit code {TERMINATED} within {END_S:g} s of SIGTERM", _ending, lambda r: f"{r.code} after {r.ended_in_s:.1f} s"),
    ]
    found = [_verdict(name, list(faults(record)), figures(record)) for name, faults, figures in promises]
    return [*found, _memory(record)]


def _verdict(promise: str, faults: list[str], figures: str) -> Verdict:
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return Verdict(promise, not faults, "; ".join(faults[:3]) + more if faults else figures)


# The soak itself: its figures of the command are worth nothing if its machine stood still.


def _held_up(record: Record) -> Iterator[str]:
    for a, b in pairwise(record.samples):
        if b.at_s - a.at_s > STILL_S:
            yield f"nothing was seen for {b.at_s - a.at_s:.0f} s"


# The ledger.


def _ledger(record: Record) -> Iterator[str]:
    if not record.streams:
        yield "no report was written"
    for name, stream in record.streams.items():
        r = stream.report
        ended = r["shown"] + r["failed"] + sum(r["dropped"].values())
        if r["captured"] != ended:
            yield f"{name}: {r['captured']} captured, {ended} accounted for"
        if [line.frame for line in stream.lines] != list(range(r["captured"])):
            yield f"{name}: {len(stream.lines)} lines, not numbered one after the other, for {r['captured']} captured"
        told = Counter(line.cause or line.status for line in stream.lines)
        reported = Counter({"ok": r["shown"], "failed": r["failed"], **r["dropped"]})
        if +told != +reported:
            yield f"{name}: the lines say {dict(told)}, the report {dict(+reported)}"
        if r["errors"]:
            yield f"{name}: {r['errors'][0]}"


def _counts(record: Record) -> str:
    total: Counter[str] = Counter()
    for stream in record.streams.values():
        total.update({"captured": stream.report["captured"], "shown": stream.report["shown"], **stream.report["dropped"]})
    return ", ".join(f"{n} {what}" for what, n in total.items() if n)


# Outages.


def seen(record: Record) -> list[Seen]:
    """Every fault, as the command saw it."""
    return [_seen(fault, record.streams[fault.stream]) for fault in record.happened if fault.stream in record.streams]


def _seen(fault: Happened, stream: Stream) -> Seen:
    outage = next((o for o in stream.outages if _is_of(o, fault)), None)
    arrivals = [line.arrived_s for line in stream.lines]
    at = bisect_right(arrivals, fault.began_s)
    session = stream.lines[at - 1].session if at else -1
    wanted = session + 1 if fault.kind in OUTAGES else session
    first = next((line for line in stream.lines[at:] if line.number is not None and line.session >= wanted), None)
    return Seen(fault, outage, None if first is None else max(first.arrived_s - fault.back_s, 0.0))


def _is_of(outage: Outage, fault: Happened) -> bool:
    return abs(outage.at_s - fault.began_s) <= MATCH_S


def _unreported(record: Record) -> Iterator[str]:
    for one in seen(record):
        fault, outage = one.fault, one.outage
        if (outage is not None) != (fault.kind in OUTAGES):
            yield f"{fault.stream} {fault.kind}: {'an' if outage else 'no'} outage was reported"
        elif outage is not None and one.first_new_s is not None:
            wrong_s = outage.at_s + outage.seconds - fault.back_s - one.first_new_s
            # Pictures come again, and count, up to a group of pictures before the first clean one.
            if not -MATCH_S - 1 <= wrong_s <= MATCH_S:
                yield f"{fault.stream} {fault.kind}: reported with {outage.seconds:.1f} s, which is {wrong_s:+.1f} s wrong"
    for name, stream in record.streams.items():
        faults = [f for f in record.happened if f.stream == name and f.kind in OUTAGES]
        for outage in stream.outages:
            if not any(_is_of(outage, fault) for fault in faults):
                yield f"{name}: an outage of {outage.seconds:.1f} s without a reason"


def _outages(record: Record) -> str:
    return f"{sum(len(s.outages) for s in record.streams.values())} outages, {len(record.happened)} faults"


def _late(record: Record) -> Iterator[str]:
    for one in seen(record):
        if one.first_new_s is None or one.first_new_s > BACK_S:
            when = "never" if one.first_new_s is None else f"after {one.first_new_s:.1f} s"
            yield f"{one.fault.stream} {one.fault.kind}: {when}"


def _slowest(record: Record) -> str:
    times = [one.first_new_s for one in seen(record) if one.first_new_s is not None]
    return f"{max(times):.1f} s at the most" if times else "nothing has happened"


# Pictures.


def _disordered(record: Record) -> Iterator[str]:
    for name, stream in record.streams.items():
        leaps = [f for f in record.happened if f.stream == name and f.kind in ("frozen", "no pictures")]
        for a, b in _pairs(stream):
            step = (b.number - a.number) % FRAMES  # type: ignore[operator]
            leapt = any(a.arrived_s <= f.back_s <= b.arrived_s for f in leaps)
            # A camera with frozen pictures goes on with a later one.
            if step != (b.frame - a.frame) % FRAMES and not (leapt and step):
                yield f"{name}: picture {b.number} in frame {b.frame} after {a.number} in {a.frame}, session {b.session}"


def _pairs(stream: Stream) -> Iterator[tuple[Line, Line]]:
    shown = (line for line in stream.lines if line.number is not None)
    return ((a, b) for a, b in pairwise(shown) if a.session == b.session)


def _compared(record: Record) -> str:
    return f"{sum(1 for s in record.streams.values() for _ in _pairs(s))} pairs of frames compared"


# The process.


def _held(record: Record) -> Iterator[str]:
    calm = [s for s in record.samples if s.calm]
    well_s = max((f.back_s for f in record.happened), default=0.0)
    if not calm or calm[-1].at_s < well_s:
        yield "there was no calm moment after the last fault to compare with"
        return
    first, last = calm[0], calm[-1]
    for what in ("threads", "descriptors"):
        before, after = getattr(first, what), getattr(last, what)
        if before != after:
            yield f"{before} {what} at first, {after} at last"


def _figures(record: Record) -> str:
    last = next((s for s in reversed(record.samples) if s.calm), None)
    return f"{last.threads} threads, {last.descriptors} descriptors" if last else ""


def _ending(record: Record) -> Iterator[str]:
    if record.code != TERMINATED or record.ended_in_s > END_S:
        yield f"exit code {record.code} after {record.ended_in_s:.1f} s"
    if "Traceback" in record.said:
        yield "a traceback was printed"


def growth_mb_min(samples: list[Sample]) -> float:
    """The slope of the straight line through the resident memory (least squares)."""
    mean_t = sum(s.at_s for s in samples) / len(samples)
    mean_m = sum(s.rss_mb for s in samples) / len(samples)
    above = sum((s.at_s - mean_t) * (s.rss_mb - mean_m) for s in samples)
    below = sum((s.at_s - mean_t) ** 2 for s in samples)
    return 60 * above / below


def _memory(record: Record) -> Verdict:
    promise = f"resident memory grows by less than {GROWTH_MB_MIN:g} MB a minute"
    began_s = record.samples[0].at_s if record.samples else 0.0
    warm = [s for s in record.samples if s.at_s >= began_s + WARM_S]
    if len(warm) < 2 or warm[-1].at_s - warm[0].at_s < LEAST_S:
        return Verdict(promise, None, f"too short: it is measured from {WARM_S:g} s on, for {LEAST_S:g} s or more")
    growth = growth_mb_min(warm)
    text = f"{growth:+.2f} MB a minute, {warm[0].rss_mb:.1f} MB after the warm-up, {warm[-1].rss_mb:.1f} MB at the end"
    return Verdict(promise, growth < GROWTH_MB_MIN, text)
