"""Finds missing H.265 reference pictures by the reference picture set in every slice header (7.4.8, 8.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.sources.bitstream.bits import Bits, InvalidBits, signed, unescaped
from pipelines.sources.bitstream.framing import h265_framing
from pipelines.sources.bitstream.nal import H265Nal as Nal
from pipelines.sources.bitstream.references import NO_VERDICT, PacketVerdict, Wave
from pipelines.sources.bitstream.sei import recovery_point

NO_ANCHOR = (*range(0, 15, 2), 7, 9)
"""NAL unit types of non-reference and leading pictures. Later order counts are not relative to them (8.3.1)."""
END_OF_SEQUENCE = (b"\0\0\1\x48\1", b"\0\0\0\2\x48\1")
"""The NAL unit, which is a header only, behind a start code or its length."""
MOST_SETS = 64
MOST_PICTURES = 16
"""Most pictures of a reference picture set (A.4.2)."""
SLICE_HEADER_BYTES = 256
"""Bytes of a slice that are enough to read its reference picture set."""
Delta = tuple[int, bool]
"""Distance to a picture in output order, and whether the current picture refers to it (else only a later one may)."""


@dataclass(frozen=True, slots=True)
class References:
    """A short-term reference picture set: the pictures before and after in output order, nearest first."""

    before: tuple[Delta, ...] = ()
    after: tuple[Delta, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceSet:
    """The fields of a sequence parameter set that slice headers need."""

    separate_planes: bool
    order_bits: int
    """Bits of the order count in a slice header."""
    sets: tuple[References, ...]
    distant: tuple[tuple[int, bool], ...] | None
    """Long-term pictures: lowest bits of the order count, and whether the current picture refers to it. None if the stream
    has no long-term pictures."""


@dataclass(frozen=True, slots=True)
class PictureSet:
    """The fields of a picture parameter set that slice headers need."""

    sequence: int
    """The id of its sequence parameter set."""
    output_flag: bool
    extra_bits: int


class H265Numbers:
    """Keeps the order counts of the available pictures, as a decoder does, and checks the references of each picture."""

    def __init__(self) -> None:
        self._framing = h265_framing(None)
        self._sequences: dict[int, SequenceSet] = {}
        self._pictures: dict[int, PictureSet] = {}
        self._available: set[int] = set()
        """Order counts of the pictures in the decoder's buffer."""
        self._anchor = 0
        """Order count to which the next one is relative (8.3.1)."""
        self._fresh = True
        """Before the first picture, or after an end of sequence. Decoders skip pictures that refer to earlier ones."""
        self._leading_lost = False
        """Whether decoders skip the RASL pictures of the last key picture."""
        self._wave = Wave()

    def configure(self, extradata: bytes | None) -> None:
        self._framing = h265_framing(extradata)
        for nal in self._framing.parameter_sets:
            self._parameters(nal)

    def look(self, data: bytes) -> PacketVerdict:
        try:
            return self._picture(data)
        except (InvalidBits, KeyError, IndexError):
            return NO_VERDICT
        finally:
            # An end of sequence follows the last slice, or comes alone before the next picture.
            if data.endswith(END_OF_SEQUENCE):
                self._fresh = True

    def _picture(self, data: bytes) -> PacketVerdict:
        recovery: int | None = None
        for nal in self._framing.nals(data):
            if len(nal) < 2 or nal[0] & 1 or nal[1] >> 3:
                continue  # of another layer
            kind = nal[0] >> 1 & 63
            if kind < 32:
                return self._slice(nal, kind, recovery)
            if kind in (Nal.SPS, Nal.PPS):
                self._parameters(nal)
            elif kind == Nal.END_OF_SEQUENCE:
                self._fresh = True
            elif kind == Nal.SEI and recovery is None:
                code = recovery_point(nal[2:])
                recovery = None if code is None else signed(code)
        return NO_VERDICT

    def _parameters(self, nal: bytes) -> None:
        kind = nal[0] >> 1 & 63 if len(nal) > 2 else 0
        try:
            if kind == Nal.SPS:
                number, sequence = _sequence_set(Bits(unescaped(nal[2:])))
                self._sequences[number] = sequence
            elif kind == Nal.PPS:
                number, picture = _picture_set(Bits(unescaped(nal[2:])))
                self._pictures[number] = picture
        except (InvalidBits, IndexError):
            return

    def _slice(self, nal: bytes, kind: int, recovery: int | None) -> PacketVerdict:
        bits = Bits(unescaped(nal[2:SLICE_HEADER_BYTES]))
        if not bits.u(1):
            return NO_VERDICT  # not the first of its picture
        if kind in Nal.IRAP:
            bits.u(1)
        picture = self._pictures[bits.ue(63)]
        sequence = self._sequences[picture.sequence]
        bits.u(picture.extra_bits)
        bits.ue(2)
        if picture.output_flag:
            bits.u(1)
        if sequence.separate_planes:
            bits.u(2)
        alone = kind in Nal.IDR or kind in Nal.BLA or (kind in Nal.IRAP and self._fresh)
        order = 0 if kind in Nal.IDR else self._order(bits.u(sequence.order_bits), sequence.order_bits, alone)
        if kind in Nal.IRAP:
            self._leading_lost = alone
        self._fresh = False
        if kind in Nal.RASL and self._leading_lost:
            return NO_VERDICT
        if alone:
            self._available.clear()
        missing = False if kind in Nal.IDR else self._missing(bits, sequence, order, alone)
        self._available.add(order)
        if nal[1] & 7 == 1 and kind not in NO_ANCHOR:
            self._anchor = order
        return self._wave.seen(order, missing=missing, key=kind in Nal.IRAP, recovery=recovery)

    def _order(self, low: int, bits: int, alone: bool) -> int:
        """The order count of a picture (8.3.1).

        :param low: its lowest bits, from the slice header.
        :param bits: number of these bits.
        :param alone: the picture starts a sequence: the higher bits are zero.
        """
        wrap = 1 << bits
        if alone:
            return low
        most_back = wrap // 2 - 1
        return self._anchor + (low - self._anchor + most_back) % wrap - most_back

    def _missing(self, bits: Bits, sequence: SequenceSet, order: int, alone: bool) -> bool:
        """Read the reference picture set of picture `order`, and remove all other pictures from the available ones.

        Returns whether a picture is missing to which this one refers; False for a picture that starts a sequence (`alone`).
        """
        if bits.u(1):
            count = len(sequence.sets)
            near = sequence.sets[bits.u((count - 1).bit_length()) if count > 1 else 0]
        else:
            near = _references(bits, sequence.sets, in_slice=True)
        named = [(order + delta, used) for delta, used in (*near.before, *near.after)]
        if sequence.distant is not None:
            named += self._distant(bits, sequence, order)
        lacking = any(used and number not in self._available for number, used in named)
        self._available &= {number for number, _ in named}
        return lacking and not alone

    def _distant(self, bits: Bits, sequence: SequenceSet, order: int) -> list[tuple[int, bool]]:
        """The long-term pictures of picture `order`, named by their order count or only by its lowest bits (7.4.7.1)."""
        known = sequence.distant or ()
        from_set = bits.ue(MOST_SETS) if known else 0
        total = from_set + bits.ue(MOST_SETS)
        wrap, cycles = 1 << sequence.order_bits, 0
        named: list[tuple[int, bool]] = []
        for k in range(total):
            if k < from_set:
                low, used = known[bits.u((len(known) - 1).bit_length())]
            else:
                low, used = bits.u(sequence.order_bits), bool(bits.u(1))
            if k in (0, from_set):
                cycles = 0
            if bits.u(1):
                cycles += bits.ue()
                named.append((order - cycles * wrap - order % wrap + low, used))
            else:
                found = [number for number in self._available if number % wrap == low]
                named.append((found[0] if found else low - wrap, used))
        return named


