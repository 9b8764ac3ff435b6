"""Finds missing H.264 reference pictures by frame_num (7.4.3), which rises by one after every reference picture."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.sources.bitstream.bits import Bits, InvalidBits, unescaped
from pipelines.sources.bitstream.framing import h264_framing
from pipelines.sources.bitstream.nal import H264Nal as Nal
from pipelines.sources.bitstream.references import NO_VERDICT, PacketVerdict, Wave
from pipelines.sources.bitstream.sei import recovery_point

WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 134, 135, 138, 139)
"""Profiles with chroma format and scaling lists in their parameter sets (7.3.2.1.1)."""
P, B, I, SP, SI = range(5)  # noqa: E741 - the standard's names
RESET = 5
"""The memory management control operation that restarts frame_num (7.4.3.3)."""
FRAME_NUM_BYTES = 40
"""Bytes of a slice that are enough to read its frame_num."""
WHOLE_HEADER = 1024
"""Bytes of a slice that are enough to read its memory management control operations."""


@dataclass(frozen=True, slots=True)
class SequenceSet:
    """The fields of a sequence parameter set that slice headers need."""

    separate_planes: bool
    chroma: bool
    frame_num_bits: int
    gaps_allowed: bool
    order_type: int
    order_bits: int
    order_always_zero: bool
    frames_only: bool


@dataclass(frozen=True, slots=True)
class PictureSet:
    """The fields of a picture parameter set that slice headers need."""

    sequence: int
    """The id of its sequence parameter set."""
    field_order: bool
    plain: bool
    """Whether the fields below were read; False for a set with slice groups."""
    references: tuple[int, int] = (1, 1)
    weighted: bool = False
    weighted_b: int = 0
    redundant: bool = False


class H264Numbers:
    """Checks the frame_num of each packet's first slice. It never reports a missing picture if the encoder may skip numbers
    (gaps_in_frame_num_allowed_flag)."""

    def __init__(self) -> None:
        self._framing = h264_framing(None)
        self._sequences: dict[int, SequenceSet] = {}
        self._pictures: dict[int, PictureSet] = {}
        self._last: int | None = None
        """The frame_num of the last reference picture; None before the first."""
        self._last_slice = b""
        self._wave = Wave()
        self._count = 0
        """Number of reference pictures so far; unlike frame_num it never restarts."""

    def configure(self, extradata: bytes | None) -> None:
        self._framing = h264_framing(extradata)
        for nal in self._framing.parameter_sets:
            self._parameters(nal)

    def look(self, data: bytes) -> PacketVerdict:
        recovery: int | None = None
        for nal in self._framing.nals(data):
            kind = nal[0] & 31 if nal else 0
            if kind in (Nal.SLICE, Nal.PARTITION_A, Nal.IDR):
                try:
                    return self._slice(nal, recovery)
                except (InvalidBits, KeyError):
                    return NO_VERDICT
            if kind in (Nal.SPS, Nal.PPS):
                self._parameters(nal)
            elif kind == Nal.SEI and recovery is None:
                recovery = recovery_point(nal[1:])
        return NO_VERDICT

    def _parameters(self, nal: bytes) -> None:
        kind = nal[0] & 31 if nal else 0
        try:
            if kind == Nal.SPS:
                number, sequence = _sequence_set(Bits(unescaped(nal[1:])))
                self._sequences[number] = sequence
            elif kind == Nal.PPS:
                number, picture = _picture_set(Bits(unescaped(nal[1:])))
                self._pictures[number] = picture
        except InvalidBits:
            return

    def _slice(self, nal: bytes, recovery: int | None) -> PacketVerdict:
        bits = Bits(unescaped(nal[1:FRAME_NUM_BYTES]))
        begins = bits.ue() == 0
        bits.ue()
        sequence = self._sequences[self._pictures[bits.ue(255)].sequence]
        if sequence.separate_planes:
            bits.u(2)
        number = bits.u(sequence.frame_num_bits)
        whole = begins and (sequence.frames_only or not bits.u(1))
        key = nal[0] & 31 == Nal.IDR
        missing = not key and not sequence.gaps_allowed and self._gap(number, 1 << sequence.frame_num_bits, whole)
        count = self._count + (key or number != self._last)
        if nal[0] & 0x60:
            self._last, self._last_slice, self._count = number, nal[:WHOLE_HEADER], count
        return self._wave.seen(count, missing=missing, key=key, recovery=recovery)

    def _gap(self, number: int, wrap: int, whole: bool) -> bool:
        """Whether a reference picture is missing before the one with frame_num `number`.

        :param wrap: one more than the highest frame_num.
        :param whole: a picture, not the second field of the one before.
        """
        if self._last is None or number == (self._last + 1) % wrap or (number == self._last and not whole):
            return False
        # After a reset the previous picture has number 0.
        return not (number in (0, 1) and self._reset())

    def _reset(self) -> bool:
        """Whether the last reference picture restarted frame_num. True if its header cannot be read."""
        try:
            return RESET in _operations(self._last_slice, self._sequences, self._pictures)
        except (InvalidBits, KeyError):
            return True


def _sequence_set(bits: Bits) -> tuple[int, SequenceSet]:
    profile = bits.u(8)
    bits.u(16)
    number = bits.ue(31)
    chroma, separate = 1, False
    if profile in WITH_CHROMA:
        chroma = bits.ue(3)
        separate = chroma == 3 and bool(bits.u(1))
        bits.ue()
        bits.ue()
        bits.u(1)
        if bits.u(1):
            for k in range(12 if chroma == 3 else 8):
                if bits.u(1):
                    _scaling_list(bits, 16 if k < 6 else 64)
    frame_num_bits = bits.ue(12) + 4
    order_type = bits.ue(2)
    order_bits, always_zero = 0, False
    if order_type == 0:
        order_bits = bits.ue(12) + 4
    elif order_type == 1:
        always_zero = bool(bits.u(1))
        bits.se()
        bits.se()
        for _ in range(bits.ue(255)):
            bits.se()
    bits.ue()
    gaps_allowed = bool(bits.u(1))
    bits.ue()
    bits.ue()
    frames_only = bool(bits.u(1))
    with_chroma = chroma > 0 and not separate
    return number, SequenceSet(
        separate, with_chroma, frame_num_bits, gaps_allowed, order_type, order_bits, always_zero, frames_only
    )


def _scaling_list(bits: Bits, size: int) -> None:
    last, coming = 8, 8
    for _ in range(size):
        if coming:
            coming = (last + bits.se()) % 256
        last = coming or last


def _picture_set(bits: Bits) -> tuple[int, PictureSet]:
    number, sequence = bits.ue(255), bits.ue(31)
    bits.u(1)
    field_order = bool(bits.u(1))
    if bits.ue():
        return number, PictureSet(sequence, field_order, plain=False)  # slice groups, which cameras do not use
    references = (bits.ue(31) + 1, bits.ue(31) + 1)
    weighted, weighted_b = bool(bits.u(1)), bits.u(2)
    bits.se()
    bits.se()
    bits.se()
    bits.u(2)
    return number, PictureSet(sequence, field_order, True, references, weighted, weighted_b, bool(bits.u(1)))


def _operations(nal: bytes, sequences: dict[int, SequenceSet], pictures: dict[int, PictureSet]) -> list[int]:
    """The memory management control operations of a slice (7.3.3.3).

    :raises InvalidBits: if its header cannot be read.
    """
    key = nal[0] & 31 == Nal.IDR
    bits = Bits(unescaped(nal[1:]))
    bits.ue()
    kind = bits.ue(9) % 5
    picture = pictures[bits.ue(255)]
    sequence = sequences[picture.sequence]
    if not picture.plain:
        raise InvalidBits
    if sequence.separate_planes:
        bits.u(2)
    bits.u(sequence.frame_num_bits)
    field = not sequence.frames_only and bool(bits.u(1))
    if field:
        bits.u(1)
    if key:
        return []
    _skip_order(bits, sequence, picture, field)
    references = _references(bits, kind, picture)
    for _ in range({P: 1, SP: 1, B: 2}.get(kind, 0)):
        _skip_modifications(bits)
    if (picture.weighted and kind in (P, SP)) or (picture.weighted_b == 1 and kind == B):
        _skip_weights(bits, references if kind == B else references[:1], sequence.chroma)
    return _marking(bits) if bits.u(1) else []


def _skip_order(bits: Bits, sequence: SequenceSet, picture: PictureSet, field: bool) -> None:
    two = picture.field_order and not field
    if sequence.order_type == 0:
        bits.u(sequence.order_bits)
        if two:
            bits.se()
    elif sequence.order_type == 1 and not sequence.order_always_zero:
        bits.se()
        if two:
            bits.se()
    if picture.redundant:
        bits.ue()


def _references(bits: Bits, kind: int, picture: PictureSet) -> tuple[int, ...]:
    if kind == B:
        bits.u(1)
    if kind in (P, SP, B) and bits.u(1):
        return tuple(bits.ue(31) + 1 for _ in range(2 if kind == B else 1))
    return picture.references


def _skip_modifications(bits: Bits) -> None:
    if bits.u(1):
        while bits.ue(5) != 3:
            bits.ue()


def _skip_weights(bits: Bits, references: tuple[int, ...], chroma: bool) -> None:
    bits.ue()
    if chroma:
        bits.ue()
    for count in references:
        for _ in range(count):
            if bits.u(1):
                bits.se()
                bits.se()
            if chroma and bits.u(1):
                for _ in range(4):
                    bits.se()


def _marking(bits: Bits) -> list[int]:
    found: list[int] = []
    while operation := bits.ue(6):
        found.append(operation)
        for _ in range({1: 1, 2: 1, 3: 2, 4: 1, 6: 1}.get(operation, 0)):
            bits.ue()
    return found
