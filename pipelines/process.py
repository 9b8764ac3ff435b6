"""Processes: a child that ends with its parent, and resident memory."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import psutil

PR_SET_PDEATHSIG = 1


def resident_mb(pid: int | None = None) -> float:
    """Resident memory of a process, in MiB; 0.0 if the process has ended. pid: None for this process."""
    try:
        return float(psutil.Process(pid).memory_info().rss / 2**20)
    except (psutil.Error, OSError):
        return 0.0


def end_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends, even if this process is stopped or deep in a library. Call it
    first in a child process.

    parent: the process id that the parent gave. False if the parent has ended already: the caller must end, too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
