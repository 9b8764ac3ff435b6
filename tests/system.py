"""Parts of the system that a test needs: a skip with its reason, or a failure, if one is missing."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from typing import Any

import pytest

from tests.servers.process import SYSTEM_PYTHON


def seeds(count: int, usual: int = 8) -> list[Any]:
    """Seeds for a test of chance, as its parameters: a few by default, all `count` of them with `-m slow`."""
    return [*range(usual), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(usual, count))]


def need(*parts: str) -> None:
    """Skip the test, or the module that is being imported, unless the system has every part.

    A part is a program on PATH ("Xvfb", "xdotool", "ffmpeg"), "gst-rtsp-server" or "cuda". WATCHLINE_REQUIRE_ALL=1
    makes a missing part a failure, WATCHLINE_REQUIRE_CUDA=1 does for "cuda": so that a skip cannot hide for ever.
    """
    missing = [part for part in parts if not has(part)]
    if not missing:
        return
    reason = f"this system lacks {', '.join(missing)}"
    if any(_required(part) for part in missing):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


@cache
def has(part: str) -> bool:
    """Whether the system has the part (see `need`)."""
    if part == "cuda":
        return _has_cuda()
    if part == "gst-rtsp-server":
        return _has_gst_rtsp_server()
    return shutil.which(part) is not None


def _required(part: str) -> bool:
    return os.environ.get("WATCHLINE_REQUIRE_CUDA" if part == "cuda" else "WATCHLINE_REQUIRE_ALL") == "1"


def _has_cuda() -> bool:
    """Asked of the driver itself: importing torch for it takes seconds."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _has_gst_rtsp_server() -> bool:
    code = """
import gi
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gst, GstRtspServer
Gst.init(None)
for name in ("h264parse", "qtdemux", "rtph264pay", "parsebin"):
    assert Gst.ElementFactory.find(name), name
"""
    try:
        return subprocess.run([SYSTEM_PYTHON, "-I", "-c", code], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
