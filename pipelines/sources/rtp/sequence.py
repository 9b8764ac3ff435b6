"""Packets in the order in which they were sent, and what is missing between them (RFC 3550, appendix A.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipelines.sources.rtp.packet import RtpPacket

WINDOW = 32
"""How many packets behind a missing one are held at most. What a network swaps is a few packets apart."""
HOLD_S = 0.020
"""How long a packet waits at most for those before it: a wait is latency, and 50 ms are promised in all."""
MAX_DROPOUT = 3000
"""A jump ahead of at least this many numbers is a new numbering, not a loss (RFC 3550, A.1)."""
MAX_MISORDER = 100
"""A packet up to this far behind is a late or a second one; further back it is a new numbering (RFC 3550, A.1)."""
CIRCLE = 1 << 16


class Ordered(NamedTuple):
    """A packet in its place. A tuple for the same reason as `RtpPacket`."""

    packet: RtpPacket
    gap: bool = False
    """Something before this packet is missing, or nobody knows (the first one of a session)."""
    restarted: bool = False
    """A new numbering begins here: another SSRC, or numbers that jumped. Timestamps begin anew too. Implies `gap`."""


class PacketOrder:
    """Puts the packets of one track in order. One thread.

    Over UDP a number that is skipped is waited for, by time and by count; with `window` 0 (TCP, which keeps the order)
    it is given up at once. Always: received = handed out + duplicated + late + what is held.

    - `received`: every packet of the track that came.
    - `lost`: numbers that were given up, so that the decoder never got them. A packet that comes after that stays
      lost, and counts as `late` too: lost - late never came at all.
    - `reordered`: packets that came after a higher number and were still put in their place.
    - `duplicated`: packets whose number had been handed out, or was held.
    - `late`: packets whose place was given up, that were sent before the first one, or that fitted nowhere (a single
      number or SSRC from elsewhere). Dropped.

    A restart loses nothing by these counters: how much was missed is not known then.
    """

    def __init__(self, *, window: int = WINDOW, hold_s: float = HOLD_S) -> None:
        self.received = self.lost = self.reordered = self.duplicated = self.late = 0
        self._window = window
        self._hold_s = hold_s
        self._ssrc = -1
        self._first = self._next = 0
        """Extended numbers: they count the cycles of the 16 bits in what is above."""
        self._held: dict[int, RtpPacket] = {}
        self._stray: RtpPacket | None = None
        self._given_up: set[int] = set()
        self._usual = False
        """Nothing is held, nothing is suspected: the next number is simply handed on."""

    @property
    def ssrc(self) -> int | None:
        """Of the present numbering, None before the first packet."""
        return self._ssrc if self._ssrc >= 0 else None

    @property
    def highest(self) -> int:
        """The highest number handed out, with its cycles: 32 bits."""
        return (self._next - 1) & 0xFFFFFFFF

    @property
    def expected(self) -> int:
        """How many packets should have come up to the last one handed out, over all restarts."""
        waiting = len(self._held) + (self._stray is not None)
        return self.received - self.duplicated - self.late - waiting + self.lost

    def push(self, packet: RtpPacket) -> Sequence[Ordered]:
        """What can be handed on now that `packet` came; packets come in order of arrival."""
        self.received += 1
        following = self._next
        if self._usual and packet.sequence == following & 0xFFFF and packet.ssrc == self._ssrc:
            self._next = following + 1
            return (Ordered(packet),)
        out = self._unusual(packet)
        self._usual = not self._held and self._stray is None
        return out

    @property
    def wake_s(self) -> float | None:
        """When `due` will have something if no packet comes, None if nothing is held."""
        if not self._held:
            return None
        return min(packet.arrived_s for packet in self._held.values()) + self._hold_s

    def due(self, now_s: float) -> Sequence[Ordered]:
        """The packets that have waited long enough by `now_s`, with what is missing before them given up."""
        out: list[Ordered] = []
        while (wake_s := self.wake_s) is not None and now_s >= wake_s:
            out += self._give_up()
        self._usual = not self._held and self._stray is None
        return out

    def flush(self) -> Sequence[Ordered]:
        """Everything that is held: nothing more will come."""
        return self.due(float("inf"))

    def _unusual(self, packet: RtpPacket) -> list[Ordered]:
        if self._ssrc < 0:
            return self._restart([packet], restarted=False)
        ahead = (packet.sequence - self._next) % CIRCLE
        if packet.ssrc != self._ssrc or MAX_DROPOUT <= ahead < CIRCLE - MAX_MISORDER:
            return self._strange(packet)
        if self._stray is not None:
            self.late += 1
            self._stray = None
        if ahead >= MAX_DROPOUT:
            self._behind(self._next + ahead - CIRCLE)
            return []
        return self._ahead(packet, self._next + ahead)

    def _ahead(self, packet: RtpPacket, number: int) -> list[Ordered]:
        """A number that is to come: the next one, or one after a hole."""
        held = self._held
        if number in held:
            self.duplicated += 1
            return []
        if held and number < max(held):
            self.reordered += 1
        held[number] = packet
        out = self._drain(gap=False)
        while held and max(held) - self._next > self._window:
            # Further apart than networks swap, or more than is held: no use in waiting.
            out += self._give_up()
        # It was looked for before the clock was: what is in hand is not given up.
        out += self.due(packet.arrived_s)
        return out

    def _behind(self, number: int) -> None:
        if number in self._given_up:
            self._given_up.discard(number)
            self.late += 1
        elif number < self._first:
            self.late += 1
        else:
            self.duplicated += 1

    def _strange(self, packet: RtpPacket) -> list[Ordered]:
        """A jump or another SSRC. Over UDP a second packet must confirm it: anybody may send one there."""
        stray, self._stray = self._stray, None
        if self._window == 0:
            return self._restart([packet], restarted=True)
        if stray is not None and stray.ssrc == packet.ssrc and packet.sequence == (stray.sequence + 1) % CIRCLE:
            return self._restart([stray, packet], restarted=True)
        if stray is not None:
            self.late += 1
        self._stray = packet
        return []

    def _restart(self, packets: list[RtpPacket], *, restarted: bool) -> list[Ordered]:
        out: list[Ordered] = []
        while self._held:
            out += self._give_up()
        first = packets[0]
        self._ssrc, self._first = first.ssrc, first.sequence
        self._next = first.sequence + len(packets)
        self._given_up.clear()
        out.append(Ordered(first, gap=True, restarted=restarted))
        out += map(Ordered, packets[1:])
        return out

    def _give_up(self) -> list[Ordered]:
        """Hand on the lowest held packets; the numbers before them are lost."""
        first = min(self._held)
        self.lost += first - self._next
        since = first - MAX_MISORDER
        self._given_up = {number for number in self._given_up if number >= since}
        self._given_up.update(range(max(self._next, since), first))
        self._next = first
        return self._drain(gap=True)

    def _drain(self, *, gap: bool) -> list[Ordered]:
        """The held packets that are next; `gap` is said of the first."""
        out: list[Ordered] = []
        while (packet := self._held.pop(self._next, None)) is not None:
            self._next += 1
            out.append(Ordered(packet, gap))
            gap = False
        return out
