"""Shared parts of the tests of the RTSP client."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pipelines.sources.rtsp.received import Received
from pipelines.sources.rtsp.rtsp_client import RtspClient
from tests.sources.play import open_files

SECRET = "geh3im"


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Stopping(Clock):
    """Sets the stop when it is asked for the time so often: in the midst of a wait, at any pace of the machine."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.stop = threading.Event()
        self._left = times

    def __call__(self) -> float:
        self._left -= 1
        if self._left == 0:
            self.stop.set()
        return self.now_s


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    """No test leaves a descriptor open. (One of an earlier test may be closed meanwhile, by the garbage collector.)"""
    before = open_files()
    yield
    assert open_files() - before == set()


def received(client: RtspClient, count: int) -> list[Received]:
    """So many packets, and the rest that came with the last of them."""
    packets: list[Received] = []
    for _ in range(2000):
        packets += client.receive(0.05)
        if len(packets) >= count:
            return packets
    raise AssertionError(f"{len(packets)} packets")
