"""The parts that RTP depacketizers of H.264 and H.265 share: reassembly of NAL units, and their roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

NAL_MOST = 8 << 20
"""Most bytes of one NAL unit. A 4K key picture of the best quality has 2 to 4 MB and may be one NAL unit."""

SLICE, KEY, LEADING, PARAMETERS, SEI, TRAILING = 1, 2, 4, 8, 16, 32
"""Roles of a NAL unit, as bits. SLICE: picture data. KEY: of a key picture (IDR, IRAP). LEADING: of a picture that refers
to pictures before the preceding key picture (RASL). PARAMETERS: a parameter set. SEI: supplemental information. TRAILING:
comes after the slices of its picture (filler, H.265 suffix messages). 0: any other role."""


class NalUnits(Protocol):
    """A depacketizer: takes payloads in order and returns NAL units. Thread: one, the owner's. Invalid payloads set
    `damaged`; no method raises."""

    damaged: bool
    """A NAL unit was lost or invalid. The depacketizer sets it, the reader clears it."""

    @property
    def open(self) -> bool:
        """Whether a fragmented NAL unit has begun and not ended."""

    def take(self, payload: bytes) -> Iterable[bytes]:
        """The NAL units that `payload` completes, without start codes.

        :param payload: of the next RTP packet; not empty.
        """

    def drop(self) -> bool:
        """Discard the open NAL unit, because its next fragment will not come. Returns whether one was open."""

    def kind(self, nal: bytes) -> int:
        """The roles of a NAL unit, as bits."""

    def first(self, nal: bytes) -> bool:
        """Whether a slice is the first one of its picture."""

    def recovery(self, nal: bytes) -> int | None:
        """The count of the recovery point in an SEI NAL unit: pictures until the decoder's output is right; None if none."""


class Fragments:
    """Reassembles fragmented NAL units; base of both depacketizers.

    A fragment without a beginning, with another type or beyond NAL_MOST bytes sets `damaged`, as does a second beginning.
    """

    def __init__(self) -> None:
        self.damaged = False
        self._buffer = bytearray()
        self._kind = -1
        """The NAL unit type in the headers of the open unit's fragments; -1 if none is open."""

    @property
    def open(self) -> bool:
        return self._kind >= 0

    def drop(self) -> bool:
        if self._kind < 0:
            return False
        self._kind = -1
        # A new buffer, not clear(): it frees the memory of a large NAL unit.
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
        """The NAL units of an aggregation packet, each after a length of 16 bits, from byte `at` on.

        A length beyond the payload sets `damaged`.
        """
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
