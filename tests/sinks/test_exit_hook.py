"""The hook that runs before a library ends the process. Each test has a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
import ctypes, os, sys
from pipelines.sinks.exit_hook import before_exit
def rescue():
    print("rescued", flush=True)
    os._exit(7)
for _ in range(2):
    with before_exit(rescue):
        if "inside" in sys.argv:
            ctypes.CDLL(None).exit(1)
print("out", flush=True)
if "after" in sys.argv:
    ctypes.CDLL(None).exit(1)
"""


@pytest.mark.parametrize(("where", "code", "said"), [("inside", 7, "rescued\n"), ("after", 1, "out\n"), ("never", 0, "out\n")])
def test_only_an_exit_within_is_announced(where: str, code: int, said: str) -> None:
    command = [sys.executable, "-c", CODE, where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
