"""Where an access unit ends, and whether it is whole."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from pipelines.sources.rtp.access_units import MARKER_WITHIN, NO_MARKER, PROBATION_S, AccessUnits
from pipelines.sources.rtp.h264_payload import H264
from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtp.sequence import Ordered
from pipelines.sources.rtp.unit import NALS_MOST, UNIT_MOST, AccessUnit
from tests.sources.rtp.packetize import (
    CODECS,
    STEP,
    Codec,
    Marks,
    Reader,
    Stream,
    annex_b,
    bare,
    decode,
    packetize,
    slices,
    split,
    stream,
)

HABITS: tuple[Marks, ...] = ("last", "every", "never")


def whole(source: Stream, found: list[AccessUnit], units: range) -> None:
    """The units are `units` of the source, byte for byte, and undamaged."""
    assert [(unit.timestamp, unit.damaged) for unit in found] == [(source.stamps[k] % 2**32, False) for k in units]
    for k, unit in zip(units, found, strict=True):
        assert unit.data == source.data(k)


@pytest.mark.parametrize("codec", CODECS)
class TestWhole:
    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("b_frames", [0, 2])
    @pytest.mark.parametrize("aggregate", [True, False])
    def test_units_and_pictures_come_back(self, codec: Codec, count: int, b_frames: int, aggregate: bool) -> None:
        source = stream(codec, slices=count, b_frames=b_frames)
        found = Reader(codec).push(*bare(packetize(source, aggregate=aggregate))).end()
        whole(source, found, range(12))
        assert [unit.lost_before for unit in found] == [True] + [False] * 11
        assert found[0].key
        assert sum(unit.key for unit in found) >= 2
        if (codec, count) == ("h265", 3):
            return
        truth = decode(codec, [source.data(k) for k in range(12)])
        assert len(truth) == 12
        assert np.array_equal(decode(codec, [unit.data for unit in found]), truth)

    def test_wraps(self, codec: Codec) -> None:
        source = stream(codec, first=2**32 - 4 * STEP)
        packets = bare(packetize(source, sequence=65536 - 40))
        assert {packet.timestamp > 2**31 for packet in packets} == {True, False}
        whole(source, Reader(codec).push(*packets).end(), range(12))

    def test_given_out_with_the_marker_and_with_its_arrival(self, codec: Codec) -> None:
        source = stream(codec)
        reader = Reader(codec)
        for packet in bare(packetize(source)):
            before = len(reader.out)
            reader.push(packet)
            if packet.marker and packet.timestamp != source.stamps[0]:
                assert [unit.timestamp for unit in reader.out[before:]] == [packet.timestamp]
                assert reader.out[-1].arrived_s == packet.arrived_s
            elif packet.timestamp != source.stamps[1]:
                assert len(reader.out) == before
        assert (reader.units.closes, reader.units.reason) == ("marker", None)

    def test_swapped_and_copied_packets(self, codec: Codec) -> None:
        source = stream(codec)
        packets = bare(packetize(source))
        chance = random.Random(5)
        for _ in range(20):
            keys = {packet.sequence: k + chance.uniform(0, 6) for k, packet in enumerate(packets)}
            keys[packets[0].sequence] = -1
            arrivals = sorted(packets + chance.choices(packets[1:], k=9), key=lambda packet: keys[packet.sequence])
            arrivals = [packet._replace(arrived_s=0.001 * k) for k, packet in enumerate(arrivals)]
            reader = Reader(codec, window=32).push(*arrivals)
            whole(source, reader.end(), range(12))
            assert reader.sequence.duplicated == 9
            for unit in reader.out:
                own = [packet.arrived_s for packet in arrivals if packet.timestamp == unit.timestamp]
                assert unit.arrived_s in own, "the last one to come, copies apart"

    def test_the_last_packet_to_come_completes(self, codec: Codec) -> None:
        source = stream(codec)
        packets = bare(packetize(source))
        late = next(k for k, packet in enumerate(packets) if packet.timestamp == source.stamps[3]) + 1
        packets[late] = packets[late]._replace(arrived_s=0.135)
        packets.sort(key=lambda packet: packet.arrived_s)
        reader = Reader(codec, window=32).push(*packets)
        whole(source, reader.end(), range(12))
        assert reader.out[3].arrived_s == 0.135


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("window", [0, 32])
class TestLoss:
    @pytest.mark.parametrize("aggregate", [True, False])
    def test_every_single_packet(self, codec: Codec, count: int, window: int, aggregate: bool) -> None:
        source = stream(codec, slices=count)
        packets = packetize(source, aggregate=aggregate)
        owners = [k for k, _ in packets]
        for lost, (k, packet) in enumerate(packets):
            reader = Reader(codec, window).push(*bare(packets[:lost] + packets[lost + 1 :]))
            found = reader.end()
            at_the_end = lost in (0, len(packets) - 1)
            assert reader.sequence.lost == (0 if at_the_end else 1)
            before, hit, after = _around(source, found, k)
            # On probation, packets after the first unit's marker may be its rest.
            doubted = 1 if lost == owners.index(1) else 0
            assert [unit.damaged for unit in before] == [True] * doubted + [False] * (k - doubted)
            whole(source, before[doubted:], range(doubted, k))
            self._check_hit(source, k, hit)
            whole(source, after, range(k + 1, 12))
            ended = packet.marker
            assert [unit.lost_before for unit in after] == [ended and k < 11] * min(1, len(after)) + [False] * (len(after) - 1)

    def _check_hit(self, source: Stream, k: int, hit: list[AccessUnit]) -> None:
        """The unit that misses a packet is damaged, or misses no slice and says that something is lost before it."""
        assert len(hit) <= 1
        for unit in hit:
            assert unit.data != source.data(k) or k in (0, 11)
            assert unit.damaged or (unit.lost_before and slices(source.codec, split(unit.data)) == source.slices(k))

    @pytest.mark.parametrize("habit", HABITS)
    @pytest.mark.parametrize("burst", [1, 3, 12, 40])
    def test_no_unit_that_misses_a_byte_is_called_whole(
        self, codec: Codec, count: int, window: int, habit: Marks, burst: int
    ) -> None:
        source = stream(codec, slices=count)
        packets = packetize(source, marks=habit, aggregate=False)
        for lost in range(0, len(packets) - burst, 1 if burst == 1 else 5):
            gone = {k for k, _ in packets[lost : lost + burst]}
            reader = Reader(codec, window).push(*bare(packets[:lost] + packets[lost + burst :]))
            found = reader.end()
            assert reader.sequence.lost == (burst if lost else 0)
            good = []
            for unit in found:
                k = source.stamps.index(unit.timestamp)
                if not unit.damaged:
                    assert slices(codec, split(unit.data)) == source.slices(k)
                    assert unit.lost_before or _same(source, k, unit)
                    good.append(k)
            assert good == sorted(set(good))
            # Without believable markers a loss behind a unit may have been its end, and the last one has no end.
            spared = set(range(12)) - gone - ({0} if habit == "last" else {0, 11, min(gone) - 1})
            assert spared <= set(good)

    def test_what_is_called_whole_decodes_to_the_same_pictures(self, codec: Codec, count: int, window: int) -> None:
        """By the rule that the flags are made for: behind a damage only the next key picture is trusted."""
        if (codec, count) == ("h265", 3):
            return
        source = stream(codec, slices=count)
        truth = decode(codec, [source.data(k) for k in range(12)])
        packets = packetize(source)
        for lost in range(1, len(packets), 7):
            reader = Reader(codec, window).push(*bare(packets[:lost] + packets[lost + 1 :]))
            fed, clean = [], False
            for unit in reader.end():
                clean = not unit.damaged and (unit.key or (clean and not unit.lost_before))
                if clean:
                    fed.append(unit)
            pictures = decode(codec, [unit.data for unit in fed])
            assert len(pictures) == len(fed)
            for unit, picture in zip(fed, pictures, strict=True):
                assert np.array_equal(picture, truth[source.stamps.index(unit.timestamp)])


def _around(source: Stream, found: list[AccessUnit], k: int) -> tuple[list[AccessUnit], list[AccessUnit], list[AccessUnit]]:
    places = [source.stamps.index(unit.timestamp) for unit in found]
    assert places == sorted(set(places))
    return (
        [unit for place, unit in zip(places, found, strict=True) if place < k],
        [unit for place, unit in zip(places, found, strict=True) if place == k],
        [unit for place, unit in zip(places, found, strict=True) if place > k],
    )


def _same(source: Stream, k: int, unit: AccessUnit) -> bool:
    """Byte for byte, but for the hashes behind a slice that the marker was on: they are dropped by then."""
    return split(unit.data) in (source.units[k], [nal for nal in source.units[k] if nal[0] >> 1 != 40])


@pytest.mark.parametrize("codec", CODECS)
class TestMarkerHabits:
    @pytest.mark.parametrize("habit", ["every", "never"])
    def test_noticed_in_the_first_unit(self, codec: Codec, habit: Marks) -> None:
        source = stream(codec, slices=3)
        reader = Reader(codec).push(*bare(packetize(source, marks=habit, aggregate=False)))
        assert reader.units.closes == "timestamp"
        assert reader.units.reason == (MARKER_WITHIN if habit == "every" else NO_MARKER)
        whole(source, reader.out, range(11))
        last = reader.end()[-1]
        assert last.damaged, "nothing showed that it was at its end"

    def test_a_marker_on_every_nal_unit_is_right_where_a_picture_is_one_slice(self, codec: Codec) -> None:
        source = stream(codec)
        reader = Reader(codec).push(*bare(packetize(source, marks="every", aggregate=False)))
        assert reader.units.closes == "marker"
        found = reader.end()
        assert [unit.damaged for unit in found] == [False] * 12
        assert all(_same(source, k, unit) for k, unit in enumerate(found))

    def test_closed_by_the_timestamp_arrived_with_its_own_last_packet(self, codec: Codec) -> None:
        source = stream(codec)
        packets = bare(packetize(source, marks="never"))
        for unit in Reader(codec).push(*packets).out:
            own = [packet.arrived_s for packet in packets if packet.timestamp == unit.timestamp]
            assert unit.arrived_s == own[-1]

    @pytest.mark.parametrize("later", ["every", "never"])
    def test_switched_in_the_stream(self, codec: Codec, later: Marks) -> None:
        source = stream(codec, slices=3)
        marks: list[Marks] = ["last"] * 4 + [later] * 8
        reader = Reader(codec).push(*bare(packetize(source, marks=marks, aggregate=False)))
        whole(source, reader.out[:4], range(4))
        rest = reader.out[4:]
        if later == "every":
            early, cut = rest.pop(0), rest.pop(0)
            assert (early.timestamp, early.damaged) == (source.stamps[4], False)
            assert (cut.timestamp, cut.damaged) == (source.stamps[4], True)
        else:
            whole(source, rest[:1], range(4, 5))
            rest.pop(0)
        whole(source, rest, range(5, 11))

    def test_the_first_marked_unit_waits_for_the_next_or_for_time(self, codec: Codec) -> None:
        source = stream(codec)
        packets = [packet for k, packet in packetize(source) if k < 3]
        first = [packet for packet in packets if packet.timestamp == source.stamps[0]]
        marked_s = first[-1].arrived_s
        reader = Reader(codec).push(*first)
        assert reader.units.wake_s == pytest.approx(marked_s + PROBATION_S)
        assert reader.due(marked_s + 0.09).out == []
        whole(source, reader.due(marked_s + 0.11).out, range(1))
        assert reader.units.wake_s is None
        assert reader.out[0].arrived_s == marked_s
        whole(source, reader.push(*packets[len(first) :]).out, range(3))
        reader = Reader(codec).push(*first, packets[len(first)])
        whole(source, reader.out, range(1))

    def test_time_gave_out_too_early(self, codec: Codec) -> None:
        source = stream(codec, slices=3)
        packets = bare(packetize(source, marks="every", aggregate=False))
        reader = Reader(codec)
        for packet in packets:
            reader.push(packet)
            if reader.units.wake_s is not None:
                reader.due(reader.units.wake_s)
        early, rest = reader.out[:2]
        assert (early.timestamp, rest.timestamp, rest.damaged) == (source.stamps[0], source.stamps[0], True)
        whole(source, reader.out[2:], range(1, 11))

    def test_parameter_sets_with_times_and_markers_of_their_own(self, codec: Codec) -> None:
        source = stream(codec, slices=3)
        apart: list[tuple[int, list[bytes]]] = []
        for k, (nals, stamp) in enumerate(zip(source.units, source.stamps, strict=True)):
            before = nals.index(source.slices(k)[0])
            apart += [(stamp - 10 + j, [nal]) for j, nal in enumerate(nals[:before])]
            apart.append((stamp, nals[before:]))
        sent = Stream(codec, [nals for _, nals in apart], [stamp for stamp, _ in apart])
        whole(source, Reader(codec).push(*bare(packetize(sent))).end(), range(12))


class TestSmall:
    """Single cases, with H.264 written by hand."""

    SPS, PPS, SEI, IDR, IDR_2, P, P_2 = (
        b"\x67a",
        b"\x68b",
        b"\x06\x06\x01\x84\x80",
        b"\x65\x80",
        b"\x65\x40",
        b"\x41\x80",
        b"\x41\x40",
    )

    def _run(self, *packets: tuple[int, bytes, str]) -> tuple[list[AccessUnit], AccessUnits]:
        """(timestamp, payload, flags): m is the marker, g a gap before it, r a restart."""
        units = AccessUnits(H264())
        found: list[AccessUnit] = []
        for k, (stamp, payload, flags) in enumerate([(0, self.IDR, "gm"), (1, self.P, "m"), *packets]):
            packet = RtpPacket(k, stamp, "m" in flags, 96, 1, payload, float(k))
            found += units.push(Ordered(packet, "g" in flags or "r" in flags, "r" in flags))
        return found[2:], units

    def _told(self, *packets: tuple[int, bytes, str]) -> list[tuple[int, list[bytes], str]]:
        found, _ = self._run(*packets)
        return [(u.timestamp, split(u.data), "d" * u.damaged + "l" * u.lost_before + "r" * u.restarted) for u in found]

    def test_a_fragment_behind_the_first_marker_that_never_ends(self) -> None:
        """It may have been the rest of the picture: neither part is whole."""
        units = AccessUnits(H264())
        packets = [RtpPacket(k, k // 2, k != 1, 96, 1, p, 0.0) for k, p in enumerate((self.IDR, b"\x7c\x85\x40", self.IDR))]
        assert units.push(Ordered(packets[0], gap=True)) == ()
        assert units.wake_s is not None
        assert units.push(Ordered(packets[1])) == ()
        assert units.wake_s is None
        assert units.due(9.0) == []
        assert [(u.timestamp, u.damaged) for u in units.push(Ordered(packets[2]))] == [(0, True), (0, True)]
        assert [(u.timestamp, u.damaged) for u in units.due(9.0)] == [(1, False)]

    def test_two_fields_of_one_timestamp_are_no_habit(self) -> None:
        fields = [(k // 2 + 2, self.P, "m") for k in range(6)]
        found, units = self._run(*fields)
        assert [(u.timestamp, u.damaged) for u in found] == [(k // 2 + 2, False) for k in range(6)]
        assert units.closes == "marker"

    def test_a_server_without_a_clock(self) -> None:
        units = AccessUnits(H264())
        found = [u for k in range(5) for u in units.push(Ordered(RtpPacket(k, 0, True, 96, 1, self.P, 0.0)))]
        assert [(u.data, u.damaged) for u in found] == [(annex_b([self.P]), False)] * 5

    def test_a_gap_before_a_first_slice(self) -> None:
        assert self._told((3, self.P, "gm"), (4, self.P, "m")) == [(3, [self.P], "l"), (4, [self.P], "")]
        assert self._told((3, self.P_2, "gm"), (4, self.P, "m")) == [(3, [self.P_2], "dl"), (4, [self.P], "")]

    def test_a_lost_marker(self) -> None:
        told = self._told((2, self.P, ""), (3, self.P, "gm"))
        assert told == [(2, [self.P], "d"), (3, [self.P], "l")]

    def test_a_gap_behind_parameter_sets(self) -> None:
        told = self._told((2, self.SPS, ""), (2, self.SEI, ""), (3, self.IDR, "gm"))
        assert told == [(3, [self.SPS, self.IDR], "l")], "the message spoke of a lost picture, the set may be needed"
        assert self._told((2, self.SPS, ""), (2, self.IDR, "gm")) == [(2, [self.SPS, self.IDR], "d")]

    def test_what_is_left_of_a_lost_picture(self) -> None:
        assert self._told((2, b"\x0c\xff\x80", "gm"), (3, self.P, "m")) == [(3, [self.P], "l")]

    def test_a_unit_of_parameter_sets_alone_waits(self) -> None:
        assert self._told((2, self.SPS, "m"), (2, self.PPS, "m")) == []
        assert self._told((2, self.SPS, "m"), (3, self.PPS, "m"), (4, self.IDR, "m")) == [
            (4, [self.SPS, self.PPS, self.IDR], "")
        ]

    def test_parameter_sets_behind_a_marker_belong_to_the_next(self) -> None:
        told = self._told((2, self.P, "m"), (2, self.SPS, ""), (3, self.IDR, "m"))
        assert told == [(2, [self.P], ""), (3, [self.SPS, self.IDR], "")]

    def test_filler_behind_a_marker_is_nobodys(self) -> None:
        assert self._told((2, self.P, "m"), (2, b"\x0c\xff\x80", "m"), (3, self.P, "m")) == [
            (2, [self.P], ""),
            (3, [self.P], ""),
        ]

    def test_a_restart(self) -> None:
        told = self._told((2, self.P, ""), (2, self.IDR, "rm"), (7, self.P, "m"))
        assert told == [(2, [self.P], "d"), (2, [self.IDR], "lr"), (7, [self.P], "")]
        assert self._told((2, self.SPS, ""), (9, self.IDR, "rm")) == [(9, [self.IDR], "lr")]

    def test_packets_without_a_payload(self) -> None:
        assert self._told((2, self.P, ""), (2, b"", "m"), (3, b"", ""), (3, self.P, "m")) == [
            (2, [self.P], ""),
            (3, [self.P], ""),
        ]
        told = self._told((2, self.P, ""), (2, b"", "g"), (2, self.P_2, "m"), (3, self.P, "m"))
        assert told == [(2, [self.P], "d"), (2, [self.P_2], "dl"), (3, [self.P], "")]

    def test_a_marker_within_a_fragment(self) -> None:
        """It ends nothing; if the end never comes, the unit is damaged and the marker is still believed."""
        start, end = b"\x7c\x81\x80", b"\x7c\x41a"
        assert self._told((2, start, "m"), (2, end, "m")) == [(2, [b"\x61\x80a"], "")]
        found, units = self._run((2, start, "m"), (3, self.P, "m"))
        assert [(u.timestamp, u.damaged) for u in found] == [(2, True), (3, False)]
        assert units.closes == "marker"

    def test_a_unit_that_is_not_understood_is_damaged(self) -> None:
        assert self._told((2, b"\x7d\x85", "m"), (3, self.P, "m")) == [(2, [], "d"), (3, [self.P], "")]
        assert self._told((2, b"\xc1\x80", "m")) == [(2, [b"\xc1\x80"], "d")]
        assert self._told((2, b"\x7f", "m"), (3, self.P, "m")) == [(3, [self.P], "")]

    def test_a_recovery_point(self) -> None:
        found, _ = self._run((2, self.SEI, ""), (2, self.P, "m"), (3, self.P, "m"))
        assert [(u.recovery, u.key) for u in found] == [(0, False), (None, False)]

    @pytest.mark.parametrize("prefix", [b"", b"\0\0\0\1", b"\0\0\1"])
    def test_start_codes_where_none_belong(self, prefix: bytes) -> None:
        payload = prefix + self.SPS + b"\0\0\0\1" + self.PPS + b"\0\0\1" + self.IDR
        found, _ = self._run((2, payload, "m"))
        assert [(split(u.data), u.key, u.damaged) for u in found] == [([self.SPS, self.PPS, self.IDR], True, False)]


class TestBounds:
    def test_a_unit_that_does_not_end(self) -> None:
        units = AccessUnits(H264())
        payload = b"\x41\x80" + bytes(60_000)
        for k in range(UNIT_MOST // 60_000 + 10):
            units.push(Ordered(RtpPacket(k & 0xFFFF, 1, False, 96, 1, payload, 0.0)))
        assert units._open.nals == []
        [unit] = units.push(Ordered(RtpPacket(9, 2, True, 96, 1, b"\x41\x80", 0.0)))
        assert (unit.damaged, unit.data) == (True, b"")

    @pytest.mark.parametrize("payload", [b"\x78" + b"\0\2\x67a" * 300, b"\x67a" + b"\0\0\1\x68b" * 300])
    def test_many_tiny_nal_units(self, payload: bytes) -> None:
        units = AccessUnits(H264())
        for k in range(100):
            units.push(Ordered(RtpPacket(k, k, True, 96, 1, payload, 0.0)))
            assert len(units._open.nals) <= NALS_MOST

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("window", [0, 32])
    def test_any_packets(self, codec: Codec, window: int) -> None:
        chance = random.Random(6)
        packets = bare(packetize(stream(codec, slices=3), mtu=150))
        reader = Reader(codec, window)
        for packet in itertools.islice(itertools.cycle(packets), 20_000):
            payload = bytearray(packet.payload)
            if chance.random() < 0.2:
                for _ in range(3):
                    payload[chance.randrange(min(len(payload), 8))] = chance.randrange(256)
            if chance.random() < 0.1:
                payload = bytearray(chance.randbytes(chance.randrange(30)))
            stamp = packet.timestamp if chance.random() < 0.97 else chance.randrange(2**32)
            number = packet.sequence if chance.random() < 0.97 else chance.randrange(65536)
            mark = packet.marker if chance.random() < 0.97 else not packet.marker
            now_s = chance.uniform(0, 20)
            reader.push(packet._replace(payload=bytes(payload), timestamp=stamp, sequence=number, marker=mark, arrived_s=now_s))
            if chance.random() < 0.05:
                reader.due(now_s)
            assert len(reader.units._open.nals) <= NALS_MOST
            assert reader.units._open.size <= UNIT_MOST
        reader.end()