def _sequence_set(bits: Bits) -> tuple[int, SequenceSet]:
    bits.u(4)
    layers = bits.u(3)
    bits.u(1)
    _skip_profile(bits, layers)
    number = bits.ue(15)
    separate = bits.ue(3) == 3 and bool(bits.u(1))
    bits.ue()
    bits.ue()
    if bits.u(1):
        for _ in range(4):
            bits.ue()
    bits.ue()
    bits.ue()
    order_bits = bits.ue(12) + 4
    for _ in range(layers + 1 if bits.u(1) else 1):
        for _ in range(3):
            bits.ue()
    for _ in range(6):
        bits.ue()
    if bits.u(1) and bits.u(1):
        _skip_scaling(bits)
    bits.u(2)
    if bits.u(1):
        bits.u(8)
        bits.ue()
        bits.ue()
        bits.u(1)
    sets: list[References] = []
    for _ in range(bits.ue(MOST_SETS)):
        sets.append(_references(bits, sets))
    distant = None
    if bits.u(1):
        distant = tuple((bits.u(order_bits), bool(bits.u(1))) for _ in range(bits.ue(32)))
    return number, SequenceSet(separate, order_bits, tuple(sets), distant)


def _skip_profile(bits: Bits, layers: int) -> None:
    """Skip profile_tier_level (7.3.3)."""
    bits.u(96)
    flags = [(bits.u(1), bits.u(1)) for _ in range(layers)]
    if layers:
        bits.u(2 * (8 - layers))
    for profile, level in flags:
        bits.u(88 * profile + 8 * level)


def _skip_scaling(bits: Bits) -> None:
    """Skip scaling_list_data (7.3.4)."""
    for size in range(4):
        for _ in range(0, 6, 3 if size == 3 else 1):
            if not bits.u(1):
                bits.ue()
                continue
            for _ in range(min(64, 1 << (4 + 2 * size)) + (size > 1)):
                bits.se()


def _picture_set(bits: Bits) -> tuple[int, PictureSet]:
    number, sequence = bits.ue(63), bits.ue(15)
    bits.u(1)
    return number, PictureSet(sequence, bool(bits.u(1)), bits.u(3))


def _references(bits: Bits, sets: Sequence[References], *, in_slice: bool = False) -> References:
    """Read the st_ref_pic_set that comes after `sets` (7.3.7, 7.4.8)."""
    if sets and bits.u(1):
        return _predicted(bits, sets[-1 - bits.ue(len(sets) - 1) if in_slice else -1])
    before, after = bits.ue(MOST_PICTURES), bits.ue(MOST_PICTURES)
    return References(_deltas(bits, before, -1), _deltas(bits, after, 1))


def _deltas(bits: Bits, count: int, sign: int) -> tuple[Delta, ...]:
    deltas: list[Delta] = []
    delta = 0
    for _ in range(count):
        delta += sign * (bits.ue(1 << 15) + 1)
        deltas.append((delta, bool(bits.u(1))))
    return tuple(deltas)


def _predicted(bits: Bits, base: References) -> References:
    """Read a set that is coded relative to `base`: its pictures shifted by a distance, and that distance (7-61, 7-62)."""
    negative = bits.u(1)
    move = (1 - 2 * negative) * (bits.ue(1 << 15) + 1)
    kept: dict[int, bool] = {}
    for delta in [d for d, _ in (*base.before, *base.after)] + [0]:
        used = bool(bits.u(1))
        if used or bits.u(1):
            kept[delta + move] = used
    before = tuple((d, kept[d]) for d in sorted(kept, reverse=True) if d < 0)
    return References(before, tuple((d, kept[d]) for d in sorted(kept) if d > 0))
