"""A run at a terminal: its output there, and the outputs it finishes when the terminal is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.app.test_exit_codes import SLOW, wait_for_size
from tests.clips import lumas, numbered
from tests.command import PROBE, WATCHLINE, environ, read_lines

pytestmark = pytest.mark.timeout(60)
# A process takes a terminal as its own only as the first of a session.
OWN = "import fcntl, os, sys, termios; fcntl.ioctl(2, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A command with a terminal of its own as standard error, and a file as standard output."""

    def __init__(self, *args: str, out: Path) -> None:
        self._ours, theirs = os.openpty()
        with out.open("w") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-c", OWN, str(WATCHLINE), *args],
                env=environ(TERM="xterm"),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=theirs,
            )
        os.close(theirs)

    def read(self) -> str:
        """All that is said there until the command has ended."""
        said = b""
        while True:
            try:
                said += os.read(self._ours, 65536)
            except OSError:  # nobody has it open any more
                return said.decode()

    def close(self) -> None:
        """Close its window. Closing twice is fine."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1


@contextmanager
def terminal(*args: str, out: Path) -> Iterator[Terminal]:
    """The command, running at a terminal; killed at the end if it still does."""
    made = Terminal(*args, out=out)
    try:
        yield made
    finally:
        made.close()
        made.process.kill()
        made.process.wait()


def test_lines_on_standard_output_do_not_go_to_the_terminal(place: Path) -> None:
    """Where the progress is drawn."""
    numbered(place / "num.mp4")
    with terminal("run", "num.mp4", *PROBE, "--jsonl", "-", out=place / "lines") as window:
        said = window.read()
        assert window.process.wait() == 0
    assert [k["frame"] for k in read_lines(place / "lines")] == list(range(100))
    assert '"frame"' not in said
    assert "100 of 100 frames shown" in said


def test_a_terminal_that_is_closed_is_a_stop(place: Path) -> None:
    """SIGHUP, by the kernel and by the shell; and every word to a terminal that has gone is refused."""
    numbered(place / "num.mp4")
    outputs = ("-o", "out.mp4", "--jsonl", "-", "--report", "r.json")
    with terminal("run", "num.mp4", *PROBE, *SLOW, *outputs, out=place / "lines") as window:
        wait_for_size(place / "lines", 20_000)
        window.close()
        window.process.send_signal(signal.SIGHUP)
        assert window.process.wait() == 129
    lines = read_lines(place / "lines")
    assert len(list(lumas(place / "out.mp4"))) == sum(k["status"] == "ok" for k in lines) > 0
    assert (place / "r.json").stat().st_size > 0


def test_nohup_keeps_it_running(place: Path) -> None:
    numbered(place / "num.mp4")
    nohup = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = ["run", "num.mp4", *PROBE, "--probe-ms-per-frame", "10", "--jsonl", "lines"]
    with subprocess.Popen([sys.executable, "-c", nohup, str(WATCHLINE), *command], env=environ()) as process:
        wait_for_size(place / "lines", 1000)
        process.send_signal(signal.SIGHUP)
        assert process.wait() == 0
    assert len(read_lines(place / "lines")) == 100
