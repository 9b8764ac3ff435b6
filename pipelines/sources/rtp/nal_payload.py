"""What H.264 and H.265 share on RTP: NAL units in pieces, and what a NAL unit is for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

NAL_MOST = 8 << 20
"""A key picture of 4K at its best is 2 to 4 MB, and that may be one NAL unit."""

SLICE, KEY, LEADING, PARAMETERS, SEI, TRAILING = 1, 2, 4, 8, 16, 32
"""What a NAL unit is for, as bits: picture data, of a key picture (IDR, IRAP), of a picture that refers to what was
before the key picture that it follows (RASL), a parameter set, supplemental information, something that comes behind
the slices of its picture (filler, H.265's suffix messages). 0: anything else."""


class NalUnits(Protocol):
    """A depacketizer: payloads in order in, NAL units out. One thread; never raises, whatever the payload is."""

    damaged: bool
    """Something that should have become a NAL unit was lost or was no sense. Whoever reads it sets it back."""

    @property
    def open(self) -> bool:
        """A fragmented NAL unit has begun and not ended."""

    def take(self, payload: bytes) -> Iterable[bytes]:
        """The NAL units that `payload` completes, without start codes; `payload` is not empty."""

    def drop(self) -> bool:
        """Forget a NAL unit that has begun, because what comes is not its rest. Whether there was one."""

    def kind(self, nal: bytes) -> int:
        """What it is for, as bits."""

    def first(self, nal: bytes) -> bool:
        """Whether a slice is the first one of its picture."""

    def recovery(self, nal: bytes) -> int | None:
        """What an SEI says of the recovery point: how many pictures until all is right again. None if nothing."""


class Fragments:
    """A NAL unit that comes in pieces. What has no beginning, an end too early or another type is damage."""

    def __init__(self) -> None:
        self.damaged = False
        self._buffer = bytearray()
        self._kind = -1
        """The type in its fragments' headers, -1 while none is open."""

    @property
    def open(self) -> bool:
        return self._kind >= 0

    def drop(self) -> bool:
        if self._kind < 0:
            return False
        self._kind = -1
        # Not clear(): the memory of a large one goes back.
        self._buffer = bytearray()
        return True

    def _begin(self, kind: int, header: bytes, piece: bytes) -> None:
        if self.drop():
            self.damaged = True
        self._kind = kind
        self._buffer += header
        self._buffer += piece

    def _go_on(self, kind: int, piece: bytes) -> None:
        if kind != self._kind or len(self._buffer) + len(piece) > NAL_MOST:
            self.drop()
            self.damaged = True
            return
        self._buffer += piece

    def _end(self) -> tuple[bytes, ...]:
        if self._kind < 0:
            return ()
        nal = bytes(self._buffer)
        self.drop()
        return (nal,)

    def _aggregate(self, payload: bytes, at: int) -> list[bytes]:
        """NAL units behind lengths of 16 bits, from `at` on. A length that lies is damage."""
        found: list[bytes] = []
        while at + 2 <= len(payload):
            size = payload[at] << 8 | payload[at + 1]
            if at + 2 + size > len(payload):
                break
            if size:
                found.append(payload[at + 2 : at + 2 + size])
            at += 2 + size
        if at != len(payload):
            self.damaged = True
        return found
