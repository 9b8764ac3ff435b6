"""The command in a process of its own, with its time and its peak memory."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.command import Done, environ

CODE = """
import re, sys
from app.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
sys.stdout.flush()
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(f"peak {peak}", file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """A command that has ended. peak_mb: the most memory that it had at one time."""

    done: Done
    seconds: float
    peak_mb: float


def measured(*args: str, cwd: Path, limit_s: float = 30.0) -> Measured:
    """Run the command to its end.

    :raises subprocess.TimeoutExpired: if that takes longer; it is killed then.
    """
    began_s = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *args],
        cwd=cwd,
        env=environ(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=limit_s,
    )
    err, _, peak = ran.stderr.rpartition("peak ")
    assert peak.strip().isdigit(), f"ended by {ran.returncode}: {ran.stderr[-500:]}"
    return Measured(Done(ran.returncode, ran.stdout, err), time.monotonic() - began_s, int(peak) / 1024)
