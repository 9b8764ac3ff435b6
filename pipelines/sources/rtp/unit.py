"""An access unit, given out and being built."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.sources.rtp.nal_payload import KEY, LEADING, PARAMETERS, SEI, SLICE, NalUnits

START = b"\0\0\0\1"
SHORT_START = b"\0\0\1"
UNIT_MOST = 16 << 20
"""Octets in one unit. Level 6.2 of either codec allows no more for pictures that cameras make."""
NALS_MOST = 4096
"""NAL units in one unit; H.265 allows 600 slices. Each costs some 40 octets beside its own."""


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """One picture as it was sent, with the parameter sets and messages before it."""

    data: bytes
    """Annex B: each NAL unit behind a start code of four octets. What came of it, possibly nothing, if damaged."""
    timestamp: int
    """32 bits, ticks of the RTP clock."""
    arrived_s: float
    """Monotonic: when the last to come of its own packets came, so the moment at which it was complete on the wire. Not
    the arrival of the packet that proved it to be complete (the next unit's, where the marker cannot be trusted), and
    not the end of a wait for a missing one: time that is spent on that is latency of ours, and is to be seen as such."""
    key: bool
    """An IDR (H.264) or IRAP picture (H.265), with or without its parameter sets: the decoder may have them."""
    recovery: int | None
    """A recovery point SEI's count: 0 where this picture and all that are shown after it come out right although the
    decoder begins here, more where the pictures are mended bit by bit. None without one. Streams with open groups or
    intra refresh have no IDR ever; whoever waits for a key picture may take 0 for one. It is the encoder's word only,
    and H.264's pictures before it in presentation order may be wrong: that is why it is not `key`."""
    leading: bool
    """A RASL picture (H.265): wrong if decoding began at the key picture that it follows, right otherwise."""
    damaged: bool
    """Something of it is missing, or may be."""
    lost_before: bool
    """Packets before it are missing, possibly whole units: a key picture can be trusted, another one not. Also said of
    a session's first unit. Its slices are all there unless it is `damaged`."""
    restarted: bool
    """The first unit of a new numbering: its timestamp has nothing to do with the ones before."""


class OpenUnit:
    """An access unit that packets are being put into. Bounded: what grows beyond is damaged, and freed."""

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
        """Put a NAL unit at the end."""
        if kind & SLICE:
            self.sliced = True
            self.key |= bool(kind & KEY)
            self.leading |= bool(kind & LEADING)
        elif kind & SEI and self.recovery is None:
            self.recovery = units.recovery(nal)
        # The first bit is set by whoever found the NAL unit broken on its way (RFC 6184, 5.3; RFC 7798, 1.1.4).
        if nal[0] > 0x7F:
            self.damaged = True
        self.size += len(START) + len(nal)
        if self.full or self.size > UNIT_MOST or len(self.nals) >= NALS_MOST:
            self.full = self.damaged = True
            self.nals.clear()
        else:
            self.nals.append(nal)

    def keep_parameters(self, units: NalUnits) -> None:
        """Forget all but the parameter sets: the rest spoke of a picture that is lost."""
        self.nals = [nal for nal in self.nals if units.kind(nal) & PARAMETERS]
        self.size = sum(len(START) + len(nal) for nal in self.nals)
        self.recovery = None

    def join(self, rest: OpenUnit) -> None:
        """Put all of `rest` at the end: it was the same unit all along."""
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
        """The unit as it is given out."""
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
