"""The verdict on a packet before it is decoded: are its references complete, and is it a point of recovery?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PacketVerdict:
    """Facts about one packet, read from the headers of its NAL units."""

    missing: bool = False
    """A picture that this one, or a later one, may refer to never came."""
    renewed: int | None = None
    """The pictures are right from this packet on, if the last `renewed` packets before it were right too: an intra refresh
    wave began there. 0: a key picture. None: unknown."""
    key: bool = True
    """Whether the container's key picture flag is to be believed. False if the picture only begins an intra refresh wave."""


NO_VERDICT = PacketVerdict()


class Reader(Protocol):
    """Inspects every packet of a stream in decoding order. Thread: one, the owner's.

    No method raises: for invalid data the verdict is NO_VERDICT.
    """

    def configure(self, extradata: bytes | None) -> None:
        """Take the container's header of the stream, before the first packet or anew in the middle."""

    def look(self, data: bytes) -> PacketVerdict:
        """The verdict on the next packet.

        :param data: the packet's bytes, framed as the header tells.
        """


class Wave:
    """Follows intra refresh: a recovery point gives the number of pictures until every part of the picture is renewed.

    Pictures are counted by their codec's number, which rises in decoding order.
    """

    def __init__(self) -> None:
        self._until: int | None = None
        self._packets = 0

    def seen(self, number: int, *, missing: bool, key: bool, recovery: int | None) -> PacketVerdict:
        """The verdict on a picture.

        :param number: of the picture, in decoding order.
        :param missing: a reference never came.
        :param key: a key picture.
        :param recovery: the count in the picture's recovery point, None without one.
        """
        if missing or key or recovery == 0:
            self._until = None
        elif recovery is not None and recovery > 0 and self._until is None:
            # An open wave continues, because it ends before one that begins now.
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
