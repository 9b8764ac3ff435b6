"""What every source is: one function that runs until it ends or fails. Retry, pacing and looping are wrappers around it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import asdict, dataclass, fields
from typing import Protocol

from pipelines.frame import Capture


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """What the network did to the packets of a stream. `lost`: those that the decoder never got."""

    received: int = 0
    lost: int = 0
    reordered: int = 0
    duplicated: int = 0

    def __add__(self, more: PacketCounts) -> PacketCounts:
        return PacketCounts(*(getattr(self, f.name) + getattr(more, f.name) for f in fields(self)))

    def __sub__(self, less: PacketCounts) -> PacketCounts:
        return PacketCounts(*(getattr(self, f.name) - getattr(less, f.name) for f in fields(self)))

    def as_dict(self) -> dict[str, int]:
        """By name, for the report."""
        return asdict(self)


class Watch(Protocol):
    """Whom a source tells what is not a frame. The stream's ledger is one."""

    def decode_error(self, message: str) -> None:
        """A packet or a picture file gave no picture."""

    def fault(self, message: str) -> None:
        """Part of the source was lost although it went on: the run will end with 1."""

    def interrupted(self, since_s: float, message: str) -> None:
        """A live source has given no picture since `since_s` (monotonic) and is being opened again."""

    def resumed(self) -> None:
        """Pictures come again."""

    def packets(self, counts: PacketCounts) -> None:
        """So many more packets came, or did not."""

    def once(self, key: str, message: str) -> None:
        """Something that a person should know, said the first time only."""


class Source(Protocol):
    """Where captures come from."""

    live: bool
    """Whether frames age: a camera, or a file that is paced as one."""

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        """Open, yield every picture in presentation order, close. Everything happens in the calling thread.

        Returns at the end of the data or soon after `stop` is set. Whoever leaves before closes it, in the thread that ran
        it: container and decoder are let go there, and in no other thread.

        :raises SourceError: if it cannot be opened or breaks off.
        """


class Unheard:
    """A `Watch` where nobody listens."""

    def decode_error(self, message: str) -> None: ...
    def fault(self, message: str) -> None: ...
    def interrupted(self, since_s: float, message: str) -> None: ...
    def resumed(self) -> None: ...
    def packets(self, counts: PacketCounts) -> None: ...
    def once(self, key: str, message: str) -> None: ...
