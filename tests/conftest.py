"""What every test gets: a check that it leaves no thread and no process behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

GRACE_S = 1.0
"""How long a thread or process that is about to end may still need."""


def _threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if not t.daemon}


def _children() -> dict[int, str]:
    """Child processes by id, with their command lines; without multiprocessing's helpers, which stay by design."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, IndexError):
            continue  # it ended while we looked
        if parent == os.getpid() and "multiprocessing" not in command:
            found[int(stat.parent.name)] = command.strip() or "a zombie"
    return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a thread (not a daemon) or a child process that was not there before."""
    threads, children = _threads(), set(_children())
    yield
    end = time.monotonic() + GRACE_S
    for thread in _threads() - threads:
        thread.join(max(end - time.monotonic(), 0))
    left = [f"thread {t.name}" for t in _threads() - threads]
    left += [f"process {pid}: {command}" for pid, command in _children().items() if pid not in children]
    if left:
        pytest.fail(f"left behind: {'; '.join(left)}", pytrace=False)
