"""Payloads to NAL units, one packet at a time."""

from __future__ import annotations

import random

import pytest

from pipelines.sources.rtp.h264_payload import H264
from pipelines.sources.rtp.h265_payload import H265
from pipelines.sources.rtp.nal_payload import KEY, LEADING, NAL_MOST, PARAMETERS, SEI, SLICE, TRAILING, Fragments, NalUnits
from tests.sources.rtp.packetize import CODECS, Codec, fragments, payloads, stream

SLICES: dict[Codec, bytes] = {"h264": b"\x65" + bytes(range(1, 100)), "h265": b"\x26\x01" + bytes(range(1, 100))}
OTHERS: dict[Codec, bytes] = {"h264": b"\x41abc", "h265": b"\x02\x01abc"}


def make(codec: Codec) -> H264 | H265:
    return H264() if codec == "h264" else H265()


def run(units: NalUnits, *each: bytes) -> list[bytes]:
    return [nal for payload in each for nal in units.take(payload)]


def pieces(codec: Codec, count: int = 5) -> list[bytes]:
    """A NAL unit in `count` fragments."""
    nal, head = SLICES[codec], 1 if codec == "h264" else 2
    found = [payload for payload, _ in fragments(codec, nal, -(-(len(nal) - head) // count) + head + 1)]
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
class TestBoth:
    @pytest.mark.parametrize("mtu", [40, 100, 1400, 100_000])
    @pytest.mark.parametrize("aggregate", [True, False])
    def test_real_units_come_back(self, codec: Codec, mtu: int, aggregate: bool) -> None:
        units = make(codec)
        for nals in stream(codec, slices=3, b_frames=2).units:
            assert run(units, *(payload for payload, _ in payloads(codec, nals, mtu, aggregate))) == nals
        assert not units.damaged
        assert not units.open

    @pytest.mark.parametrize("lost", range(5))
    def test_a_lost_fragment(self, codec: Codec, lost: int) -> None:
        """The caller sees the gap and calls `drop`; no NAL unit is made of the rest."""
        units = make(codec)
        each = pieces(codec)
        assert run(units, *each[:lost]) == []
        assert units.drop() == (lost > 0)
        assert run(units, *each[lost + 1 :]) == []
        assert units.damaged == (lost < 4)
        units.damaged = False
        assert run(units, *each) == [SLICES[codec]]
        assert not units.damaged

    @pytest.mark.parametrize("follower", ["single", "start", "aggregate"])
    def test_a_fragment_without_an_end(self, codec: Codec, follower: str) -> None:
        units, other = make(codec), OTHERS[codec]
        run(units, *pieces(codec)[:4])
        assert units.open
        [(two, _)] = payloads(codec, [other, other], 100, True)
        found, expected = {
            "single": ([other], [other]),
            "start": (pieces(codec), [SLICES[codec]]),
            "aggregate": ([two], [other, other]),
        }[follower]
        assert run(units, *found) == expected
        assert units.damaged
        assert not units.open

    def test_a_fragment_of_another_type(self, codec: Codec) -> None:
        units = make(codec)
        each = pieces(codec, 3)
        at = 1 if codec == "h264" else 2
        each[1] = each[1][:at] + bytes((each[1][at] ^ 1,)) + each[1][at + 1 :]
        assert run(units, *each) == []
        assert units.damaged

    def test_begin_and_end_in_one(self, codec: Codec) -> None:
        units = make(codec)
        [each] = pieces(codec, 1)
        assert run(units, each) == [SLICES[codec]]
        assert not units.damaged

    def test_a_nal_unit_without_end_is_freed(self, codec: Codec) -> None:
        units = make(codec)
        each = pieces(codec, 3)
        more = each[1] + bytes(60_000)
        run(units, each[0])
        for _ in range(NAL_MOST // 60_000 + 1):
            run(units, more)
        assert units.damaged
        assert not units.open
        assert len(units._buffer) == 0
        assert run(units, more, each[2]) == []

    @pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
    def test_an_aggregate_whose_lengths_lie(self, codec: Codec, cut: int) -> None:
        units, other = make(codec), OTHERS[codec]
        [(two, _)] = payloads(codec, [other, other], 100, True)
        assert run(units, two[:-cut]) == [other]
        assert units.damaged

    def test_any_bytes(self, codec: Codec) -> None:
        chance = random.Random(4)
        units = make(codec)
        real = [payload for nals in stream(codec).units[:2] for payload, _ in payloads(codec, nals, 100, True)]
        for _ in range(20_000):
            payload = bytearray(chance.choice(real)) if chance.random() < 0.7 else bytearray(chance.randbytes(20))
            for _ in range(chance.randrange(4)):
                payload[chance.randrange(min(len(payload), 6))] = chance.randrange(256)
            for nal in units.take(bytes(payload[: chance.randrange(1, len(payload) + 1)])):
                units.kind(nal)
                units.first(nal)
                units.recovery(nal)
            assert len(units._buffer) <= NAL_MOST


@pytest.mark.parametrize(
    ("units", "payload", "damaged"),
    [
        pytest.param(H264(), b"\x79\0\0\0\1A", True, id="STAP-B"),
        pytest.param(H264(), b"\x7a\0\0\0\1A", True, id="MTAP16"),
        pytest.param(H264(), b"\x7b\0\0\0\1A", True, id="MTAP24"),
        pytest.param(H264(), b"\x7d\x85\0\0A", True, id="FU-B"),
        pytest.param(H264(), b"\x7e\0", False, id="30"),
        pytest.param(H264(), b"\x7f\0", False, id="31"),
        pytest.param(H264(), b"\x7c", True, id="FU-A without its header"),
        pytest.param(H264(), b"\x7c\x9c\0", True, id="FU-A in FU-A"),
        pytest.param(H264(), b"\x78\0\2\x7c\x85", True, id="FU-A in STAP-A"),
        pytest.param(H264(), b"\x78", False, id="STAP-A of nothing"),
        pytest.param(H265(), b"\x60\1", True, id="AP of nothing"),
        pytest.param(H265(), b"\x60\1\0\1\2", True, id="AP of half a header"),
        pytest.param(H265(), b"\x60\1\0\2\x60\1", True, id="AP in AP"),
        pytest.param(H265(), b"\x62\1", True, id="FU without its header"),
        pytest.param(H265(), b"\x62\1\xb1\0", True, id="FU in FU"),
        pytest.param(H265(), b"\2", True, id="half a header"),
        pytest.param(H265(), b"\x64\1\0\0\0", False, id="PACI"),
        pytest.param(H265(), b"\x7e\1\0", False, id="63"),
    ],
)
def test_what_gives_nothing(units: Fragments, payload: bytes, damaged: bool) -> None:
    assert run(units, payload) == []  # type: ignore[arg-type]
    assert units.damaged == damaged


@pytest.mark.parametrize(
    ("codec", "nal", "kind", "first"),
    [
        ("h264", b"\x65\x88", SLICE | KEY, True),
        ("h264", b"\x41\x9a", SLICE, True),
        ("h264", b"\x01\x7f", SLICE, False),
        ("h264", b"\x41", SLICE, False),
        ("h264", b"\x67\x42", PARAMETERS, False),
        ("h264", b"\x68\x4e", PARAMETERS, False),
        ("h264", b"\x06\x05", SEI, False),
        ("h264", b"\x0c\x00", TRAILING, False),
        ("h264", b"\x09\x10", 0, False),
        ("h265", b"\x26\x01\xaf", SLICE | KEY, True),
        ("h265", b"\x2a\x01\x2f", SLICE | KEY, False),
        ("h265", b"\x02\x01\xd0", SLICE, True),
        ("h265", b"\x02\x01", SLICE, False),
        ("h265", b"\x10\x01\xd0", SLICE | LEADING, True),
        ("h265", b"\x40\x01\x0c", PARAMETERS, False),
        ("h265", b"\x4e\x01\x05", SEI, False),
        ("h265", b"\x50\x01\x84", TRAILING, False),
        ("h265", b"\x46\x01\x50", 0, False),
        ("h265", b"\x00\x00\x00\x01", 0, False),
    ],
)
def test_kinds(codec: Codec, nal: bytes, kind: int, first: bool) -> None:
    units = make(codec)
    assert units.kind(nal) == kind
    if kind & SLICE:
        assert units.first(nal) == first


@pytest.mark.parametrize(
    ("codec", "nal", "count"),
    [
        ("h264", b"\x06\x06\x01\xc4\x80", 0),
        ("h264", b"\x06\x05\x02ab\x06\x01\x12\x80", 8),
        ("h264", b"\x06\x05\xff\x01" + bytes(256) + b"\x06\x01\x84\x80", 0),
        ("h264", b"\x06\x01\x04\0\0\x03\0\x01\x06\x01\x84\x80", 0),
        ("h264", b"\x06\x05\x02ab\x80", None),
        ("h264", b"\x06\x06\x09\x84\x80", None),
        ("h264", b"\x06\x06\x02\0\0\x80", None),
        ("h264", b"\x06\x06\x00\x80", None),
        ("h264", b"\x06\xff\xff\xff", None),
        ("h264", b"\x06", None),
        ("h265", b"\x4e\x01\x06\x01\xd0\x80", 0),
        ("h265", b"\x4e\x01\x06\x01\x50\x80", 1),
    ],
)
def test_recovery_points(codec: Codec, nal: bytes, count: int | None) -> None:
    assert make(codec).recovery(nal) == count
