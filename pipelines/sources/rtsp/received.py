"""The packets that an RTSP client returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Received:
    """One unparsed RTP or RTCP packet from the network."""

    kind: Literal["rtp", "rtcp"]
    data: bytes = field(repr=False)
    arrived_s: float
    """Time on the client's monotonic clock at which the packet was read from the socket."""
