"""Plays a source in a thread of its own, as a lane does, and records its captures and reports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np

from pipelines.choices import RtspClientKind, RtspTransport
from pipelines.frame import Capture
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.sources.rtsp.rtsp_source import RtspSource
from pipelines.sources.source import Source
from pipelines.watch import PacketCounts
from tests.clips import number_of

PATIENCE_S = 20.0
"""Seconds after which a waiting test fails."""
SOON_S = 0.5
"""Seconds within which a source must end after its stop."""


READERS = ("native tcp", "native udp", "ffmpeg tcp", "ffmpeg udp")
"""All ways to read a camera over RTSP; each keeps the same promises."""


def camera(url: str, reader: str = "native tcp", limits: Timeouts | None = None) -> RtspSource:
    """A source that reads a camera in one of these ways."""
    client, transport = cast(tuple[RtspClientKind, RtspTransport], reader.split())
    return RtspSource(url, RtspOptions(client, transport, limits or Timeouts()))


class RecordingWatch:
    """A `Watch` that records all reports."""

    def __init__(self) -> None:
        self.decode_errors: list[str] = []
        self.faults: list[str] = []
        self.outages: list[tuple[float, str]] = []
        self.back = 0
        self.said: dict[str, str] = {}
        self.counts = PacketCounts()
        self._changed = threading.Condition()

    def decode_error(self, message: str) -> None:
        self.decode_errors.append(message)

    def fault(self, message: str) -> None:
        self.faults.append(message)

    def interrupted(self, since_s: float, message: str) -> None:
        with self._changed:
            self.outages.append((since_s, message))
            self._changed.notify_all()

    def resumed(self) -> None:
        self.back += 1

    def packets(self, counts: PacketCounts) -> None:
        with self._changed:
            self.counts += counts
            self._changed.notify_all()

    def once(self, key: str, message: str) -> None:
        self.said[key] = message

    def until_received(self, packets: int) -> None:
        """Wait until this many packets have been received."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.counts.received >= packets, PATIENCE_S), self.counts

    def until_interrupted(self, times: int = 1) -> None:
        """Wait for the `times`-th outage."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outages) >= times, PATIENCE_S)


class Player:
    """Plays a source in the thread `player`; leaving the `with` stops it and waits for it.

    The thread stores the captures and the error that ended it. stopped: set the stop before the start.
    """

    def __init__(self, source: Source, *, stopped: bool = False) -> None:
        self.source = source
        self.reports = RecordingWatch()
        self.captures: list[Capture] = []
        self.error: BaseException | None = None
        self._stop = threading.Event()
        if stopped:
            self._stop.set()
        self._changed = threading.Condition()
        self.ended = False
        self._thread = threading.Thread(target=self._play, name="player")

    def __enter__(self) -> Player:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _play(self) -> None:
        try:
            for capture in self.source.frames(self._stop, self.reports):
                with self._changed:
                    self.captures.append(capture)
                    self._changed.notify_all()
        except BaseException as error:
            self.error = error
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def until(self, count: int) -> list[Capture]:
        """Wait for this many captures and return all so far."""
        self._until(lambda: len(self.captures) >= count or self.ended)
        assert len(self.captures) >= count, f"ended after {len(self.captures)}: {self.error!r}"
        return self.captures[:]

    def until_one(self, wanted: Callable[[Capture], bool]) -> None:
        """Wait for a capture that meets a condition."""
        self._until(lambda: any(map(wanted, self.captures)) or self.ended)
        assert any(map(wanted, self.captures)), f"ended after {len(self.captures)}: {self.error!r}"

    def until_some(self) -> None:
        """Wait for the first capture, or for the end without one."""
        self._until(lambda: bool(self.captures) or self.ended)

    def until_session(self, session: int) -> Capture:
        """The first capture of a session."""
        self._until(lambda: any(c.session == session for c in self.captures) or self.ended)
        return next(c for c in self.captures if c.session == session)

    def until_ended(self, limit_s: float = PATIENCE_S) -> None:
        """Wait until the source ends without a stop."""
        self._until(lambda: self.ended, limit_s)

    def stop(self) -> float:
        """Stop the source; returns the seconds until it has ended."""
        began_s = time.monotonic()
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return time.monotonic() - began_s

    def _until(self, wanted: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
        with self._changed:
            assert self._changed.wait_for(wanted, limit_s), f"nothing for {limit_s:g} s; {len(self.captures)} captures"


def everything(source: Source, reports: RecordingWatch | None = None) -> list[Capture]:
    """All captures of a source that ends."""
    return list(source.frames(threading.Event(), reports or RecordingWatch()))


def first(source: Source, count: int) -> list[Capture]:
    """The first captures; the source is closed then."""
    captures = source.frames(threading.Event(), RecordingWatch())
    try:
        return list(islice(captures, count))
    finally:
        captures.close()


def numbers(captures: list[Capture], step: int = 2) -> list[int]:
    """The numbers of these pictures in a clip of `tests.clips`."""
    return [number_of(float(np.mean(c.picture.y)), step) for c in captures]


def descriptors() -> int:
    """Number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def open_files() -> set[str]:
    """Open file descriptors of this process, each with its number and target."""
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this very scan
            found.add(f"{entry.name} {os.readlink(entry.path)}")
    return found


class Transmitter:
    """A camera that sends MPEG-TS over TCP or HTTP: for each client an ffmpeg process repeats a file into its
    connection."""

    def __init__(self, path: Path, *options: str, http: bool = False) -> None:
        self._path, self._options, self._http = path, options, http
        self._children: list[subprocess.Popen[bytes]] = []
        self._awake = threading.Event()
        self._port = 0
        self.accepted = 0

    def __enter__(self) -> Transmitter:
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"{'http' if self._http else 'tcp'}://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """End all transmissions and refuse new clients. May be called more than once."""
        if not self._listener.fileno() >= 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the call of accept
        self._awake.set()
        self._thread.join()
        self._listener.close()
        self.hang_up()

    def restart(self) -> None:
        """Listen, or listen again at the same port."""
        self._awake.set()
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="transmitter")
        self._thread.start()

    def freeze(self) -> None:
        """Stop sending without closing connections; new clients are accepted and get no data."""
        self._awake.clear()
        for child in self._children:
            child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue sending."""
        for child in self._children:
            child.send_signal(signal.SIGCONT)
        self._awake.set()

    def hang_up(self) -> None:
        """End every transmission."""
        for child in self._children:
            child.kill()
            child.wait()
        self._children.clear()

    def _accept(self) -> None:
        command = ["ffmpeg", "-v", "error", "-re", "-stream_loop", "-1", "-i", str(self._path), *self._options]
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                with client:
                    self._awake.wait()
                    if self._http:
                        _answer(client)
                    child = subprocess.Popen(
                        [*command, "-c", "copy", "-f", "mpegts", "-flush_packets", "1", "pipe:1"],
                        stdout=client,
                        stdin=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                self._children.append(child)


def _answer(client: socket.socket) -> None:
    """Read an HTTP request and begin a response of unlimited length."""
    asked = b""
    while b"\r\n\r\n" not in asked and (part := client.recv(4096)):
        asked += part
    client.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\n\r\n")
