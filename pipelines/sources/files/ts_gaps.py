"""Detects pictures that are missing in a damaged transport stream.

If the bytes between two packets are overwritten or missing, FFmpeg resynchronises and returns the next packet without a flag
or an error. A step in time alone is no proof, because a variable frame rate has such steps, too. So a gap counts only if time
steps and the file between the two packets is not an unbroken sequence of transport packets.
"""

from __future__ import annotations

import os
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from av.packet import Packet

SYNC = 0x47
STEPS = 32
"""Number of last steps in time from which the usual step (their median) is computed."""
GAP_STEPS = 1.5
"""A gap is a step in time of more than this many usual steps. More than 1, since a stream's times are rounded."""
SEARCHED = 16 << 20
"""Most bytes behind a packet that are searched for damage: a real pause of the video may contain hours of sound."""


@dataclass(frozen=True, slots=True)
class TsLayout:
    """The layout of transport packets in a file."""

    length: int
    """Bytes of a packet with its prefix or suffix, such as a time code or error correction."""
    sync: int
    """Offset of the sync byte in a packet."""


class TsGaps:
    """Detects gaps between the packets of one video stream of a file. Thread: the source's."""

    def __init__(self, path: Path, layout: TsLayout, pid: int) -> None:
        """layout: of the file's transport packets. pid: packet identifier of the video stream."""
        self._path = path
        self._layout = layout
        self._pid = pid
        self._steps: deque[float] = deque(maxlen=STEPS)
        self._last: Packet | None = None
        self._origin_s = 0.0
        """The presentation time of the first packet."""
        self._missing: list[tuple[float, float]] = []
        """The gaps: (time in the video, missing duration), both in seconds."""

    def packet(self, packet: Packet) -> None:
        """Record the next packet, in decoding order."""
        if packet.dts is None or packet.pos is None or packet.pos < 0 or not packet.time_base:
            return
        last, self._last = self._last, packet
        if last is None:
            self._origin_s = float((packet.pts if packet.pts is not None else packet.dts) * packet.time_base)
            return
        assert last.dts is not None
        step_s = float((packet.dts - last.dts) * packet.time_base)
        usual_s = statistics.median(self._steps) if self._steps else _duration_s(packet)
        if usual_s and step_s > GAP_STEPS * usual_s and self._damaged(last, packet):
            # Lost pictures are shown no earlier than they are decoded.
            at_s = float(last.dts * packet.time_base) + usual_s - self._origin_s
            self._missing.append((max(at_s, 0.0), step_s - usual_s))
        elif step_s > 0:
            self._steps.append(step_s)

    def lost(self) -> str | None:
        """A message about the missing video; None if no gap was found."""
        if not self._missing:
            return None
        at_s, _ = self._missing[0]
        total_s = sum(s for _, s in self._missing)
        where = f"at {at_s:.2f} s" if len(self._missing) == 1 else f"in {len(self._missing)} places, the first at {at_s:.2f} s"
        return f"is damaged: about {total_s:.2f} s of video are missing {where}"

    def _damaged(self, last: Packet, packet: Packet) -> bool:
        """Whether a packet is flagged, or the file is damaged between the two packets."""
        assert last.pos is not None
        assert packet.pos is not None
        if last.is_corrupt or packet.is_corrupt:
            return True
        # To the end of the transport packet in which the later packet begins, since its continuity counter is checked, too.
        count = packet.pos + self._layout.length - last.pos
        if count <= self._layout.length:
            return False
        try:
            with self._path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), min(count, SEARCHED), last.pos)
        except OSError:
            return False  # reading the file reports this error
        return is_damaged(data, self._layout, self._pid)


def is_damaged(data: bytes, layout: TsLayout, pid: int) -> bool:
    """Whether some of these bytes are not transport packets, or packets of this PID are missing or flagged
    (ISO/IEC 13818-1, 2.4.3.2). The bytes begin with a packet."""
    counter: int | None = None
    for head in _heads(data, layout):
        if head[0] != SYNC:
            return True
        if int.from_bytes(head[1:3], "big") & 0x1FFF != pid:
            continue
        if head[1] & 0x80:
            return True  # transport_error_indicator
        payload, adapted = bool(head[3] & 0x10), bool(head[3] & 0x20)
        announced = adapted and head[4] > 0 and bool(head[5] & 0x80)
        now = head[3] & 15
        # A packet may be sent twice, and a packet without a payload does not advance the counter.
        if counter is not None and not announced and now not in (counter, (counter + payload) & 15):
            return True
        counter = now
    return False


def _heads(data: bytes, layout: TsLayout) -> Iterator[bytes]:
    """The first six bytes of each transport packet, from its sync byte on."""
    for at in range(layout.sync, len(data) - 5, layout.length):
        yield data[at : at + 6]


def _duration_s(packet: Packet) -> float:
    """Seconds that a packet lasts; 0 if unknown."""
    return float(packet.duration * packet.time_base) if packet.duration and packet.time_base else 0.0
