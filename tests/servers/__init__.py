"""Servers to test against: a real RTSP server in a process of its own (here), and peers that misbehave (`peers`)."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

SYSTEM_PYTHON = "/usr/bin/python3"
"""GStreamer's Python bindings come with the system, not from PyPI."""
START_S = 30.0
"""GStreamer's first start on a machine looks through all its plugins."""


@dataclass(frozen=True, slots=True)
class Play:
    """A file played for ever at its own rate, not encoded again: H.264 or H.265, and AAC unless `sound` is False.

    drop: the share of RTP packets that get lost, 0-1.
    """

    path: Path
    sound: bool = True
    drop: float = 0.0


@dataclass(frozen=True, slots=True)
class PatternSpec:
    """A moving test picture in H.264. `line` replaces all of it: GStreamer elements up to one with name=pay0."""

    width: int = 320
    height: int = 240
    rate: int = 25
    gop: int = 25
    line: str | None = None

    def launch(self) -> str:
        """The elements in GStreamer's notation."""
        return self.line or (
            f"videotestsrc is-live=true pattern=ball ! video/x-raw,format=I420,width={self.width},height={self.height},"
            f"framerate={self.rate}/1 ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max={self.gop} "
            "! rtph264pay config-interval=-1 name=pay0 pt=96"
        )


class RtspServer:
    """GStreamer's RTSP server on 127.0.0.1, one mount per name, in a child process; TCP and UDP, shared by all clients.

    With a user, every request must carry user and password, by the one method that `auth` names. The child ends with
    the `with`, and with this process.
    """

    def __init__(
        self,
        mounts: Mapping[str, Path | Play | PatternSpec],
        *,
        user: str | None = None,
        password: str | None = None,
        auth: Literal["basic", "digest"] = "digest",
        port: int = 0,
    ) -> None:
        self.port = port
        """0 until the server has chosen one; it stays the same over `restart`."""
        self._user, self._password = user, password
        lines = {name: _order(mount) for name, mount in mounts.items()}
        self._order = {"user": user, "password": password, "auth": auth, "mounts": lines}
        self._child: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> RtspServer:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def url(self, name: str, *, credentials: bool = True, password: str | None = None) -> str:
        """Where the mount plays, with user and password (percent-encoded); `password` replaces the right one."""
        who = ""
        if credentials and self._user is not None:
            who = f"{quote(self._user, safe='')}:{quote(password or self._password or '', safe='')}@"
        return f"rtsp://{who}127.0.0.1:{self.port}/{name}"

    @property
    def pid(self) -> int:
        """The child's process id.

        :raises RuntimeError: if it does not run.
        """
        if self._child is None:
            raise RuntimeError("the RTSP server does not run")
        return self._child.pid

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
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen child go on: with the next packet, not with those that it would have sent."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill the child if it runs, and start it again on the same port."""
        self.kill()
        self._start()

    def log(self) -> str:
        """What the child has written to stderr, all starts together."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        if self._child is None:
            raise RuntimeError("the RTSP server does not run")
        self._child.send_signal(number)

    def _start(self) -> None:
        # The kernel's signal comes when the *thread* that started the child ends: only the main thread may ask for it.
        # For the others the closed stdin must do.
        tied = threading.current_thread() is threading.main_thread()
        script = Path(__file__).with_name("rtsp.py")
        self._child = subprocess.Popen(
            [SYSTEM_PYTHON, "-I", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({**self._order, "port": self.port, "pdeathsig": tied}).encode() + b"\n")
        self._child.stdin.flush()
        word, _, port = self._answer(self._child).partition(" ")
        if word != "ready":
            self.kill()
            raise RuntimeError(f"the RTSP server did not start: {self.log()}")
        self.port = int(port)

    @staticmethod
    def _answer(child: subprocess.Popen[bytes]) -> str:
        """The child's first line; what there is of it if the child ends or START_S passes."""
        assert child.stdout is not None
        end, line = time.monotonic() + START_S, b""
        while not line.endswith(b"\n") and select.select([child.stdout], [], [], max(end - time.monotonic(), 0))[0]:
            part = child.stdout.read1(100)
            if not part:
                break
            line += part
        return line.decode().strip()


def _order(mount: Path | Play | PatternSpec) -> dict[str, object]:
    if isinstance(mount, PatternSpec):
        return {"launch": mount.launch()}
    play = mount if isinstance(mount, Play) else Play(mount)
    return {"path": str(play.path), "sound": play.sound, "drop": play.drop}
