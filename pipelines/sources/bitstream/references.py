"""What a packet says of itself before it is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PacketVerdict:
    """missing: a picture that it, or one behind it, may lean on never came.

    renewed: all is right from it on, if all was right for so many packets before it too (a wave of intra refresh began
    there; 0: it is a key picture). None: it does not say so. key: False where the container's word for a key picture is
    not to be taken, for it only begins such a wave.
    """

    missing: bool = False
    renewed: int | None = None
    key: bool = True


NOTHING = PacketVerdict()


class Reader(Protocol):
    """Looks at every packet of a stream, in the order in which they are decoded. One thread; never raises: what makes no
    sense says nothing."""

    def configure(self, extradata: bytes | None) -> None:
        """Take what the container says before the first packet, or anew in the middle."""

    def look(self, data: bytes) -> PacketVerdict:
        """What the packet says."""


class Wave:
    """Intra refresh: a recovery point says after how many pictures all of the picture will have been renewed.

    Pictures are counted as their codec does: by a number that rises as they are decoded.
    """

    def __init__(self) -> None:
        self._until: int | None = None
        self._packets = 0

    def seen(self, number: int, *, missing: bool, key: bool, recovery: int | None) -> PacketVerdict:
        """What is to be said of picture `number`. recovery: the count in its recovery point."""
        if missing or key or recovery == 0:
            self._until = None
        elif recovery is not None and recovery > 0 and self._until is None:
            # One that is open goes on: what has been renewed when it ends was so before the next one's end.
            self._until, self._packets = number + recovery, -1
        if key or recovery == 0:
            return PacketVerdict(missing, 0)
        return PacketVerdict(missing, self._reached(number), key=recovery is None)

    def _reached(self, number: int) -> int | None:
        if self._until is None:
            return None
        self._packets += 1
        if number < self._until:
            return None
        self._until = None
        return self._packets
