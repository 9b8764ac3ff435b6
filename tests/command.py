"""The command `watchline`, in this process (quick) or in one of its own (signals, windows, files that it leaves behind)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli import main

WATCHLINE = Path(sys.executable).with_name("watchline")
PROBE = ("--model", "probe", "--no-show")
HIDDEN = ("DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def errors(self) -> list[str]:
        """Lines of standard error, without those of a good run."""
        usual = ("model ", "ready after ", "latency p50 ", "annotated video: ", "JSON lines: ", "report: ")
        return [k for k in self.err.splitlines() if not k.startswith(usual) and " frames shown from " not in k]


@dataclass(frozen=True, slots=True)
class Demo:
    """The output of `watchline demo`, and the folder in which it ran."""

    folder: Path
    done: Done


def watchline(*args: str) -> Done:
    """Run a command in this process. Not for signals and windows."""
    out, err = io.StringIO(), io.StringIO()
    switch_s = sys.getswitchinterval()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            sys.setswitchinterval(switch_s)
    return Done(code, out.getvalue(), err.getvalue())


def environ(**more: str) -> dict[str, str]:
    """This environment without a display."""
    return {k: v for k, v in os.environ.items() if k not in HIDDEN} | more


def finished(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run the installed command to its end."""
    command = [str(WATCHLINE), *args]
    done = subprocess.run(command, cwd=cwd, env=env or environ(), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return Done(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def running(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """The installed command, running in a process group of its own; killed at the end if it still does."""
    process = subprocess.Popen(
        [str(WATCHLINE), *args],
        cwd=cwd,
        env=env or environ(),
        text=True,
        process_group=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def values(lines: Sequence[Mapping[str, Any]], stream: str | None = None) -> list[tuple[int, str]]:
    """Frame number and first label of each line, of one stream if it is named."""
    return [(k["frame"], k["labels"][0]["name"]) for k in lines if stream in (None, k["stream"])]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
