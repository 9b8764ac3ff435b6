"""RTCP (RFC 3550, section 6): what a sender says of its clock and its end, and what a receiver answers."""

from __future__ import annotations

import struct
from dataclasses import dataclass

SENDER_REPORT, RECEIVER_REPORT, SOURCE_DESCRIPTION, GOODBYE = 200, 201, 202, 203
CNAME = 1
UNIX_EPOCH = 2_208_988_800
"""Seconds from 1900, where NTP begins, to 1970."""
NO_WALL_CLOCK = 1 << 63
"""Stamps below it count from the sender's own start (RFC 3550, 6.4.1: the high bit is nought): no time of day."""
MOST_PACKETS = 64
"""In one compound packet; three or four are usual."""
LOST_LEAST, LOST_MOST = -(1 << 23), (1 << 23) - 1
"""The cumulative loss is a signed field of 24 bits."""


@dataclass(frozen=True, slots=True)
class SenderReport:
    """The sender's clock at one RTP timestamp."""

    ssrc: int
    ntp: int
    """64 bits: seconds since 1900, and their 2**-32 parts."""
    timestamp: int
    """32 bits: the RTP timestamp of the same instant."""

    @property
    def unix_s(self) -> float | None:
        """Seconds since 1970, None if the sender has no wall clock.

        Whole seconds are subtracted as integers: a float of 1900's seconds has a step of 0.5 µs, one of 1970's 0.24 µs.
        """
        if self.ntp < NO_WALL_CLOCK:
            return None
        return ((self.ntp >> 32) - UNIX_EPOCH) + (self.ntp & 0xFFFFFFFF) / 2**32


@dataclass(frozen=True, slots=True)
class Bye:
    """These senders have ended."""

    ssrcs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """How one sender is received (RFC 3550, 6.4.1)."""

    ssrc: int
    fraction_lost: int
    """Of 256, since the last report."""
    lost: int
    highest: int
    """The highest sequence number, with its cycles: 32 bits."""
    jitter: int
    """Ticks of the RTP clock."""
    last_report: int
    """The middle 32 bits of the last sender report's NTP stamp, 0 before the first."""
    delay: int
    """Since that report, 2**-16 s."""


def parse_rtcp(data: bytes | bytearray | memoryview) -> list[SenderReport | Bye]:
    """The reports and goodbyes of a compound packet, up to the first length that lies."""
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
    """A compound packet: a receiver report (6.4.2) with one block or none, then the name that 6.1 asks for.

    :param cname: at most 255 bytes; what is longer is cut.
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
    # One to four octets of nought end the items at the next word.
    items += bytes(4 - len(items) % 4)
    return report + struct.pack(">BBH", 0x81, SOURCE_DESCRIPTION, len(items) // 4) + items
