"""Order, loss, copies: the packets that come out, and the counts."""

from __future__ import annotations

import random

import pytest

from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtp.sequence import HOLD_S, MAX_DROPOUT, MAX_MISORDER, WINDOW, Ordered, PacketOrder
from tests.system import seeds


def packet(number: int, arrived_s: float = 0.0, ssrc: int = 1) -> RtpPacket:
    return RtpPacket(number & 0xFFFF, 0, False, 96, ssrc, b"x", arrived_s)


def run(sequence: PacketOrder, *numbers: int, arrived_s: float = 0.0, ssrc: int = 1) -> list[tuple[int, bool]]:
    return [told(item) for number in numbers for item in sequence.push(packet(number, arrived_s, ssrc))]


def told(item: Ordered) -> tuple[int, bool]:
    return item.packet.sequence, item.gap


def counters(sequence: PacketOrder) -> tuple[int, int, int, int, int]:
    return sequence.received, sequence.lost, sequence.reordered, sequence.duplicated, sequence.late


def started(window: int = WINDOW, first: int = 0) -> PacketOrder:
    sequence = PacketOrder(window=window)
    assert run(sequence, first) == [(first & 0xFFFF, True)]
    return sequence


@pytest.mark.parametrize("window", [0, WINDOW])
class TestEither:
    def test_in_order_over_two_wraps(self, window: int) -> None:
        sequence = started(window, 65000)
        numbers = range(65001, 65001 + 140_000)
        assert run(sequence, *numbers) == [(number & 0xFFFF, False) for number in numbers]
        assert counters(sequence) == (140_001, 0, 0, 0, 0)
        assert sequence.highest == 65000 + 140_000
        assert sequence.expected == 140_001

    def test_copies(self, window: int) -> None:
        sequence = started(window, 65534)
        assert run(sequence, 65534, 65535, 0, 65535, 0, 1, 65534) == [(65535, False), (0, False), (1, False)]
        assert counters(sequence) == (8, 0, 0, 4, 0)

    def test_what_was_sent_before_the_first(self, window: int) -> None:
        sequence = started(window, 3)
        assert run(sequence, 2, 65535, 4) == [(4, False)]
        assert counters(sequence) == (4, 0, 0, 0, 2)


class TestTcp:
    def test_a_gap_is_skipped_at_once(self) -> None:
        sequence = started(0, 65535)
        assert run(sequence, 2, 3) == [(2, True), (3, False)]
        assert counters(sequence) == (3, 2, 0, 0, 0)
        assert sequence.wake_s is None

    def test_late_ones_stay_lost_and_are_told_from_copies(self) -> None:
        sequence = started(0, 10)
        run(sequence, 14)
        assert run(sequence, 12, 12, 11, 10, 14) == []
        assert counters(sequence) == (7, 3, 0, 3, 2)

    @pytest.mark.parametrize("jump", [MAX_DROPOUT, 30_000, 65536 - MAX_MISORDER - 1])
    def test_a_jump_is_a_restart(self, jump: int) -> None:
        sequence = started(0)
        items = sequence.push(packet(1 + jump))
        assert [(told(item), item.restarted) for item in items] == [((1 + jump & 0xFFFF, True), True)]
        assert run(sequence, 2 + jump) == [(2 + jump & 0xFFFF, False)]
        assert counters(sequence) == (3, 0, 0, 0, 0)

    def test_the_longest_loss(self) -> None:
        sequence = started(0)
        items = sequence.push(packet(MAX_DROPOUT))
        assert [(told(item), item.restarted) for item in items] == [((MAX_DROPOUT, True), False)]
        assert sequence.lost == MAX_DROPOUT - 1
        assert run(sequence, MAX_DROPOUT - 1) == []
        assert counters(sequence) == (3, MAX_DROPOUT - 1, 0, 0, 1)

    def test_another_sender(self) -> None:
        sequence = started(0)
        assert [item.restarted for item in sequence.push(packet(1, ssrc=2))] == [True]
        assert (sequence.ssrc, sequence.lost) == (2, 0)


