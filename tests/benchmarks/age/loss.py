"""The row "loss": a camera that loses 2 % of its packets over UDP, and whether the reader counts and marks each.

The camera writes down which packet of which picture it has lost. From that follows which pictures are clean: those of a group
without a loss up to them. The first two seconds and the last one come whole, so that the reader has seen every loss.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.sources.rtsp.rtsp_source import RtspSource
from pipelines.watch import PacketCounts
from tests.benchmarks.age.figures import Figures, Given
from tests.benchmarks.age.reader import CODECS
from tests.servers.clock import ClockCamera, Codec, Pushed
from tests.servers.stamp import read_stamp, strip_of
from tests.sources.play import RecordingWatch

SHARE = 0.02
RATE = 25


@dataclass(frozen=True, slots=True)
class _Seen:
    """One capture of the reader."""

    stamp: int | None
    pts_s: float
    corrupt: bool


def loss(given: Given) -> list[Figures]:
    """Both codecs; the counts of all runs together."""
    lines: list[Figures] = []
    for codec in CODECS:
        runs = [_measured(codec, given.seconds) for _ in range(given.runs)]
        lines.append({"codec": codec} | {name: sum(run[name] for run in runs) for name in runs[0]})
    return lines


def _measured(codec: Codec, seconds: int) -> dict[str, int]:
    with ClockCamera(codec=codec, drop=SHARE, dropping=range(2 * RATE, (seconds - 1) * RATE)) as camera:
        seen, counts = _read(camera.url(), seconds + 1)
        return _judged(seen, counts, camera.pushed())


def _read(url: str, seconds: float) -> tuple[list[_Seen], PacketCounts]:
    stop, reports, seen = threading.Event(), RecordingWatch(), []
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        for capture in RtspSource(url, RtspOptions("native", "udp")).frames(stop, reports):
            seen.append(_Seen(read_stamp(strip_of(capture.picture.y)), capture.pts_s or 0.0, capture.corrupt))
    finally:
        timer.cancel()
        timer.join()
    return seen, reports.counts


def _judged(seen: list[_Seen], counts: PacketCounts, sent: list[Pushed]) -> dict[str, int]:
    """A clean picture is smeared if its stamp cannot be read, or is not that of the picture that its media time names."""
    by_stamp = {picture.stamp: picture.index for picture in sent}
    start = next(s for s in seen if not s.corrupt and s.stamp in by_stamp)
    offset = by_stamp[start.stamp or 0] - round(RATE * start.pts_s)
    named = {offset + round(RATE * s.pts_s): s for s in seen if not s.corrupt}
    last = offset + round(RATE * seen[-1].pts_s)
    whole = set(_whole(sent[: last + 1])) & set(range(min(named), last + 1))
    return {
        "pictures": last + 1 - min(named),
        "damaged": sum(bool(p.dropped) for p in sent),
        "behind no loss": len(whole),
        "clean": len(named),
        "clean, missed": len(whole - set(named)),
        "clean, wrongly": len(set(named) - whole),
        "smeared": sum(by_stamp.get(-1 if s.stamp is None else s.stamp) != index for index, s in named.items()),
        "corrupt": sum(s.corrupt for s in seen),
        "packets": counts.received + counts.lost,
        "lost": counts.lost,
        "dropped by the camera": sum(len(p.dropped) for p in sent),
    }


def _whole(sent: list[Pushed]) -> list[int]:
    """Indices of the pictures that depend on no damaged picture."""
    whole, good = [], False
    for picture in sent:
        good = not picture.dropped and (good or picture.key)
        if good:
            whole.append(picture.index)
    return whole
