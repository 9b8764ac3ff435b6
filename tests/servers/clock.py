"""Cameras with the time of capture in each picture and a list of the sent pictures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.servers.process import ServerProcess

Codec = Literal["h264", "h265"]
POLL_S = 0.02


@dataclass(slots=True)
class Pushed:
    """A picture of a camera, with the camera's own facts. Times are `time.monotonic()`."""

    index: int
    """From 0, since the camera's first client came."""
    due_s: float
    stamp_s: float
    """When it was taken: before it was drawn."""
    encoded_s: float | None = None
    key: bool = False
    dropped: list[int] = field(default_factory=list)
    """Sequence numbers of its RTP packets that were lost."""

    @property
    def stamp(self) -> int:
        """The number that `read_stamp` finds in it."""
        return int(1e3 * self.stamp_s) & 0xFFFFFFFF


class ClockCamera(ServerProcess):
    """Cameras on 127.0.0.1 with stamped pictures, shared by all clients, TCP and UDP (see clockcam.py)."""

    def __init__(
        self,
        count: int = 1,
        codec: Codec = "h264",
        *,
        size: tuple[int, int] = (1280, 720),
        rate: int = 25,
        key_every: int = 25,
        always_on: bool = False,
        drop: float = 0.0,
        dropping: range = range(0),
    ) -> None:
        """size: (width, height), multiples of 16. always_on: the cameras do not wait for a client to begin.
        drop: the share of RTP packets that get lost, 0-1, of the pictures in `dropping`: all others come whole, so that a
        client that sees the first and the last of these has seen every loss.
        """
        self._folder = tempfile.TemporaryDirectory()
        self._record = Path(self._folder.name) / "log"
        order = {
            "count": count,
            "codec": codec,
            "size": size,
            "rate": rate,
            "key_every": key_every,
            "always_on": always_on,
            "drop": drop,
            "drop_from": dropping.start,
            "drop_to": dropping.stop,
            "log": str(self._record),
        }
        super().__init__("clockcam.py", order)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._folder.cleanup()

    def url(self, number: int = 0) -> str:
        """Where the camera plays."""
        return f"rtsp://127.0.0.1:{self.port}/cam{number}"

    def pushed(self, number: int = 0) -> list[Pushed]:
        """The camera's pictures so far, since its last start (the last client gone, a camera begins anew with the next)."""
        pictures: list[Pushed] = []
        for line in self._record.read_text().splitlines():
            word, camera, index, *rest = line.split()
            if int(camera) != number:
                continue
            if word == "pushed":
                if index == "0":
                    pictures.clear()
                pictures.append(Pushed(int(index), *map(float, rest)))
            elif int(index) < len(pictures):
                _note(pictures[int(index)], word, rest)
        return pictures

    def until_pushed(self, number: int, wanted: Callable[[list[Pushed]], bool], limit_s: float = 10.0) -> list[Pushed]:
        """The camera's pictures, as soon as they are as wanted.

        :raises TimeoutError: if they are not within the limit.
        """
        end_s = time.monotonic() + limit_s
        while not wanted(pictures := self.pushed(number)):
            if time.monotonic() > end_s:
                raise TimeoutError(f"{len(pictures)} pictures after {limit_s:g} s: {self.log()}")
            time.sleep(POLL_S)
        return pictures


def _note(picture: Pushed, word: str, rest: list[str]) -> None:
    if word == "encoded":
        picture.encoded_s, picture.key = float(rest[0]), rest[1] == "1"
    elif word == "dropped":
        picture.dropped.append(int(rest[0]))
