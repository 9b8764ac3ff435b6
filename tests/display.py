"""A screen without a monitor: Xvfb."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

Environ = dict[str, str]


def without_display(**more: str) -> Environ:
    """This process's environment without its display, and with the given variables."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "QT_QPA_PLATFORM")
    return {k: v for k, v in os.environ.items() if k not in hidden} | more


def start_xvfb(folder: Path, *options: str) -> tuple[subprocess.Popen[bytes], str]:
    """Xvfb on a free display, and the display's name."""
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-nocursor"]
    server = subprocess.Popen([*command, "-fbdir", str(folder), *options], pass_fds=(writing,), stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return server, f":{answer.readline().strip()}"
