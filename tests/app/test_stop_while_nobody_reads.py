"""A stop ends the run within 3 s, also if no process reads its JSON lines, with the window and without."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import WATCHLINE, environ
from tests.display import Environ

pytestmark = pytest.mark.timeout(60)
STOP_S = 3.0
PIPE = 4 * 4096
"""Four pages: the kernel takes a piece while a whole page is free."""
RUN = ("run", "synthetic:64x64@100", "--model", "probe", "--jsonl")


def waiting(descriptor: int) -> int:
    """Bytes that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), "little")


def fill(reading: int) -> None:
    """Until the pipe takes no line any more: every 10 ms one comes."""
    before = -1
    while waiting(reading) < PIPE // 4 or waiting(reading) != before:
        before = waiting(reading)
        select.select([], [], [], 0.2)


def never(reading: int) -> None:
    fill(reading)


def slowly(reading: int) -> None:
    for _ in range(3):
        fill(reading)
        os.read(reading, 600)


def goes_away(reading: int) -> None:
    fill(reading)
    os.close(reading)


@pytest.mark.parametrize("reader", [never, slowly, goes_away])
@pytest.mark.parametrize("place", ["pipe", "fifo"])
@pytest.mark.parametrize("show", [True, False], ids=["window", "no window"])
def test_a_stop(tmp_path: Path, display: Environ, show: bool, place: str, reader: Callable[[int], None]) -> None:
    if place == "pipe":
        reading, writing = os.pipe()
        jsonl = "-"
    else:
        jsonl, writing = str(tmp_path / "fifo"), os.open(os.devnull, os.O_WRONLY)
        os.mkfifo(jsonl)
        reading = os.open(jsonl, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE)
    command = [str(WATCHLINE), *RUN, jsonl, "--show" if show else "--no-show"]
    process = subprocess.Popen(
        command, env=display if show else environ(), stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    try:
        reader(reading)
        assert ends_after(process) == 143
    finally:
        process.kill()
        process.communicate()
        if reader is not goes_away:
            os.close(reading)


@pytest.mark.parametrize("show", [True, False], ids=["window", "no window"])
def test_a_stop_while_a_fifo_has_no_reader(tmp_path: Path, display: Environ, show: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    report, video = tmp_path / "report.json", tmp_path / "out.mp4"
    outputs = ("--report", str(report), "-o", str(video))
    command = [str(WATCHLINE), *RUN, str(tmp_path / "fifo"), "--show" if show else "--no-show", *outputs]
    process = subprocess.Popen(
        command, env=display if show else environ(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while not (video.exists() and video.stat().st_size > 4096):  # frames are shown
            assert process.poll() is None
            select.select([], [], [], 0.02)
        assert ends_after(process) == 143
    finally:
        process.kill()
        process.communicate()
    assert "nobody reads it" in report.read_text()


def ends_after(process: subprocess.Popen[str]) -> int:
    """Send SIGTERM; the exit code, if the process ends in time."""
    if process.poll() is not None:
        return 143 if process.returncode == 1 else process.returncode  # its only reader went away: there is nothing to do
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(2 * STOP_S)
    assert time.monotonic() - began_s < STOP_S
    return code
