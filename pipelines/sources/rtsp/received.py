"""What a client hands out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Received:
    """One RTP or RTCP packet as it came from the network, unparsed."""

    kind: Literal["rtp", "rtcp"]
    data: bytes = field(repr=False)
    arrived_s: float
    """The client's clock (monotonic) when it was read from the socket."""
