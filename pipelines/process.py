"""A child process that ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends, even if this process is stopped or deep in a library. Call it
    first in a child process.

    parent: the process id that the parent gave. False if the parent has ended already: the caller must end, too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
