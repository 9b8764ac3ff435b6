"""The rows "reader" and "cpu": the age of the decoded picture when Python has it, and its CPU time."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.age.figures import SETTLE_S, Figures, Given, mean, quantile
from tests.benchmarks.age.readers import READERS
from tests.servers.clock import ClockCamera, Codec, Pushed
from tests.servers.process import SYSTEM_PYTHON
from tests.servers.stamp import HEIGHT, WIDTH, read_stamp

CODECS: tuple[Codec, ...] = ("h264", "h265")
GSTREAMER = "GStreamer, rtspsrc latency=0, TCP"
DECODERS = {"h264": ("avdec_h264", "openh264dec"), "h265": ("avdec_h265", "libde265dec")}
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The pictures that one reader got from one camera, without the first seconds."""

    ages_ms: tuple[float, ...]
    """Age of each picture by its stamp."""
    after_encoder_ms: tuple[float, ...]
    """Age of the same pictures from the moment at which they were encoded."""
    encoder_ms: tuple[float, ...]
    late_ms: tuple[float, ...]
    """Delay of the camera itself with each picture: it shows how busy the machine was."""
    unread: int
    """Number of pictures without a stamp that the camera knows."""
    cpu_ms: float | None
    """CPU time of the reader's whole process for each frame."""


def reader(given: Given) -> list[Figures]:
    """Every reader with every codec."""
    names = (*READERS, GSTREAMER)
    keys = [(name, codec) for codec, name in product(CODECS, names) if name != GSTREAMER or _decoder(codec)]
    for run, key in product(range(given.runs), keys):
        _seen(*key, given.seconds, run)
    return [_figures(*key, given) for key in keys]


def cpu(given: Given) -> list[Figures]:
    """The native client against FFmpeg's, both over TCP, from the readings of the row above if that was asked for."""
    lines: list[Figures] = []
    for codec in CODECS:
        costs: dict[str, list[float]] = {"native": [], "FFmpeg": []}
        for run, client in product(range(given.runs), costs):
            seen = _seen(f"Watchline, {client}, TCP", codec, given.seconds, run)
            costs[client] += [] if seen.cpu_ms is None else [seen.cpu_ms]
        native, ffmpeg = mean(costs["native"]), mean(costs["FFmpeg"])
        more = None if native is None or ffmpeg is None else round(native - ffmpeg, 2)
        lines.append({"codec": codec, "native": native, "FFmpeg": ffmpeg, "native costs more": more})
    return lines


def _figures(name: str, codec: Codec, given: Given) -> Figures:
    runs = [_seen(name, codec, given.seconds, run) for run in range(given.runs)]
    ages = [age for seen in runs for age in seen.ages_ms]
    after = [age for seen in runs for age in seen.after_encoder_ms]
    return {
        "reader": name if name != GSTREAMER else f"{GSTREAMER}, {_decoder(codec)}",
        "codec": codec,
        "p50": quantile(ages, 0.5),
        "p99": quantile(ages, 0.99),
        "max": quantile(ages, 1),
        "after encoder p50": quantile(after, 0.5),
        "after encoder p99": quantile(after, 0.99),
        "encoder p50": quantile([ms for seen in runs for ms in seen.encoder_ms], 0.5),
        "CPU a frame": mean([seen.cpu_ms for seen in runs if seen.cpu_ms is not None]),
        "frames": len(ages),
        "unread": sum(seen.unread for seen in runs),
        "camera late p99": quantile([ms for seen in runs for ms in seen.late_ms], 0.99),
    }


@cache
def _seen(name: str, codec: Codec, seconds: int, run: int) -> Seen:
    with ClockCamera(codec=codec) as camera:
        if name == GSTREAMER:
            command = [SYSTEM_PYTHON, "-E", "-s", str(Path(__file__).with_name("gstreamer.py"))]
            command += [camera.url(), str(seconds), codec, str(_decoder(codec)), str(SETTLE_S)]
        else:
            command = [sys.executable, "-m", "tests.benchmarks.age.readers", name, camera.url(), str(seconds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=seconds + PATIENCE_S)
        return _joined(json.loads(done.stdout.splitlines()[-1]), camera.pushed())


def _joined(told: dict[str, Any], pushed: list[Pushed]) -> Seen:
    """The reader's pictures, joined with the camera's record of the same pictures."""
    by_stamp = {picture.stamp: picture for picture in pushed}
    settled = [(at_s, stamp) for at_s, stamp in told["seen"] if at_s > told["seen"][0][0] + SETTLE_S]
    pairs = [(at_s, by_stamp.get(_number(stamp))) for at_s, stamp in settled]
    known = [(at_s, p, p.encoded_s) for at_s, p in pairs if p is not None and p.encoded_s is not None]
    return Seen(
        tuple(1e3 * (at_s - p.stamp_s) for at_s, p, _ in known),
        tuple(1e3 * (at_s - encoded_s) for at_s, _, encoded_s in known),
        tuple(1e3 * (encoded_s - p.stamp_s) for _, p, encoded_s in known),
        tuple(1e3 * (p.stamp_s - p.due_s) for _, p, _ in known),
        len(settled) - len(known),
        told["cpu_ms"],
    )


def _number(stamp: int | str | None) -> int:
    """The stamp as a number; -1 if it cannot be read."""
    if isinstance(stamp, str):
        stamp = read_stamp(np.frombuffer(base64.b64decode(stamp), np.uint8).reshape(HEIGHT, WIDTH))
    return -1 if stamp is None else stamp


@cache
def _decoder(codec: Codec) -> str | None:
    """The decoder that GStreamer has here for the codec; None without one."""
    for name in DECODERS[codec]:
        code = f"from gi.repository import Gst; Gst.init(None); assert Gst.ElementFactory.find({name!r})"
        code = f"import gi; gi.require_version('Gst', '1.0'); {code}"
        if subprocess.run([SYSTEM_PYTHON, "-I", "-c", code], capture_output=True, timeout=PATIENCE_S).returncode == 0:
            return name
    return None
