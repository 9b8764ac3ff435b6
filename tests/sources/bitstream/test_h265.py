"""H.265's reference picture sets: the references of a picture, and whether they are there."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pipelines.sources.bitstream.h265 import H265Numbers
from pipelines.sources.bitstream.references import NO_VERDICT, PacketVerdict
from tests.sources.bitstream.writer import NEAR, annexed, h265_sets, h265_slice

SETS = h265_sets()
TRAIL, TRAIL_N, RASL, IDR, CRA, BLA = 1, 0, 9, 19, 21, 16
END = b"\x48\x01"


def _seen(packets: Sequence[bytes], sets: Sequence[bytes] = SETS) -> list[PacketVerdict]:
    reader = H265Numbers()
    reader.configure(annexed(sets))
    return [reader.look(packet) for packet in packets]


def _missing(*slices: bytes, sets: Sequence[bytes] = SETS) -> list[int]:
    return [k for k, seen in enumerate(_seen([annexed([one]) for one in slices], sets)) if seen.missing]


def _chain(orders: Sequence[int]) -> list[bytes]:
    """Pictures that lean on the one before, after a key picture."""
    return [h265_slice(IDR, 0), *(h265_slice(TRAIL, n, [(-1, True)]) for n in orders)]


def test_counts_that_rise_and_begin_again_after_16() -> None:
    assert _missing(*_chain(range(1, 50))) == []


def test_one_that_is_missing_is_felt_by_the_next() -> None:
    assert _missing(*_chain([1, 2, 4, 5])) == [3]
    assert _missing(*_chain([1, 2, 20, 21])) == [3]


def test_a_key_picture_that_is_missing() -> None:
    assert _missing(*_chain([1, 2, 3]), *_chain([1, 2])[1:]) == [4]


def test_only_what_a_picture_leans_on_must_be_there() -> None:
    kept = [(-1, True), (-2, False)]
    assert _missing(h265_slice(IDR, 0), h265_slice(TRAIL, 1, kept[:1]), h265_slice(TRAIL, 2, kept)) == []
    assert _missing(h265_slice(IDR, 0), h265_slice(TRAIL, 2, [(-2, True), (-1, False)][::-1])) == []


def test_what_was_let_go_is_gone() -> None:
    slices = [*_chain([1, 2]), h265_slice(TRAIL, 3, [(-1, True)]), h265_slice(TRAIL, 4, [(-1, True), (-3, True)])]
    assert _missing(*slices) == [4]


def test_sets_of_the_parameter_sets_one_told_from_the_other() -> None:
    assert _missing(*_chain([1]), h265_slice(TRAIL, 2, 0), h265_slice(TRAIL, 3, 0)) == []
    assert _missing(*_chain([1]), h265_slice(TRAIL, 3, 0)) == [2]
    # The second set leans on -1 only.
    assert _missing(*_chain([1, 2]), h265_slice(TRAIL, 3, 1)) == []
    assert _missing(h265_slice(IDR, 0), h265_slice(TRAIL, 1, 1), h265_slice(TRAIL, 3, 1)) == [2]


def test_leading_pictures_of_the_first_key_picture_are_left_out_by_decoders() -> None:
    leading = h265_slice(RASL, 4, [(-1, True), (1, True)])
    after = [h265_slice(TRAIL, 6, [(-1, True)]), h265_slice(TRAIL, 7, [(-1, True)])]
    assert _missing(h265_slice(CRA, 5, []), leading, *after) == []
    assert _missing(*_chain([1, 2]), h265_slice(CRA, 5, [(-3, False)]), leading, *after) == [4]
    assert _missing(*_chain([1, 2]), h265_slice(BLA, 5, []), leading, *after) == []


def test_behind_an_end_of_sequence_a_key_picture_begins_anew() -> None:
    leading = annexed([h265_slice(RASL, 4, [(-1, True)])])
    chain = [annexed([one]) for one in _chain([1, 2])]
    key = annexed([h265_slice(CRA, 5, [])])
    for joint in ([*chain[:2], chain[2] + annexed([END]), key], [*chain, annexed([END, h265_slice(CRA, 5, [])])]):
        assert not any(seen.missing for seen in _seen([*joint, leading]))
    assert _seen([*chain, key, leading])[-1].missing


def test_counts_are_told_from_anchors_only() -> None:
    """A picture of the higher temporal layer far ahead does not move the wrap of the counts."""
    high = h265_slice(TRAIL_N, 6, [(-6, True)], layer=1)
    assert _missing(h265_slice(IDR, 0), high, h265_slice(TRAIL, 7, [(-7, True)])) == []


def test_distant_references() -> None:
    sets = h265_sets(distant=True)
    start = [h265_slice(IDR, 0), *(h265_slice(TRAIL, n, [(-1, True)], distant=()) for n in range(1, 6))]
    short = [h265_slice(TRAIL, n, [(-1, True)], distant=((5, None),)) for n in range(6, 20)]
    whole = [h265_slice(TRAIL, n, [(-1, True)], distant=((5, n // 16),)) for n in range(20, 60)]
    assert _missing(*start, *short, *whole, sets=sets) == []
    assert _missing(*start[:-1], *short, sets=sets)[0] == 5
    other = h265_slice(TRAIL, 20, [(-1, True)], distant=((5, None), (11, None)))
    assert _missing(*start, *short, other, sets=sets) == [20]


def test_pictures_of_other_layers_are_passed_over() -> None:
    other = bytes([TRAIL << 1, 1 << 3 | 1]) + h265_slice(TRAIL, 9, NEAR)[2:]
    assert _missing(*_chain([1]), other, *_chain([1, 2])[2:]) == []


def test_key_pictures() -> None:
    slices = [*_chain([1, 2]), h265_slice(CRA, 3, []), h265_slice(TRAIL, 4, [(-1, True)])]
    assert [seen.renewed for seen in _seen([annexed([one]) for one in slices])] == [0, None, None, 0, None]


def test_nonsense_says_nothing() -> None:
    dice = random.Random(3)
    good = annexed([*SETS, *_chain([])])
    for size in range(300):
        noise = bytes(dice.choices(range(256), k=size))
        assert isinstance(_seen([noise, annexed([noise]), good[:size]], [noise])[0], PacketVerdict)
    assert _seen([b"", b"\0\0\1", b"\0\0\1\x42\x01", b"\0\0\1\x02\x01\x80"], ()) == [NO_VERDICT] * 4
