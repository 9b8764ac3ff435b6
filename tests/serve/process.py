"""`watchline serve` in a process of its own."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.command import environ

COMMAND = (sys.executable, "-m", "app.cli", "serve", "--port", "0")


class Process:
    """The command, and its lines on standard error."""

    def __init__(self, *flags: str, env: Mapping[str, str] | None = None, before: tuple[str, ...] = ()) -> None:
        self.began_s = time.monotonic()
        self.lines: list[str] = []
        self.url = ""
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.popen = subprocess.Popen(
            [*before, *COMMAND, *flags],
            text=True,
            process_group=0,
            env={**environ(), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._read, name="serve's log")
        self._thread.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append(line.rstrip("\n"))
            self._new.put(line.rstrip("\n"))
        self._new.put(None)

    def until(self, words: str, limit_s: float = 60.0) -> str:
        """The first new line with these words."""
        end_s = time.monotonic() + limit_s
        while (line := self._new.get(timeout=max(end_s - time.monotonic(), 0.001))) is not None:
            if words in line:
                return line
        raise AssertionError(f"it ended without {words!r}: {self.lines}")

    def until_ready(self) -> float:
        """Seconds that it took."""
        found = re.search(r"http://\S+", self.until("ready after"))
        assert found is not None
        self.url = found[0]
        return time.monotonic() - self.began_s

    def end(self, number: int, limit_s: float = 10.0) -> float:
        """Send a signal and wait for the end: seconds that it took. `popen.returncode` is the exit code."""
        began_s = time.monotonic()
        self.popen.send_signal(number)
        self.popen.wait(limit_s)
        self._thread.join(limit_s)
        return time.monotonic() - began_s

    def children(self) -> list[int]:
        """The processes of the service, without the helper of multiprocessing."""
        return [pid for pid in children_of(self.popen.pid) if "resource_tracker" not in command_of(pid)]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, 9)
        self.popen.wait(10)
        self._thread.join(10)
        if self.popen.stderr is not None:
            self.popen.stderr.close()


@contextlib.contextmanager
def serving(
    *flags: str, env: Mapping[str, str] | None = None, before: tuple[str, ...] = (), wait: bool = True
) -> Iterator[Process]:
    """A service in a process of its own, ready unless told otherwise; killed at the end if it still runs."""
    process = Process(*flags, env=env, before=before)
    try:
        if wait:
            process.until_ready()
        yield process
    finally:
        process.kill()


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(k) for k in task.read_text().split()]
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descriptors(pid: int) -> int:
    """Open file descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_mb(pid: int) -> float:
    line = next(k for k in Path(f"/proc/{pid}/status").read_text().splitlines() if k.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
