"""H.264's frame numbers: real gaps, and those that only look like one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pipelines.sources.bitstream.h264 import H264Numbers
from pipelines.sources.bitstream.references import NO_VERDICT, PacketVerdict
from tests.sources.bitstream.writer import annexed, h264_sets, h264_slice, recovery

SETS = h264_sets()


def _seen(packets: Sequence[bytes], sets: Sequence[bytes] = SETS) -> list[PacketVerdict]:
    reader = H264Numbers()
    reader.configure(annexed(sets))
    return [reader.look(packet) for packet in packets]


def _missing(*slices: bytes, sets: Sequence[bytes] = SETS) -> list[int]:
    return [k for k, seen in enumerate(_seen([annexed([one]) for one in slices], sets)) if seen.missing]


def _numbered(*numbers: int) -> list[bytes]:
    return [h264_slice(n % 16, key=n == 0) for n in numbers]


def test_numbers_that_rise_by_one_and_begin_again_after_16() -> None:
    assert _missing(*_numbered(*range(40), 0, 1, 2)) == []


@pytest.mark.parametrize("lost", [1, 7, 15, 16, 17])
def test_one_that_is_missing(lost: int) -> None:
    assert _missing(*_numbered(*(n for n in range(20) if n != lost))) == [lost]


def test_a_key_picture_that_is_missing() -> None:
    assert _missing(*_numbered(*range(10), 1, 2)) == [10]


def test_fifteen_that_are_missing_leave_the_same_number_twice() -> None:
    assert _missing(*_numbered(*range(3), *range(18, 20))) == [3]


def test_pictures_on_which_none_leans_share_a_number_and_may_be_missing() -> None:
    first, second = (h264_slice(2, leaned_on=False) for _ in range(2))
    before, after = _numbered(0, 1), _numbered(2, 3)
    for between in ([first, second], [first], []):
        assert _missing(*before, *between, *after) == []


def test_a_picture_on_which_none_leans_shows_that_one_before_it_is_missing() -> None:
    assert _missing(*_numbered(0, 1), h264_slice(3, leaned_on=False), *_numbered(3)) == [2, 3]


def test_two_fields_share_a_number() -> None:
    sets = h264_sets(frames_only=False)
    fields = [h264_slice(n // 2, field=True) for n in range(10)]
    assert _missing(h264_slice(0, key=True, field=True), *fields[1:], sets=sets) == []
    frames = [h264_slice(n, field=False) for n in (1, 2, 2)]
    assert _missing(h264_slice(0, key=True, field=False), *frames, sets=sets) == [3]


def test_an_encoder_that_may_leave_numbers_out() -> None:
    assert _missing(*_numbered(0, 1, 5, 9), sets=h264_sets(gaps_allowed=True)) == []


def test_after_a_reset_the_count_begins_anew() -> None:
    slices = [*_numbered(0, 1), h264_slice(2, operations=(1, 3, 5)), *_numbered(17, 18)]
    assert _missing(*slices) == []
    slices[2] = h264_slice(2, operations=(1, 3))
    assert _missing(*slices) == [3]


def test_a_profile_with_scaling_lists() -> None:
    assert _missing(*_numbered(0, 1, 3), sets=h264_sets(high=True)) == [2]


def test_joining_in_the_middle_is_no_gap() -> None:
    assert _missing(*_numbered(7, 8, 9)) == []


def test_lengths_in_place_of_start_codes() -> None:
    sps, pps = SETS
    box = b"\x01\x42\0\x1e\xff\xe1" + len(sps).to_bytes(2, "big") + sps + b"\x01" + len(pps).to_bytes(2, "big") + pps
    reader = H264Numbers()
    reader.configure(box)
    packets = [len(s).to_bytes(4, "big") + s for s in _numbered(0, 1, 3)]
    assert [reader.look(packet).missing for packet in packets] == [False, False, True]


def test_parameter_sets_within_the_packets() -> None:
    packets = [annexed([*SETS, one]) for one in _numbered(0, 1, 3)]
    assert [seen.missing for seen in _seen(packets, ())] == [False, False, True]


def test_key_pictures_and_recovery_points() -> None:
    slices = _numbered(*range(12))
    packets = [annexed([one]) for one in slices]
    packets[4] = annexed([recovery(3), slices[4]])
    packets[9] = annexed([recovery(0), slices[9]])
    seen = _seen(packets)
    assert [(k, s.renewed) for k, s in enumerate(seen) if s.renewed is not None] == [(0, 0), (7, 3), (9, 0)]
    assert [k for k, s in enumerate(seen) if not s.key] == [4]


def test_a_wave_in_which_one_is_missing_renews_nothing() -> None:
    slices = _numbered(*range(6), *range(7, 12))
    packets = [annexed([one]) for one in slices]
    packets[4] = annexed([recovery(4), slices[4]])
    assert [s.renewed for s in _seen(packets)][1:] == [None] * 10


def test_nonsense_says_nothing() -> None:
    dice = random.Random(3)
    good = annexed([*SETS, *_numbered(0)])
    for size in range(300):
        noise = bytes(dice.choices(range(256), k=size))
        assert isinstance(_seen([noise, annexed([noise]), good[:size]], [noise])[0], PacketVerdict)
    assert _seen([b"", b"\0\0\1", b"\0\0\1\x67", b"\0\0\1\x61"], ()) == [NO_VERDICT] * 4
