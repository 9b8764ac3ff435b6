"""Watch: the interface through which a source reports everything that is not a frame. The stream's ledger implements it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """Numbers of a stream's network packets. `lost`: packets that never reached the decoder."""

    received: int = 0
    lost: int = 0
    reordered: int = 0
    duplicated: int = 0

    def __add__(self, other: PacketCounts) -> PacketCounts:
        return PacketCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: PacketCounts) -> PacketCounts:
        return PacketCounts(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def as_dict(self) -> dict[str, int]:
        """The numbers by name, as the report has them."""
        return asdict(self)


class Watch(Protocol):
    """A source calls these methods from its own thread, while `Source.frames` runs."""

    def decode_error(self, message: str) -> None:
        """A packet, or a picture file, could not be decoded to a picture."""

    def fault(self, message: str) -> None:
        """Part of the source was lost, but the source continues. The run will end with exit code 1."""

    def interrupted(self, since_s: float, message: str) -> None:
        """A live source has given no picture since `since_s` (monotonic time) and is being opened again."""

    def resumed(self) -> None:
        """A live source gives pictures again, after `interrupted`."""

    def packets(self, counts: PacketCounts) -> None:
        """Add `counts` to the numbers of this stream."""

    def once(self, key: str, message: str) -> None:
        """Log a notice for the user. Later notices of the same stream with the same `key` are ignored."""


class NullWatch:
    """A `Watch` that ignores everything."""

    def decode_error(self, message: str) -> None: ...
    def fault(self, message: str) -> None: ...
    def interrupted(self, since_s: float, message: str) -> None: ...
    def resumed(self) -> None: ...
    def packets(self, counts: PacketCounts) -> None: ...
    def once(self, key: str, message: str) -> None: ...
