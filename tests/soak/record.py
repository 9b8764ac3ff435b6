"""The observations of a soak, as plain data for the promises."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.clips import number_of
from tests.soak.schedule import Kind


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault as it was. All times of a record are `time.monotonic()`. `back_s`: when the camera was well again."""

    stream: str
    kind: Kind
    began_s: float
    back_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The command's process at a moment. calm: every camera had been well for a while."""

    at_s: float
    rss_mb: float
    threads: int
    descriptors: int
    calm: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A captured frame. `number`: which picture of the clip the model saw; None where the frame was not shown."""

    session: int
    frame: int
    arrived_s: float
    status: str
    cause: str | None
    number: int | None


@dataclass(frozen=True, slots=True)
class Outage:
    """As it was reported."""

    at_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Stream:
    """One camera: its lines, its part of the report, and the outages in it."""

    lines: Sequence[Line]
    report: Mapping[str, Any]
    outages: Sequence[Outage]


@dataclass(frozen=True, slots=True)
class Record:
    """A whole soak. `code`: the command's exit code after SIGTERM, None if it had to be killed; `said`: its standard error."""

    happened: Sequence[Happened]
    samples: Sequence[Sample]
    streams: Mapping[str, Stream]
    code: int | None
    ended_in_s: float
    said: str = ""
    length_s: float = field(default=0.0)


def keep_samples(samples: Sequence[Sample], path: Path) -> None:
    """Write them as a table, for a plot."""
    rows = [",".join(f.name for f in fields(Sample)), *(",".join(str(v) for v in astuple(s)) for s in samples)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def read_streams(lines: Path, report: Path, wall_offset_s: float) -> dict[str, Stream]:
    """Take the command's own outputs apart. wall_offset_s: of `time.time()` before `time.monotonic()`."""
    found: dict[str, list[Line]] = {}
    with lines.open(encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            found.setdefault(line["stream"], []).append(_line(line))
    streams = json.loads(report.read_text(encoding="utf-8"))["streams"]
    return {name: Stream(found.get(name, []), s, _outages(s, wall_offset_s)) for name, s in streams.items()}


def _line(line: Mapping[str, Any]) -> Line:
    number = number_of(line["labels"][0]["id"]) if line["status"] == "ok" else None
    return Line(line["session"], line["frame"], line["arrived_s"], line["status"], line.get("cause"), number)


def _outages(report: Mapping[str, Any], wall_offset_s: float) -> list[Outage]:
    return [Outage(datetime.fromisoformat(o["at"]).timestamp() - wall_offset_s, o["seconds"]) for o in report["outages"]]
