"""A server that is a script in a process of its own, run by the system's python3, which has GStreamer's bindings.

The script takes one line of JSON on stdin and answers `ready PORT`; it ends when its stdin is closed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

SYSTEM_PYTHON = "/usr/bin/python3"
"""GStreamer's Python bindings come with the system, not from PyPI."""
START_S = 30.0
"""GStreamer's first start on a machine looks through all its plugins."""


class ServerProcess:
    """Runs a script of this folder inside a `with`. The child ends with the `with`, and with this process."""

    def __init__(self, script: str, order: Mapping[str, object], *, port: int = 0) -> None:
        """order: the script's arguments, without port and pdeathsig."""
        self.port = port
        """0 until the server has chosen one; it stays the same over `restart`."""
        self._script = Path(__file__).with_name(script)
        self._order = order
        self._child: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    @property
    def pid(self) -> int:
        """The child's process id.

        :raises RuntimeError: if it does not run.
        """
        return self._running().pid

    def kill(self) -> None:
        """End the child as a power cut does (SIGKILL): clients see their connection closed. Killing twice is fine."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    def freeze(self) -> None:
        """Stop the child without closing anything: clients see silence, new ones are accepted and never answered."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen child go on: with the next packet, not with those that it would have sent."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill the child if it runs, and start it again on the same port."""
        self.kill()
        self._start()

    def tell(self, line: str) -> None:
        """Have the child do something that its script knows, and wait until it has begun.

        :raises RuntimeError: if it does not run, or does not answer.
        """
        child = self._running()
        assert child.stdin is not None
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        if self._answer(child) != "done":
            raise RuntimeError(f"{self._script.name} did not {line}: {self.log()}")

    def log(self) -> str:
        """All that the child has written to stderr, all starts together."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise RuntimeError(f"{self._script.name} does not run")
        return self._child

    def _start(self) -> None:
        # The kernel's signal comes when the *thread* that started the child ends: only the main thread may ask for it.
        # For the others the closed stdin must do.
        tied = threading.current_thread() is threading.main_thread()
        self._child = subprocess.Popen(
            [SYSTEM_PYTHON, "-E", "-s", str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({**self._order, "port": self.port, "pdeathsig": tied}).encode() + b"\n")
        self._child.stdin.flush()
        word, _, port = self._answer(self._child).partition(" ")
        if word != "ready":
            self.kill()
            raise RuntimeError(f"{self._script.name} did not start: {self.log()}")
        self.port = int(port)

    @staticmethod
    def _answer(child: subprocess.Popen[bytes]) -> str:
        """The child's next line; a part of it if the child ends or START_S passes."""
        assert child.stdout is not None
        end, line = time.monotonic() + START_S, b""
        while not line.endswith(b"\n") and select.select([child.stdout], [], [], max(end - time.monotonic(), 0))[0]:
            part = os.read(child.stdout.fileno(), 100)
            if not part:
                break
            line += part
        return line.decode().strip()
