"""RTCP (RFC 3550, section 6): parses sender reports and goodbyes, and builds receiver reports."""

from __future__ import annotations

import struct
from dataclasses import dataclass

SENDER_REPORT, RECEIVER_REPORT, SOURCE_DESCRIPTION, GOODBYE = 200, 201, 202, 203
CNAME = 1
UNIX_EPOCH = 2_208_988_800
"""Seconds from 1900, the start of NTP time, to 1970."""
NO_WALL_CLOCK = 1 << 63
"""NTP timestamps below this count from the sender's start (RFC 3550, 6.4.1: the high bit is zero), not from 1900."""
MOST_PACKETS = 64
"""Most RTCP packets that are read from one compound packet; three or four are usual."""
LOST_LEAST, LOST_MOST = -(1 << 23), (1 << 23) - 1
"""The cumulative loss is a signed field of 24 bits."""


@dataclass(frozen=True, slots=True)
class SenderReport:
    """The sender's wall clock at one RTP timestamp."""

    ssrc: int
    ntp: int
    """NTP timestamp, 64 bits: seconds since 1900 in the upper 32 bits, fractions of 2**-32 s in the lower ones."""
    timestamp: int
    """32 bits: the RTP timestamp of the same instant."""

    @property
    def unix_s(self) -> float | None:
        """The wall clock as seconds since 1970; None if the sender has no wall clock.

        Whole seconds are subtracted as integers: a float of seconds since 1900 has a step of 0.5 µs, since 1970 of 0.24 µs.
        """
        if self.ntp < NO_WALL_CLOCK:
            return None
        return ((self.ntp >> 32) - UNIX_EPOCH) + (self.ntp & 0xFFFFFFFF) / 2**32


@dataclass(frozen=True, slots=True)
class Bye:
    """A goodbye: the senders with these SSRCs have ended."""

    ssrcs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """Reception statistics of one sender, as a receiver report carries them (RFC 3550, 6.4.1)."""

    ssrc: int
    fraction_lost: int
    """Share of packets lost since the last report, in 256ths."""
    lost: int
    highest: int
    """The highest sequence number, extended by its wraps to 32 bits."""
    jitter: int
    """Interarrival jitter, ticks of the RTP clock."""
    last_report: int
    """The middle 32 bits of the last sender report's NTP timestamp, 0 before the first."""
    delay: int
    """Time since that sender report, units of 2**-16 s."""


def parse_rtcp(data: bytes | bytearray | memoryview) -> list[SenderReport | Bye]:
    """The sender reports and goodbyes of a compound packet, up to the first packet with a wrong length or version."""
    found: list[SenderReport | Bye] = []
    at = 0
    for _ in range(MOST_PACKETS):
        if at + 4 > len(data):
            break
        first, kind, words = struct.unpack_from(">BBH", data, at)
        end = at + 4 + 4 * words
        if first >> 6 != 2 or end > len(data):
            break
        if kind == SENDER_REPORT and end - at >= 28:
            found.append(SenderReport(*struct.unpack_from(">IQI", data, at + 4)))
        elif kind == GOODBYE:
            count = min(first & 0x1F, words)
            found.append(Bye(struct.unpack_from(f">{count}I", data, at + 4)))
        at = end
    return found


def receiver_report(ssrc: int, cname: str, block: ReportBlock | None = None) -> bytes:
    """The bytes of a compound packet: a receiver report (6.4.2) with at most one block, then the CNAME that 6.1 requires.

    :param ssrc: the receiver's own SSRC.
    :param cname: at most 255 bytes; a longer name is cut.
    """
    count = 0 if block is None else 1
    report = struct.pack(">BBHI", 0x80 | count, RECEIVER_REPORT, 1 + 6 * count, ssrc)
    if block is not None:
        lost = max(LOST_LEAST, min(block.lost, LOST_MOST)) & 0xFFFFFF
        loss = min(block.fraction_lost, 255) << 24 | lost
        rest = (block.highest, block.jitter, block.last_report, block.delay)
        report += struct.pack(">6I", block.ssrc, loss, *(field & 0xFFFFFFFF for field in rest))
    name = cname.encode()[:255]
    items = struct.pack(">IBB", ssrc, CNAME, len(name)) + name
    # One to four zero bytes end the items at the next 32-bit word.
    items += bytes(4 - len(items) % 4)
    return report + struct.pack(">BBH", 0x81, SOURCE_DESCRIPTION, len(items) // 4) + items
