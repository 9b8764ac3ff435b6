"""One run of the command with every output, and the outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import av

from tests.clips import number_of
from tests.command import PROBE, Done, read_lines, watchline


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run of one source. `out`: the folder with its outputs."""

    done: Done
    out: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return read_lines(self.out / "o.jsonl")

    @property
    def stream(self) -> dict[str, Any]:
        """The stream in its report."""
        (stream,) = json.loads((self.out / "r.json").read_text(encoding="utf-8"))["streams"].values()
        return stream

    @property
    def times(self) -> list[float]:
        """Time of each captured frame."""
        times = [line["pts_s"] for line in self.lines]
        assert all(b > a for a, b in pairwise(times)), "times must rise"
        return times

    @property
    def numbers(self) -> list[int | None]:
        """The number in each captured frame (`tests.clips`); None if it was not shown."""
        return [number_of(int(k["labels"][0]["name"])) if k["status"] == "ok" else None for k in self.lines]

    def video(self) -> Video:
        """The annotated video, decoded."""
        return Video.of(self.out / "o.mp4")


@dataclass(frozen=True, slots=True)
class Video:
    """Times of the frames of a video, its length and its rate."""

    times: list[float]
    duration_s: float
    rate: Any

    @staticmethod
    def of(path: Path) -> Video:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            times = [float(f.pts * stream.time_base) for f in container.decode(stream)]  # type: ignore[operator]
            assert container.duration is not None
            return Video(times, container.duration / 1e6, stream.base_rate)


def run(source: Path | str, out: Path, *flags: str) -> Ran:
    """Run the command on a source."""
    out.mkdir(exist_ok=True)
    places = ("-o", str(out / "o.mp4"), "--jsonl", str(out / "o.jsonl"), "--report", str(out / "r.json"))
    return Ran(watchline("run", str(source), *PROBE, *places, *flags), out)
