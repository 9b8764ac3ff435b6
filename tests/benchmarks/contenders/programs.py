"""The compared programs, each run once in a process of its own: their output and their speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import environment

PEERS = Path(__file__).with_name("peers.py")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one program."""

    frames: int
    fps: float
    cpu_ms: float
    """CPU milliseconds of the process for each frame; from its first frame to its last if the program measures that."""
    versions: dict[str, str]
    share: float | None = None
    """Share of the limit by the parts alone; None unless the program measures it."""


Program = Callable[[Path, Path], Run]
"""Called with the clip and an empty folder for its outputs."""


def peer(who: str, env: str) -> Program:
    """One of `peers.py`."""

    def run(clip: Path, folder: Path) -> Run:
        python = environment.interpreter(env)
        text = _output([str(python), str(PEERS), who, str(clip), "--output", str(folder / "annotated.mp4")], folder)
        said = json.loads(text.splitlines()[-1])
        return Run(said["frames"], said["fps"], said["cpu_ms_per_frame"], said["versions"])

    return run


def watchline(*flags: str, annotated: bool = False) -> Program:
    """`watchline bench files`: end to end as `watchline run` does it, from the opening of the clip until all is written and
    closed, as the peers are timed; and its parts alone in the same run."""

    def run(clip: Path, folder: Path) -> Run:
        command = [sys.executable, "-m", "app.cli", "bench", "files", str(clip), "--frames", "1000000", "--json", *flags]
        command += ["-o", str(folder / "annotated.mp4")] if annotated else []
        said: dict[str, Any] = json.loads(_output(command, None))
        frames = sum(s["shown"] for s in said["streams"].values())
        return Run(frames, said["run_fps"], said["cpu_ms"], said["machine"]["versions"], said["share_of_limit"])

    return run


def _output(command: list[str], folder: Path | None) -> str:
    """The standard output of a program. Flags make it as quiet as it can be."""
    environ = {**os.environ, "DISABLE_VERSION_CHECK": "true", "TELEMETRY_OPT_OUT": "true", "METRICS_ENABLED": "false"}
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.strip()
