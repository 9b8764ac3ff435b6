"""Headers of H.264 and H.265 written bit by bit, for forms that no encoder at hand writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Writer:
    """Appends codes; `octets` ends it as a NAL unit ends."""

    def __init__(self) -> None:
        self._bits = ""

    def u(self, count: int, value: int) -> Writer:
        self._bits += f"{value:0{count}b}" if count else ""
        return self

    def ue(self, *values: int) -> Writer:
        for value in values:
            code = f"{value + 1:b}"
            self._bits += "0" * (len(code) - 1) + code
        return self

    def se(self, value: int) -> Writer:
        return self.ue(2 * value - 1 if value > 0 else -2 * value)

    def octets(self) -> bytes:
        bits = self._bits + "1"
        bits += "0" * (-len(bits) % 8)
        return _escaped(int(bits, 2).to_bytes(len(bits) // 8, "big"))


def _escaped(data: bytes) -> bytes:
    out = bytearray()
    for octet in data:
        if octet < 4 and out.endswith(b"\0\0"):
            out.append(3)
        out.append(octet)
    return bytes(out)


def annexed(nals: Iterable[bytes]) -> bytes:
    """NAL units behind start codes."""
    return b"".join(b"\0\0\0\1" + nal for nal in nals)


# H.264. Counts of 4 bits, output order by type 2 (not written).


def h264_sets(*, gaps_allowed: bool = False, frames_only: bool = True, high: bool = False) -> list[bytes]:
    """Parameter sets. high: a profile with scaling lists."""
    sequence = Writer().u(8, 100 if high else 66).u(8, 0).u(8, 30).ue(0)
    if high:
        sequence.ue(1, 0, 0).u(1, 0).u(1, 1)
        for k in range(8):
            sequence.u(1, k == 2)
            if k == 2:
                sequence.se(-8)  # the rest is as the default
    sequence.ue(0, 2, 4).u(1, gaps_allowed).ue(3, 3).u(1, frames_only)
    picture = Writer().ue(0, 0).u(2, 0).ue(0, 1, 0).u(3, 0).se(0).se(0).se(0).u(3, 0)
    return [b"\x67" + sequence.octets(), b"\x68" + picture.octets()]


def h264_slice(
    number: int, *, key: bool = False, leaned_on: bool = True, field: bool | None = None, operations: Sequence[int] = ()
) -> bytes:
    """A P slice (I if key) of the picture with the frame_num `number`. field: None if the sets allow no fields."""
    bits = Writer().ue(0, 7 if key else 5, 0).u(4, number)
    if field is not None:
        bits.u(1, field)
        if field:
            bits.u(1, 1)
    if key:
        bits.ue(0).u(2, 0)
    else:
        bits.u(1, 1).ue(4).u(1, 1).ue(0, 2, 3)  # five references, one of them moved
        if leaned_on:
            bits.u(1, bool(operations))
            if operations:
                for operation in operations:
                    bits.ue(operation, *{1: (0,), 3: (0, 0)}.get(operation, ()))
                bits.ue(0)
    return bytes([(0x60 if leaned_on or key else 0) | (5 if key else 1)]) + bits.octets()


def recovery(count: int) -> bytes:
    """H.264's message of a recovery point."""
    payload = Writer().ue(count).u(4, 0).octets()
    return b"\x06\x06" + bytes([len(payload)]) + payload + b"\x80"


# H.265. Order counts of 4 bits; two sets of references, the second told from the first.

NEAR = ((-1, True), (-2, True))


def h265_sets(*, distant: bool = False) -> list[bytes]:
    """Parameter sets, of two temporal layers. distant: with long-term references."""
    sequence = Writer().u(4, 0).u(3, 1).u(1, 1).u(96, 0).u(1, 1).u(1, 1).u(14, 0).u(88, 0).u(8, 0)
    sequence.ue(0, 1, 63, 63).u(1, 0).ue(0, 0, 0).u(1, 0).ue(1, 1, 1).ue(0, 0, 0, 0, 0, 0)
    sequence.u(1, 1).u(1, 1)
    for size in range(4):
        for _ in range(0, 6, 3 if size == 3 else 1):
            sequence.u(1, 0).ue(0)
    sequence.u(2, 0).u(1, 0).ue(2)
    _set(sequence, NEAR)
    # The first one's pictures and the picture itself, one further back: -2 and -3 are only kept, -1 is leaned on.
    sequence.u(1, 1).u(1, 1).ue(0).u(1, 0).u(1, 1).u(1, 0).u(1, 1).u(1, 1)
    sequence.u(1, distant)
    if distant:
        sequence.ue(1).u(4, 5).u(1, 1)
    picture = Writer().ue(0, 0).u(1, 0).u(1, 1).u(3, 2)
    return [b"\x42\x01" + sequence.octets(), b"\x44\x01" + picture.octets()]


def h265_slice(
    kind: int,
    order: int,
    references: Sequence[tuple[int, bool]] | int = 0,
    *,
    layer: int = 0,
    distant: Sequence[tuple[int, int | None]] | None = None,
) -> bytes:
    """A slice of type `kind`. references: distances and whether it leans on them, or the number of a set that is in the
    parameter sets. distant: pairs (lowest bits, cycles back or None); the first of them stands in the sets, if it is 5."""
    bits = Writer().u(1, 1)
    if 16 <= kind < 24:
        bits.u(1, 0)
    bits.ue(0).u(2, 0).ue(1).u(1, 1)
    if kind not in (19, 20):
        bits.u(4, order % 16)
        if isinstance(references, int):
            bits.u(1, 1).u(1, references)
        else:
            bits.u(1, 0).u(1, 0)
            _set(bits, references)
        if distant is not None:
            _distant(bits, distant)
    return bytes([kind << 1, layer + 1]) + bits.octets()


def _distant(bits: Writer, distant: Sequence[tuple[int, int | None]]) -> None:
    known = [pair for pair in distant if pair[0] == 5]
    others = [pair for pair in distant if pair[0] != 5]
    bits.ue(len(known), len(others))
    for low, cycles in known + others:
        if low != 5:
            bits.u(4, low).u(1, 1)
        bits.u(1, cycles is not None)
        if cycles is not None:
            bits.ue(cycles)


def _set(bits: Writer, references: Sequence[tuple[int, bool]]) -> None:
    before = [r for r in references if r[0] < 0]
    after = [r for r in references if r[0] > 0]
    bits.ue(len(before), len(after))
    for side in (before, after):
        last = 0
        for delta, used in side:
            bits.ue(abs(delta - last) - 1).u(1, used)
            last = delta