class TestUdp:
    def test_swapped_packets(self) -> None:
        sequence = started()
        assert run(sequence, 2, 1, 5, 4, 3, 6) == [(n, False) for n in range(1, 7)]
        assert counters(sequence) == (7, 0, 3, 0, 0)

    def test_swapped_over_the_wrap(self) -> None:
        sequence = started(first=65534)
        assert run(sequence, 1, 0, 65535, 2) == [(65535, False), (0, False), (1, False), (2, False)]
        assert counters(sequence) == (5, 0, 2, 0, 0)

    def test_a_copy_of_a_held_one(self) -> None:
        sequence = started()
        assert run(sequence, 2, 2, 1) == [(1, False), (2, False)]
        assert counters(sequence) == (4, 0, 1, 1, 0)

    def test_time_gives_up(self) -> None:
        sequence = started()
        assert run(sequence, 2, arrived_s=1.0) == []
        assert run(sequence, 4, arrived_s=1.01) == []
        assert sequence.wake_s == pytest.approx(1.0 + HOLD_S)
        assert sequence.due(1.019) == []
        assert list(map(told, sequence.due(1.021))) == [(2, True)]
        assert sequence.wake_s == pytest.approx(1.01 + HOLD_S)
        assert list(map(told, sequence.due(1.031))) == [(4, True)]
        assert sequence.wake_s is None
        assert run(sequence, 1, 5, 3, arrived_s=1.04) == [(5, False)]
        assert counters(sequence) == (6, 2, 0, 0, 2)

    def test_a_packet_is_as_good_as_a_clock(self) -> None:
        sequence = started()
        run(sequence, 2, arrived_s=1.0)
        assert run(sequence, 3, arrived_s=1.0 + HOLD_S) == [(2, True), (3, False)]
        run(sequence, 5, arrived_s=2.0)
        assert run(sequence, 4, arrived_s=3.0) == [(4, False), (5, False)]
        assert counters(sequence) == (5, 1, 1, 0, 0)

    def test_the_window_gives_up(self) -> None:
        sequence = started()
        assert run(sequence, *range(2, 2 + WINDOW)) == []
        assert run(sequence, 2 + WINDOW) == [(n, n == 2) for n in range(2, 3 + WINDOW)]
        assert sequence.lost == 1

    def test_further_than_the_window(self) -> None:
        sequence = started()
        run(sequence, 3)
        assert run(sequence, 500) == [(3, True), (500, True)]
        assert run(sequence, 400, 399) == []
        assert counters(sequence) == (5, 498, 0, 0, 1), "399 is too far back to be told from a stranger"

    def test_flush(self) -> None:
        sequence = started()
        run(sequence, 3, 5, 6)
        assert list(map(told, sequence.flush())) == [(3, True), (5, True), (6, False)]
        assert sequence.lost == 3

    @pytest.mark.parametrize(("number", "ssrc"), [(5000, 1), (60_000, 1), (1, 2), (7, 2)])
    def test_a_stranger_must_come_twice(self, number: int, ssrc: int) -> None:
        sequence = started()
        run(sequence, 2)
        assert run(sequence, number, ssrc=ssrc) == []
        items = sequence.push(packet(number + 1, ssrc=ssrc))
        assert [(told(item), item.restarted) for item in items] == [
            ((2, True), False),
            ((number, True), True),
            ((number + 1, False), False),
        ]
        assert run(sequence, number + 2, ssrc=ssrc) == [(number + 2, False)]
        assert counters(sequence) == (5, 1, 0, 0, 0)

    def test_strangers_in_between_change_nothing(self) -> None:
        sequence = started()
        for k in range(1, 50):
            assert run(sequence, 1000 + k, ssrc=2) == []
            assert run(sequence, k) == [(k, False)]
        assert run(sequence, 20_000, 40_000, 50) == [(50, False)]
        assert counters(sequence) == (102, 0, 0, 0, 51)
        assert sequence.expected == 51

    @pytest.mark.parametrize("seed", seeds(30))
    def test_the_ledger(self, seed: int) -> None:
        """Any mix of loss, copies and delays: order, gaps and counters agree with the mix."""
        chance = random.Random(seed)
        first = chance.randrange(65536)
        arrivals = [(0.0, first)]
        for number in range(first + 1, first + 3000):
            for _ in range(chance.choices([0, 1, 2], [5, 90, 5])[0]):
                delay_s = chance.choice([0.0, 0.0, 0.0, 0.004, 0.015, 0.05])
                arrivals.append((0.001 * (number - first) + delay_s, number))
        arrivals.sort()
        sequence = PacketOrder()
        items = [item for arrived_s, number in arrivals for item in sequence.push(packet(number, arrived_s))]
        items += sequence.flush()
        extended = [first]
        for item in items[1:]:
            extended.append(extended[-1] + (item.packet.sequence - extended[-1]) % 65536)
            assert item.gap == (extended[-1] - extended[-2] > 1)
        assert len(set(extended)) == len(extended)
        assert sequence.lost == extended[-1] - first + 1 - len(extended)
        assert sequence.received == len(arrivals) == len(items) + sequence.duplicated + sequence.late
        assert sequence.expected == len(items) + sequence.lost
        assert sequence.highest == extended[-1]

    def test_any_numbers(self) -> None:
        chance = random.Random(3)
        sequence, now_s, out = PacketOrder(), 0.0, 0
        for _ in range(30_000):
            now_s += chance.choice([0.0, 0.001, 0.03])
            number = chance.choice([chance.randrange(65536), chance.randrange(60)])
            out += len(sequence.push(packet(number, now_s, chance.choice([1, 1, 1, 2]))))
            assert len(sequence._held) <= WINDOW
            assert len(sequence._skipped) <= MAX_MISORDER
        out += len(sequence.flush())
        assert sequence.received - out - sequence.duplicated - sequence.late in (0, 1)
