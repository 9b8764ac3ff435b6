"""H.264's own count of pictures: frame_num (7.4.3), which rises by one behind every picture that others may lean on."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.sources.bitstream.bits import Bits, Nonsense, unescaped
from pipelines.sources.bitstream.framing import h264_framing
from pipelines.sources.bitstream.nal import H264Nal as Nal
from pipelines.sources.bitstream.references import NOTHING, PacketVerdict, Wave
from pipelines.sources.bitstream.sei import recovery_point

WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 134, 135, 138, 139)
"""Profiles whose parameter sets describe the chroma and hold scaling lists (7.3.2.1.1)."""
P, B, I, SP, SI = range(5)  # noqa: E741 - the standard's names
RESET = 5
"""The memory management operation that makes the count begin anew (7.4.3.3)."""
HEADER = 40
"""Octets of a slice that hold its frame_num."""
WHOLE_HEADER = 1024


@dataclass(frozen=True, slots=True)
class SequenceSet:
    """What counts of a sequence parameter set."""

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
    """What counts of a picture parameter set. `sequence`: the id of the set that it builds on."""

    sequence: int
    field_order: bool
    plain: bool
    """The rest could be read."""
    references: tuple[int, int] = (1, 1)
    weighted: bool = False
    weighted_b: int = 0
    redundant: bool = False


class H264Numbers:
    """Looks at the frame_num of each packet's first slice. Streams whose encoder may leave numbers out say nothing."""

    def __init__(self) -> None:
        self._framing = h264_framing(None)
        self._sequences: dict[int, SequenceSet] = {}
        self._pictures: dict[int, PictureSet] = {}
        self._last: int | None = None
        """The frame_num of the last picture that others may lean on; None before the first."""
        self._last_slice = b""
        self._wave = Wave()
        self._count = 0
        """Such pictures so far: this count never begins anew."""

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
                except (Nonsense, KeyError):
                    return NOTHING
            if kind in (Nal.SPS, Nal.PPS):
                self._parameters(nal)
            elif kind == Nal.SEI and recovery is None:
                recovery = recovery_point(nal[1:])
        return NOTHING

    def _parameters(self, nal: bytes) -> None:
        kind = nal[0] & 31 if nal else 0
        try:
            if kind == Nal.SPS:
                number, sequence = _sequence_set(Bits(unescaped(nal[1:])))
                self._sequences[number] = sequence
            elif kind == Nal.PPS:
                number, picture = _picture_set(Bits(unescaped(nal[1:])))
                self._pictures[number] = picture
        except Nonsense:
            return

    def _slice(self, nal: bytes, recovery: int | None) -> PacketVerdict:
        bits = Bits(unescaped(nal[1:HEADER]))
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
        """whole: it is a picture, not the second field of the one before."""
        if self._last is None or number == (self._last + 1) % wrap or (number == self._last and not whole):
            return False
        # After a reset the picture before counts as number 0.
        return not (number in (0, 1) and self._reset())

    def _reset(self) -> bool:
        """Whether the last picture that others lean on made the count begin anew. True where that cannot be read."""
        try:
            return RESET in _operations(self._last_slice, self._sequences, self._pictures)
        except (Nonsense, KeyError):
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
        return number, PictureSet(sequence, field_order, plain=False)  # slice groups: nobody sends them
    references = (bits.ue(31) + 1, bits.ue(31) + 1)
    weighted, weighted_b = bool(bits.u(1)), bits.u(2)
    bits.se()
    bits.se()
    bits.se()
    bits.u(2)
    return number, PictureSet(sequence, field_order, True, references, weighted, weighted_b, bool(bits.u(1)))


def _operations(nal: bytes, sequences: dict[int, SequenceSet], pictures: dict[int, PictureSet]) -> list[int]:
    """The memory management operations of a slice (7.3.3.3).

    :raises Nonsense: if its header cannot be read.
    """
    key = nal[0] & 31 == Nal.IDR
    bits = Bits(unescaped(nal[1:]))
    bits.ue()
    kind = bits.ue(9) % 5
    picture = pictures[bits.ue(255)]
    sequence = sequences[picture.sequence]
    if not picture.plain:
        raise Nonsense
    if sequence.separate_planes:
        bits.u(2)
    bits.u(sequence.frame_num_bits)
    field = not sequence.frames_only and bool(bits.u(1))
    if field:
        bits.u(1)
    if key:
        return []
    _pass_order(bits, sequence, picture, field)
    references = _references(bits, kind, picture)
    for _ in range({P: 1, SP: 1, B: 2}.get(kind, 0)):
        _pass_modifications(bits)
    if (picture.weighted and kind in (P, SP)) or (picture.weighted_b == 1 and kind == B):
        _pass_weights(bits, references if kind == B else references[:1], sequence.chroma)
    return _marking(bits) if bits.u(1) else []


def _pass_order(bits: Bits, sequence: SequenceSet, picture: PictureSet, field: bool) -> None:
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


def _pass_modifications(bits: Bits) -> None:
    if bits.u(1):
        while bits.ue(5) != 3:
            bits.ue()


def _pass_weights(bits: Bits, references: tuple[int, ...], chroma: bool) -> None:
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
