"""Sender reports, and the answers to them."""

from __future__ import annotations

import random
import struct

import pytest

from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtp.reception import Reception
from pipelines.sources.rtp.rtcp import (
    MOST_PACKETS,
    UNIX_EPOCH,
    Bye,
    ReportBlock,
    SenderReport,
    parse_rtcp,
    receiver_report,
)
from pipelines.sources.rtp.sequence import PacketOrder

SSRC = 0xCAFE


def sender_report(ntp: int, timestamp: int = 7, ssrc: int = SSRC, blocks: int = 0) -> bytes:
    return struct.pack(">BBHIQIII", 0x80 | blocks, 200, 6 + 6 * blocks, ssrc, ntp, timestamp, 10, 1000) + bytes(24 * blocks)


def ntp(unix_us: int) -> int:
    """Rounded to the nearest 2**-32 s."""
    return (UNIX_EPOCH << 32) + (unix_us * 2**32 + 500_000) // 1_000_000


def bye(*ssrcs: int, reason: bytes = b"") -> bytes:
    return struct.pack(f">BBH{len(ssrcs)}I", 0x80 | len(ssrcs), 203, len(ssrcs) + len(reason) // 4, *ssrcs) + reason


NAMES = struct.pack(">BBHI", 0x81, 202, 2, SSRC) + b"\1\1a\0"


class TestParse:
    def test_a_compound_packet(self) -> None:
        data = sender_report(5 << 32, blocks=2) + NAMES + bye(SSRC, 9, reason=b"\3off")
        assert parse_rtcp(data) == [SenderReport(SSRC, 5 << 32, 7), Bye((SSRC, 9))]
        assert parse_rtcp(memoryview(data)) == parse_rtcp(data)

    @pytest.mark.parametrize("unix_us", [1, 1_000_000_000_000_001, 1_796_000_000_123_456, 1_796_000_000_999_999])
    def test_microseconds_survive(self, unix_us: int) -> None:
        unix_s = SenderReport(SSRC, ntp(unix_us), 0).unix_s
        assert unix_s is not None
        assert round(unix_s * 1e6) == unix_us

    @pytest.mark.parametrize("stamp", [0, 1, 3600 << 32, (1 << 63) - 1])
    def test_a_sender_without_a_wall_clock(self, stamp: int) -> None:
        assert SenderReport(SSRC, stamp, 0).unix_s is None

    @pytest.mark.parametrize(
        "data",
        [b"", b"\x80", b"\x80\xc8\0", sender_report(0)[:-1], b"\0" + sender_report(0)[1:], struct.pack(">BBH", 0x80, 200, 0)],
    )
    def test_what_is_none(self, data: bytes) -> None:
        assert parse_rtcp(data) == []

    def test_what_comes_before_a_lie_counts(self) -> None:
        assert parse_rtcp(bye(1) + struct.pack(">BBH", 0x80, 203, 9)) == [Bye((1,))]
        assert parse_rtcp(struct.pack(">BBHI", 0x9F, 203, 1, 4)) == [Bye((4,))]

    def test_the_work_is_bounded(self) -> None:
        assert len(parse_rtcp(bye() * 10_000)) == MOST_PACKETS

    def test_any_bytes(self) -> None:
        chance = random.Random(2)
        whole = sender_report(5 << 32, blocks=1) + NAMES + bye(1, 2)
        for _ in range(5000):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            parse_rtcp(data[: chance.randrange(len(data) + 1)])


class TestReceiverReport:
    def test_its_bytes(self) -> None:
        block = ReportBlock(SSRC, 64, 5, 0x10002, 33, 0xAABBCCDD, 65536)
        data = receiver_report(1, "me@here", block)
        assert data[:4] == bytes((0x81, 201, 0, 7))
        assert struct.unpack(">7I", data[4:32]) == (1, SSRC, 64 << 24 | 5, 0x10002, 33, 0xAABBCCDD, 65536)
        assert data[32:] == bytes((0x81, 202, 0, 4)) + struct.pack(">I", 1) + b"\1\7me@here" + bytes(3)

    @pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 254, 255, 400])
    def test_whole_words_and_an_end_of_the_items(self, length: int) -> None:
        data = receiver_report(1, "x" * length)
        assert data[:8] == bytes((0x80, 201, 0, 1, 0, 0, 0, 1))
        assert len(data) % 4 == 0
        assert 4 + 4 * int.from_bytes(data[10:12], "big") == len(data) - 8
        assert data[-1] == 0
        assert data[17] == min(length, 255)

    @pytest.mark.parametrize(("lost", "field"), [(-1, 0xFFFFFF), (-(2**30), 0x800000), (2**30, 0x7FFFFF)])
    def test_the_loss_has_24_bits(self, lost: int, field: int) -> None:
        data = receiver_report(1, "", ReportBlock(SSRC, 999, lost, 0, 0, 0, 0))
        assert struct.unpack(">I", data[12:16]) == (255 << 24 | field,)


