"""The row "shown": the age of a frame when the last output has it, and the part of it that Watchline's own clock measures.

A frame's age is its JSON line's shown_s less its stamp: both are time.monotonic() of this machine. With annotated videos the
stamp is read from the very picture that was shown, in the finished video: it has the shown frames in their order, and the
overlay leaves the stamp's place free. Without, when three encoders do not take the cores, the stamp is the camera's own record
of the picture that the line's media time names (`watching.by_time`). In the runs with videos the two must agree on every frame.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import av
import numpy as np

from tests.benchmarks.age.figures import SETTLE_S, Figures, Given, quantile
from tests.benchmarks.age.watching import Line, Watched, by_time, watched
from tests.servers.clock import ClockCamera, Pushed
from tests.servers.stamp import read_stamp, strip_of

BUDGET_MS = 50.0
END_S = 0.5
"""Seconds at the end that do not count: their frames were in flight when the run was stopped."""


@dataclass(slots=True)
class _Ages:
    """The ages of all cameras and runs in one line of the table."""

    total_ms: list[float] = field(default_factory=list)
    """From the stamp to the last sink."""
    own_ms: list[float] = field(default_factory=list)
    """Watchline's own latency of the same frames."""
    encoder_ms: list[float] = field(default_factory=list)
    """Time of the camera's encoder for the same frames: the cameras and the measured program share the cores."""
    pictures: int = 0
    """Number of pictures that the cameras took in the counted time, shown or not."""


def shown(given: Given) -> list[Figures]:
    """One camera and three, with annotated videos; three without."""
    variants = {(count, video): _Ages() for count, video in ((1, True), (3, True), (3, False))}
    for _ in range(given.runs):
        for (count, video), ages in variants.items():
            _watch(count, video, given.seconds, ages)
    return [_figures(count, video, ages) for (count, video), ages in variants.items()]


def _watch(count: int, video: bool, seconds: int, ages: _Ages) -> None:
    with tempfile.TemporaryDirectory() as folder, ClockCamera(count) as cameras:
        run = watched([cameras.url(k) for k in range(count)], seconds, *(("-o", folder) if video else ()))
        if len(run.lines) != count:
            raise RuntimeError(f"{count} cameras, lines of {list(run.lines)}")
        for number in range(count):
            (lines,) = [k for name, k in run.lines.items() if name.endswith(f"cam{number}")]
            sent = cameras.pushed(number)
            pictures = by_time(lines, sent)
            if video:
                (path,) = Path(folder).glob(f"*cam{number}.mp4")
                _check(path, lines, pictures)
            _add(ages, run, lines, pictures, sent)


def _check(path: Path, lines: list[Line], pictures: list[Pushed]) -> None:
    """:raises RuntimeError: if the video shows other pictures than the lines name."""
    named = [picture.stamp for line, picture in zip(lines, pictures, strict=True) if line["status"] == "ok"]
    seen = list(_stamps(path))
    if seen != named:
        wrong = sum(a != b for a, b in zip(seen, named, strict=False))
        raise RuntimeError(f"{path.name}: {len(seen)} pictures for {len(named)} lines, {wrong} with another stamp")


def _stamps(path: Path) -> Iterator[int | None]:
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            plane = frame.planes[0]
            yield read_stamp(strip_of(np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height]))


def _add(ages: _Ages, run: Watched, lines: list[Line], pictures: list[Pushed], sent: list[Pushed]) -> None:
    """Count the pictures that were taken from SETTLE_S after the first shown frame until END_S before the stop."""
    frames = [(line, picture) for line, picture in zip(lines, pictures, strict=True) if line["status"] == "ok"]
    first_s, last_s = frames[0][0]["shown_s"] + SETTLE_S, run.stopped_s - END_S
    ages.pictures += sum(first_s < picture.stamp_s < last_s for picture in sent)
    for line, picture in frames:
        if first_s < picture.stamp_s < last_s and picture.encoded_s is not None:
            ages.total_ms.append(1e3 * (line["shown_s"] - picture.stamp_s))
            ages.own_ms.append(line["latency_ms"]["total"])
            ages.encoder_ms.append(1e3 * (picture.encoded_s - picture.stamp_s))


def _figures(count: int, video: bool, ages: _Ages) -> Figures:
    before = [total - own for total, own in zip(ages.total_ms, ages.own_ms, strict=True)]
    network = [ms - encoder for ms, encoder in zip(before, ages.encoder_ms, strict=True)]
    return {
        "cameras": f"{count}, {'with videos' if video else 'no video'}",
        "p50": quantile(ages.total_ms, 0.5),
        "p99": quantile(ages.total_ms, 0.99),
        "max": quantile(ages.total_ms, 1),
        "goodput": round(sum(ms <= BUDGET_MS for ms in ages.total_ms) / ages.pictures, 4) if ages.pictures else None,
        "pictures": ages.pictures,
        "not shown": ages.pictures - len(ages.total_ms),
        "own p50": quantile(ages.own_ms, 0.5),
        "own p99": quantile(ages.own_ms, 0.99),
        "before p5": quantile(before, 0.05),
        "before p50": quantile(before, 0.5),
        "before p95": quantile(before, 0.95),
        "spread": _spread(before),
        "spread after encoder": _spread(network),
    }


def _spread(values: list[float]) -> float | None:
    """p95 - p5."""
    low, high = quantile(values, 0.05), quantile(values, 0.95)
    return None if low is None or high is None else round(high - low, 1)
