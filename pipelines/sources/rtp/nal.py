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

RECOVERY_POINT = 6
MOST_MESSAGES = 32
"""SEI messages looked through in one NAL unit."""
SEI_LOOKED_AT = 4096
"""Octets of one SEI NAL unit looked at. Encoders put the recovery point before their long texts."""


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


def recovery_point(messages: bytes) -> int | None:
    """The count in a recovery point SEI (H.264 D.1.8, H.265 D.2.8), None if there is none in `messages`.

    H.264 codes it as ue(v), H.265 as se(v): nought is the same in both, and what is not nought is returned raw.
    """
    data = messages[:SEI_LOOKED_AT].replace(b"\0\0\3", b"\0\0")
    at = 0
    for _ in range(MOST_MESSAGES):
        kind, at = _long(data, at)
        size, at = _long(data, at)
        if at + size > len(data) or size == 0:
            return None
        if kind == RECOVERY_POINT:
            return _golomb(data[at : at + size])
        at += size
    return None


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number as SEI headers have it, octets of 255 and one more, and where it ends."""
    value = 0
    while at < len(data) and data[at] == 255:
        value += 255
        at += 1
    return (value + data[at], at + 1) if at < len(data) else (value, at)


def _golomb(data: bytes) -> int | None:
    """The first Exp-Golomb code (H.264 9.1)."""
    bits = "".join(f"{octet:08b}" for octet in data[:8])
    zeros = bits.find("1")
    if zeros < 0 or 2 * zeros + 1 > len(bits):
        return None
    return int(bits[zeros : 2 * zeros + 1], 2) - 1
