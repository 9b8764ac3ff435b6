"""Watchline itself, run as users run it: the time at which it was ready, its JSON lines, and the camera's picture of each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.clock import Pushed

START_S = 120.0
"""The first use of a model converts it."""
STOP_S = 30.0
RATE = 25
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that was stopped."""

    ready_s: float
    stopped_s: float
    """When it was told to stop."""
    lines: dict[str, list[Line]]
    """By stream, in the order in which the streams first came."""


def watched(sources: Sequence[str], seconds: float, *flags: str) -> Watched:
    """Run with the default model for so long after it was ready, then stop it as Ctrl-C does.

    :raises RuntimeError: if it never got ready, or did not end well.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "frames.jsonl"
        command = [sys.executable, "-m", "app.cli", "run", *sources, "--no-show", "--jsonl", str(out), *flags]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as run:
            try:
                ready_s, stopped_s = _played(run, seconds)
            finally:
                run.kill()
        return Watched(ready_s, stopped_s, _by_stream(out))


def _played(run: subprocess.Popen[str], seconds: float) -> tuple[float, float]:
    """When it said that it was ready, and when it was told to stop."""
    assert run.stderr is not None
    said: list[str] = []
    with _Alarm(run, START_S):
        for line in run.stderr:
            said.append(line)
            if "ready after" in line:
                break
        else:
            raise RuntimeError(f"watchline did not get ready: {''.join(said)}")
    ready_s = time.monotonic()
    rest = threading.Thread(target=lambda: said.extend(run.stderr or ()))
    rest.start()
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
    stopped_s = time.monotonic()
    with _Alarm(run, STOP_S):
        code = run.wait()
        rest.join()
    if code != 128 + signal.SIGINT:
        raise RuntimeError(f"watchline ended with {code}: {''.join(said)}")
    return ready_s, stopped_s


class _Alarm:
    """Kills a process that is not done in time."""

    def __init__(self, run: subprocess.Popen[str], seconds: float) -> None:
        self._timer = threading.Timer(seconds, run.kill)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()


def _by_stream(path: Path) -> dict[str, list[Line]]:
    streams: dict[str, list[Line]] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        streams.setdefault(line["stream"], []).append(line)
    return streams


def by_time(lines: Sequence[Line], sent: Sequence[Pushed]) -> list[Pushed]:
    """The picture of the camera that each line speaks of, from its media time: RTP's timestamps count the camera's pictures.

    A session's first clean frame is a key picture, and it is the newest that was encoded before the frame arrived: the key
    picture before that is a second older. A reader that is a whole second late would be taken for a quick one; nothing less can
    be, and where the shown pictures are kept, their stamps are compared.

    :raises RuntimeError: if the camera was opened more than once, or never gave a clean picture.
    """
    clean = next((line for line in lines if line.get("cause") != "corrupt"), None)
    if clean is None or any(line["session"] for line in lines):
        raise RuntimeError("one session with a camera is needed, and a clean picture in it")
    key = [p for p in sent if p.key and p.encoded_s is not None and p.encoded_s <= clean["arrived_s"]][-1]
    return [sent[key.index + round(RATE * (line["pts_s"] - clean["pts_s"]))] for line in lines]
