"""`watchline doctor`: the abilities of this machine, and a check that sources answer."""

from __future__ import annotations

import importlib.util
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from app import build
from app.config import Settings
from app.machine.machine import gpu_name, version
from app.machine.threads import pools
from app.streams import StreamPlan, plan
from app.terminal.stdio import StandardOutput
from pipelines.cores import cores, cpu_name, quota
from pipelines.errors import WatchlineError, reason
from pipelines.predict.engines.openvino_import import import_openvino
from pipelines.redact import redact_url
from pipelines.sinks.display import display_there
from pipelines.sources.address import SCHEMES
from pipelines.sources.make_source import make_source
from pipelines.sources.network import speaks
from pipelines.watch import NullWatch

FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")
CODECS = ("h264", "hevc", "av1", "vp9", "mjpeg", "mpeg4")
FIRST_PICTURE_S = 15.0
"""Time for a source to give its first picture."""


def doctor(sources: Sequence[str], camera: Mapping[str, Any], results: StandardOutput) -> int:
    """Print the findings. Returns the exit code: 1 if a source does not answer. camera: given settings of cameras."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("cpu", _cpu),
        ("gpu", _gpu),
        ("engines", _engines),
        ("models", _models),
        ("decoders", _decoders),
        ("protocols", _protocols),
        ("display", _display),
        ("cameras", _cameras),
        ("memory", _memory),
        ("threads", _threads),
    ]
    for name, check in checks:
        results.put(f"{name:<10} {check()}")
    good = True
    for text in sources:
        settings = Settings(sources=(text,), reconnect=False, **camera)
        try:
            streams = plan(settings)
        except WatchlineError as error:
            results.put(f"{'source':<10} {error}")
            good = False
            continue
        for stream in streams:
            answer, answered = _reach(stream)
            address = redact_url(stream.spec.address if stream.spec.credentials or len(streams) > 1 else text)
            # Some errors already name the address.
            results.put(f"{'source':<10} {answer}" if address in answer else f"{'source':<10} {address}: {answer}")
            good &= answered
    return 0 if good else 1


def _cpu() -> str:
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    except (OSError, IndexError):
        flags = set()
    found = [f for f in FEATURES if f in flags]
    limit = quota()
    by = "" if limit is None else f" (this container may use {limit:.4g})"
    return f"{cpu_name()}, {cores()} cores may be used{by}; {', '.join(found) or 'no vector features known'}"


def _gpu() -> str:
    name = gpu_name()
    if name is None:
        return "none found (no NVIDIA driver); everything runs on the CPU"
    import torch

    return f"{name}, usable" if torch.cuda.is_available() else f"{name}, but torch cannot use it (torch {version('torch')})"


def _engines() -> str:
    found = []
    if importlib.util.find_spec("openvino"):
        can = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        found.append(f"openvino {version('openvino')} ({', '.join(sorted(c for c in can if c in ('FP32', 'BF16', 'INT8')))})")
    if importlib.util.find_spec("torch"):
        found.append(f"torch {version('torch')}")
    return "; ".join(found) or "none: reinstall watchline"


def _models() -> str:
    folder = build.cache_folder()
    kept = len(list(folder.glob("*/facts.json"))) if folder.is_dir() else 0
    return f"lite0 and probe work offline; {kept} converted and kept in {folder}"


def _decoders() -> str:
    import av

    return f"PyAV {av.__version__}, FFmpeg {av.ffmpeg_version_info}: {', '.join(c for c in CODECS if c in av.codecs_available)}"


def _protocols() -> str:
    found = {there: [s for s in SCHEMES if speaks(s) == there] for there in (True, False)}
    return ", ".join(["rtsp", "rtsps", *found[True]]) + (f"; not {', '.join(found[False])}" if found[False] else "")


def _display() -> str:
    if display_there(os.environ):
        return f"DISPLAY={os.environ.get('DISPLAY')}: --show opens a window"
    return "none: --show is refused, everything else works"


def _cameras() -> str:
    devices = sorted(str(p) for p in Path("/dev").glob("video*"))
    return ", ".join(devices) or "no local cameras (/dev/videoN)"


def _memory() -> str:
    shm = shutil.disk_usage("/dev/shm").free / 2**30 if Path("/dev/shm").is_dir() else 0.0
    free = psutil.virtual_memory().available / 2**30
    return f"{free:.1f} GiB available, {shm:.1f} GiB of shared memory free"


def _threads() -> str:
    lines = [f"{pool.library} {pool.threads}: {pool.why}" for pool in pools()]
    return ("\n" + " " * 11).join(lines)


def _reach(stream: StreamPlan) -> tuple[str, bool]:
    """Open a source and wait for its first picture, at most FIRST_PICTURE_S; in a thread of its own. Returns a text, and
    whether a picture came."""
    found: list[str] = []
    failed: list[str] = []
    stop = threading.Event()

    def look() -> None:
        began_s = time.monotonic()
        try:
            with closing(make_source(stream.spec, stop).frames(stop, NullWatch())) as captures:
                for capture in captures:
                    width, height = capture.picture.upright_size
                    rate = f", {float(capture.info.rate):.4g} fps" if capture.info.rate else ""
                    found.append(f"{width}x{height}{rate}, first picture after {time.monotonic() - began_s:.2f} s")
                    return
            failed.append("it ended without a picture")
        except Exception as error:
            failed.append(str(error) if isinstance(error, WatchlineError) else reason(error))

    thread = threading.Thread(target=look, name="doctor")
    thread.start()
    thread.join(FIRST_PICTURE_S)
    stop.set()
    thread.join()
    if found:
        return found[0], True
    return (failed[0] if failed and failed[0] else f"no picture within {FIRST_PICTURE_S:g} s"), False
