"""Restores the sending order of packets and counts the missing ones (RFC 3550, appendix A.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipelines.sources.rtp.packet import RtpPacket

WINDOW = 32
"""Most packets that are held while an earlier one is missing. Networks reorder packets by a few positions only."""
HOLD_S = 0.020
"""Longest time that a packet is held for an earlier one. The hold is latency; the latency budget is 50 ms in total."""
MAX_DROPOUT = 3000
"""A jump forward by at least this many sequence numbers is a restart, not a loss (RFC 3550, A.1)."""
MAX_MISORDER = 100
"""A packet up to this many sequence numbers back is late or a duplicate; further back is a restart (RFC 3550, A.1)."""
CIRCLE = 1 << 16


class Ordered(NamedTuple):
    """A packet in sending order. A tuple because tuples are faster to create, as for `RtpPacket`."""

    packet: RtpPacket
    gap: bool = False
    """Packets before this one are missing, or may be (the first packet of a session)."""
    restarted: bool = False
    """The sequence numbers restart here: another SSRC, or a jump. The timestamps restart too. Implies `gap`."""


class PacketOrder:
    """Puts the packets of one track into sending order. Thread: one, the owner's.

    A packet after a missing sequence number is held, for at most `hold_s` seconds and at most `window` numbers. Then the
    missing numbers count as lost. With `window` 0 (TCP, which keeps the order) they count as lost at once.
    Invariant: received = returned + duplicated + late + held.

    - `received`: all packets of the track.
    - `lost`: sequence numbers that were skipped; the decoder never gets them. If the packet comes later, it stays lost
      and counts as `late` too: lost - late packets never came.
    - `reordered`: packets that came after a higher number and were still returned in order.
    - `duplicated`: packets with a number that was returned or is held.
    - `late`: dropped packets: their number was skipped, or lies before the first packet, or fits nowhere (a single
      packet with a foreign number or SSRC).

    A restart adds nothing to `lost`, because the number of missed packets is unknown.

    :param window: most sequence numbers between the next packet and the last held one; 0 holds none.
    :param hold_s: longest hold of a packet, seconds.
    """

    def __init__(self, *, window: int = WINDOW, hold_s: float = HOLD_S) -> None:
        self.received = self.lost = self.reordered = self.duplicated = self.late = 0
        self._window = window
        self._hold_s = hold_s
        self._ssrc = -1
        self._first = self._next = 0
        """Extended sequence numbers: the bits above the lower 16 count the wraps."""
        self._held: dict[int, RtpPacket] = {}
        self._stray: RtpPacket | None = None
        self._skipped: set[int] = set()
        self._in_order = False
        """No packet is held and no restart is suspected: the next number is returned directly."""

    @property
    def ssrc(self) -> int | None:
        """The sender's SSRC, 32 bits, since the last restart; None before the first packet."""
        return self._ssrc if self._ssrc >= 0 else None

    @property
    def highest(self) -> int:
        """The highest sequence number that was returned, extended by its wraps to 32 bits."""
        return (self._next - 1) & 0xFFFFFFFF

    @property
    def expected(self) -> int:
        """How many packets the sender sent up to the last returned one, summed over all restarts."""
        waiting = len(self._held) + (self._stray is not None)
        return self.received - self.duplicated - self.late - waiting + self.lost

    def push(self, packet: RtpPacket) -> Sequence[Ordered]:
        """Add the next packet in order of arrival. Returns the packets that are in order now."""
        self.received += 1
        following = self._next
        if self._in_order and packet.sequence == following & 0xFFFF and packet.ssrc == self._ssrc:
            self._next = following + 1
            return (Ordered(packet),)
        out = self._out_of_order(packet)
        self._in_order = not self._held and self._stray is None
        return out

    @property
    def wake_s(self) -> float | None:
        """Monotonic time at which `due` returns held packets if no packet comes; None if none is held."""
        if not self._held:
            return None
        return min(packet.arrived_s for packet in self._held.values()) + self._hold_s

    def due(self, now_s: float) -> Sequence[Ordered]:
        """The packets with a hold that ends at or before `now_s` (monotonic). The numbers missing before them are lost."""
        out: list[Ordered] = []
        while (wake_s := self.wake_s) is not None and now_s >= wake_s:
            out += self._skip_missing()
        self._in_order = not self._held and self._stray is None
        return out

    def flush(self) -> Sequence[Ordered]:
        """All held packets, at the end of the session."""
        return self.due(float("inf"))

    def _out_of_order(self, packet: RtpPacket) -> list[Ordered]:
        if self._ssrc < 0:
            return self._restart([packet], restarted=False)
        ahead = (packet.sequence - self._next) % CIRCLE
        if packet.ssrc != self._ssrc or MAX_DROPOUT <= ahead < CIRCLE - MAX_MISORDER:
            return self._suspect_restart(packet)
        if self._stray is not None:
            self.late += 1
            self._stray = None
        if ahead >= MAX_DROPOUT:
            self._behind(self._next + ahead - CIRCLE)
            return []
        return self._ahead(packet, self._next + ahead)

    def _ahead(self, packet: RtpPacket, number: int) -> list[Ordered]:
        """Take a packet with the next number or a higher one."""
        held = self._held
        if number in held:
            self.duplicated += 1
            return []
        if held and number < max(held):
            self.reordered += 1
        held[number] = packet
        out = self._drain(gap=False)
        while held and max(held) - self._next > self._window:
            # Networks do not reorder packets so far apart: a longer hold is useless.
            out += self._skip_missing()
        # After the drain: a packet that has arrived does not count as lost, even if its hold is over.
        out += self.due(packet.arrived_s)
        return out

    def _behind(self, number: int) -> None:
        """Count a packet with a lower number than the next one as late or as a duplicate."""
        if number in self._skipped:
            self._skipped.discard(number)
            self.late += 1
        elif number < self._first:
            self.late += 1
        else:
            self.duplicated += 1

    def _suspect_restart(self, packet: RtpPacket) -> list[Ordered]:
        """Take a packet after a jump, or with another SSRC. Over UDP a second packet must confirm the restart, because
        any host can send one."""
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
            out += self._skip_missing()
        first = packets[0]
        self._ssrc, self._first = first.ssrc, first.sequence
        self._next = first.sequence + len(packets)
        self._skipped.clear()
        out.append(Ordered(first, gap=True, restarted=restarted))
        out += map(Ordered, packets[1:])
        return out

    def _skip_missing(self) -> list[Ordered]:
        """Count the numbers before the lowest held packet as lost, and return the held packets in order from there."""
        first = min(self._held)
        self.lost += first - self._next
        since = first - MAX_MISORDER
        self._skipped = {number for number in self._skipped if number >= since}
        self._skipped.update(range(max(self._next, since), first))
        self._next = first
        return self._drain(gap=True)

    def _drain(self, *, gap: bool) -> list[Ordered]:
        """Remove and return the held packets that are next in order. `gap` is set on the first of them."""
        out: list[Ordered] = []
        while (packet := self._held.pop(self._next, None)) is not None:
            self._next += 1
            out.append(Ordered(packet, gap))
            gap = False
        return out