class TestReception:
    def _fields(self, reception: Reception, now_s: float) -> tuple[int, ...]:
        return struct.unpack(">7I", reception.report(now_s)[4:32])

    def test_nothing_yet(self) -> None:
        assert Reception(PacketOrder(), 90_000, ssrc=1, cname="c").report(0.0) == receiver_report(1, "c")

    def test_loss_since_the_last_report_and_in_all(self) -> None:
        sequence = PacketOrder(window=0)
        reception = Reception(sequence, 90_000, ssrc=1, cname="c")

        def push(*numbers: int) -> None:
            for number in numbers:
                sequence.push(RtpPacket(number & 0xFFFF, 0, False, 96, SSRC, b"", 0.0))

        push(65534, 65535, 65537, 65537)
        assert self._fields(reception, 0.0) == (1, SSRC, 64 << 24 | 1, 0x10001, 0, 0, 0)
        push(65538, 65539)
        assert self._fields(reception, 0.0) == (1, SSRC, 1, 0x10003, 0, 0, 0)
        push(65542, 65543)
        assert self._fields(reception, 0.0) == (1, SSRC, 128 << 24 | 3, 0x10007, 0, 0, 0)
        assert self._fields(reception, 0.0) == (1, SSRC, 3, 0x10007, 0, 0, 0)

    def test_the_senders_report_is_answered(self) -> None:
        sequence = PacketOrder()
        reception = Reception(sequence, 90_000, ssrc=1, cname="c")
        sequence.push(RtpPacket(0, 0, False, 96, SSRC, b"", 0.0))
        reception.sender_report(SenderReport(SSRC + 1, 1 << 32, 0), 9.0)
        assert self._fields(reception, 10.0)[5:] == (0, 0)
        reception.sender_report(SenderReport(SSRC, 0x1111222233334444, 0), 10.0)
        assert self._fields(reception, 11.5)[5:] == (0x22223333, 0x18000)
        assert self._fields(reception, 100_000.0)[5:] == (0, 0)

    @pytest.mark.parametrize("clock_rate", [90_000, 1000, 1_000_000])
    @pytest.mark.parametrize("swing_s", [0.0, 0.002])
    def test_jitter(self, swing_s: float, clock_rate: int) -> None:
        """Arrivals that swing by s seconds around the timestamps have a jitter of 2s, over the wrap of the timestamps too."""
        sequence = PacketOrder()
        reception = Reception(sequence, clock_rate, ssrc=1, cname="c")
        for k in range(400):
            stamp = (2**32 + (k - 100) * clock_rate // 25) & 0xFFFFFFFF
            packet = RtpPacket(k, stamp, True, 96, SSRC, b"", 5000 + 0.04 * k + swing_s * (-1) ** k)
            sequence.push(packet)
            reception.arrived(packet)
        assert self._fields(reception, 0.0)[4] == pytest.approx(2 * swing_s * clock_rate, abs=1)
