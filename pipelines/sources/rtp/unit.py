"""Access units (one coded picture each): the finished form and the one under construction."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.sources.rtp.nal_payload import KEY, LEADING, PARAMETERS, SEI, SLICE, NalUnits

START = b"\0\0\0\1"
SHORT_START = b"\0\0\1"
UNIT_MOST = 16 << 20
"""Most bytes of one unit. Level 6.2 of either codec allows no more for pictures of cameras."""
NALS_MOST = 4096
"""Most NAL units of one unit; H.265 allows 600 slices. Each costs about 40 bytes beyond its data."""


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """One picture as sent, with the parameter sets and SEI messages before it."""

    data: bytes
    """Annex B: each NAL unit after a start code of four bytes. Incomplete, possibly empty, if `damaged`."""
    timestamp: int
    """32 bits, ticks of the RTP clock."""
    arrived_s: float
    """Monotonic arrival time of the unit's last packet: the moment when the unit was complete on the wire. Neither the
    arrival of the packet that proved it complete (a packet of the next unit if the marker is unreliable) nor the end of a
    hold for a missing packet: such waits are latency of this program and have to show in its figures."""
    key: bool
    """An IDR (H.264) or IRAP picture (H.265), with or without its parameter sets: the decoder may have them."""
    recovery: int | None
    """The count of the recovery point SEI, None without one. 0: a decoder that starts here decodes this picture and all
    that are displayed after it correctly. More: the number of pictures until that is so (intra refresh). Streams with open
    groups of pictures or intra refresh never have an IDR; a decoder can start at a unit with 0 instead. 0 is not `key`,
    because it is only the encoder's claim, and H.264 pictures before it in presentation order may be wrong."""
    leading: bool
    """A RASL picture (H.265): wrong if decoding began at the key picture before it, right otherwise."""
    damaged: bool
    """Parts of the unit are missing, or may be."""
    lost_before: bool
    """Packets before this unit are missing, possibly whole units. A key picture is then still right, another one may not
    be. Also set on the first unit of a session. All slices are there unless the unit is `damaged`."""
    restarted: bool
    """The first unit after a restart of the sequence numbers: its timestamp is unrelated to earlier ones."""


class OpenUnit:
    """An access unit under construction. Beyond UNIT_MOST or NALS_MOST it counts as damaged, and its data is freed."""

    __slots__ = (
        "arrived_s",
        "damaged",
        "full",
        "gap_before",
        "key",
        "leading",
        "nals",
        "recovery",
        "restarted",
        "size",
        "sliced",
        "timestamp",
    )

    def __init__(self, timestamp: int, *, gap_before: bool = False, restarted: bool = False) -> None:
        self.timestamp = timestamp
        self.gap_before = gap_before
        self.restarted = restarted
        self.arrived_s = float("-inf")
        self.nals: list[bytes] = []
        self.size = 0
        self.recovery: int | None = None
        self.sliced = self.key = self.leading = self.damaged = self.full = False

    def add(self, nal: bytes, kind: int, units: NalUnits) -> None:
        """Append a NAL unit. `kind`: its bits from `NalUnits.kind`; `units`: the depacketizer, for reading an SEI message."""
        if kind & SLICE:
            self.sliced = True
            self.key |= bool(kind & KEY)
            self.leading |= bool(kind & LEADING)
        elif kind & SEI and self.recovery is None:
            self.recovery = units.recovery(nal)
        # A device on the way sets the first bit if it finds the NAL unit broken (RFC 6184, 5.3; RFC 7798, 1.1.4).
        if nal[0] > 0x7F:
            self.damaged = True
        self.size += len(START) + len(nal)
        if self.full or self.size > UNIT_MOST or len(self.nals) >= NALS_MOST:
            self.full = self.damaged = True
            self.nals.clear()
        else:
            self.nals.append(nal)

    def keep_parameters(self, units: NalUnits) -> None:
        """Remove all NAL units but the parameter sets: the others belong to a lost picture."""
        self.nals = [nal for nal in self.nals if units.kind(nal) & PARAMETERS]
        self.size = sum(len(START) + len(nal) for nal in self.nals)
        self.recovery = None

    def join(self, rest: OpenUnit) -> None:
        """Append all of `rest`, which is part of the same unit."""
        self.nals += rest.nals
        self.size += rest.size
        self.arrived_s = max(self.arrived_s, rest.arrived_s)
        self.key |= rest.key
        self.leading |= rest.leading
        self.sliced |= rest.sliced
        self.damaged |= rest.damaged
        if self.recovery is None:
            self.recovery = rest.recovery
        if self.size > UNIT_MOST or len(self.nals) > NALS_MOST:
            self.full = self.damaged = True
            self.nals.clear()

    def closed(self) -> AccessUnit:
        """The finished form of this unit."""
        return AccessUnit(
            data=START + START.join(self.nals) if self.nals else b"",
            timestamp=self.timestamp,
            arrived_s=self.arrived_s,
            key=self.key,
            recovery=self.recovery,
            leading=self.leading,
            damaged=self.damaged,
            lost_before=self.gap_before,
            restarted=self.restarted,
        )
