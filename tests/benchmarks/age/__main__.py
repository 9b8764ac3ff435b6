"""The age of a picture when it is shown, by the time that stands in the picture: camera, encoder, server and network included.

    python -m tests.benchmarks.age [reader|shown|loss|first|cpu ...] [--seconds 17] [--runs 1] [--json FILE]

reader    age of the decoded picture in Python: Watchline's own RTSP client, and the usual alternatives. "after encoder": the
          same from the moment at which the camera had encoded it. "CPU": of the reader's whole process
shown     age of the shown frame with the default model: one camera and three, with and without annotated videos. "own":
          Watchline's own latency of the same frames; "before": the rest, before Watchline's clock starts; "spread": p95 - p5
          of that rest
loss      2 % of the UDP packets dropped: every loss counted, no smeared picture among the clean ones
first     from "ready" to the first shown frame of a camera that was on before and sends a key picture each second
cpu       CPU for each frame, the native client against FFmpeg's

Needs GStreamer's RTSP server. The camera (tests/servers/clock.py) makes 720p pictures at 25 a second, each with the monotonic
time at which it was made; it runs on the same cores as the measured program. The first 2 s of each measurement do not count.
All times are in ms. With several runs all rows are measured in turn, so that other load on the machine hits all of them, and
the figures are those of all runs together.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from app.machine.machine import machine
from tests.benchmarks.age.figures import Figures, Given
from tests.benchmarks.age.first import first
from tests.benchmarks.age.loss import loss
from tests.benchmarks.age.reader import cpu, reader
from tests.benchmarks.age.shown import shown

ROWS = {"reader": reader, "shown": shown, "loss": loss, "first": first, "cpu": cpu}
LEAST_S = 5
"""Shortest measurement in seconds: the first 2 s do not count."""


def main() -> None:
    """Measure the rows and print a table for each."""
    form = argparse.RawDescriptionHelpFormatter
    args = argparse.ArgumentParser("python -m tests.benchmarks.age", description=__doc__, formatter_class=form)
    args.add_argument("rows", nargs="*", metavar="ROW", help=" ".join(ROWS))
    args.add_argument("--seconds", type=int, default=17, help=f"of each measurement, at least {LEAST_S}")
    args.add_argument("--runs", type=int, default=1)
    args.add_argument("--json", type=Path, metavar="FILE", help="the figures, with machine and versions")
    asked = args.parse_args()
    if asked.seconds < LEAST_S or asked.runs < 1 or not set(asked.rows) <= set(ROWS):
        args.error(f"rows are {', '.join(ROWS)}; at least {LEAST_S} seconds and one run")
    given, found = Given(asked.seconds, asked.runs), {}
    for name in asked.rows or ROWS:
        found[name] = ROWS[name](given)
        _print(name, found[name])
    if asked.json:
        result = {"seconds": given.seconds, "runs": given.runs, "rows": found, "machine": machine()}
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


def _print(name: str, lines: list[Figures]) -> None:
    table = Table(title=name, title_justify="left")
    columns = list(dict.fromkeys(column for line in lines for column in line))
    for column in columns:
        table.add_column(column, justify="left" if isinstance(lines[0].get(column), str) else "right")
    for line in lines:
        table.add_row(*("" if (value := line.get(column)) is None else str(value) for column in columns))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
