"""Pictures that a damaged transport stream has lost without a trace.

Where the bytes between two packets are overwritten or gone, FFmpeg finds its way back and gives out the next packet as if
nothing had been: no flag, no error. The step in time alone says nothing, a variable frame rate has it too. Both together do:
the clock steps, and between the two packets the file is no row of transport packets that follow each other.
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
USUAL = 32
"""Steps of which the usual one is taken."""
STEP = 1.5
"""A gap is a step of more than so many usual ones: the clock of a stream is rounded."""
LOOKED_AT = 16 << 20
"""Bytes behind a packet in which damage is looked for: a real pause may be filled with hours of sound."""


@dataclass(frozen=True, slots=True)
class Cells:
    """How a file holds its transport packets: the length of each with what stands around it, and where its sync byte is."""

    length: int
    sync: int


class TsGaps:
    """Looks at the packets of one video of one file, in decoding order. One thread."""

    def __init__(self, path: Path, cells: Cells, pid: int) -> None:
        self._path = path
        self._cells = cells
        self._pid = pid
        self._steps: deque[float] = deque(maxlen=USUAL)
        self._last: Packet | None = None
        self._origin_s = 0.0
        """The first time of presentation."""
        self._missing: list[tuple[float, float]] = []
        """Where something is missing, in seconds of the video, and how much."""

    def packet(self, packet: Packet) -> None:
        """Look at the next packet."""
        if packet.dts is None or packet.pos is None or packet.pos < 0 or not packet.time_base:
            return
        last, self._last = self._last, packet
        if last is None:
            self._origin_s = float((packet.pts if packet.pts is not None else packet.dts) * packet.time_base)
            return
        assert last.dts is not None
        step_s = float((packet.dts - last.dts) * packet.time_base)
        usual_s = statistics.median(self._steps) if self._steps else _duration_s(packet)
        if usual_s and step_s > STEP * usual_s and self._damaged(last, packet):
            # What was lost is shown no earlier than it is decoded.
            at_s = float(last.dts * packet.time_base) + usual_s - self._origin_s
            self._missing.append((max(at_s, 0.0), step_s - usual_s))
        elif step_s > 0:
            self._steps.append(step_s)

    def lost(self) -> str | None:
        """What is missing, in words; None: nothing is known to be."""
        if not self._missing:
            return None
        at_s, _ = self._missing[0]
        total_s = sum(s for _, s in self._missing)
        where = f"at {at_s:.2f} s" if len(self._missing) == 1 else f"in {len(self._missing)} places, the first at {at_s:.2f} s"
        return f"is damaged: about {total_s:.2f} s of video are missing {where}"

    def _damaged(self, last: Packet, packet: Packet) -> bool:
        assert last.pos is not None
        assert packet.pos is not None
        if last.is_corrupt or packet.is_corrupt:
            return True
        # To the end of the one in which the later packet begins: its counter is the next one.
        count = packet.pos + self._cells.length - last.pos
        if count <= self._cells.length:
            return False
        try:
            with self._path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), min(count, LOOKED_AT), last.pos)
        except OSError:
            return False  # whoever reads the file says so
        return broken(data, self._cells, self._pid)


def broken(data: bytes, cells: Cells, pid: int) -> bool:
    """Whether these bytes, from the begin of a transport packet on, are not all packets, or some of this PID are missing or
    flagged (ISO/IEC 13818-1, 2.4.3.2)."""
    counter: int | None = None
    for cell in _row(data, cells):
        if cell[0] != SYNC:
            return True
        if int.from_bytes(cell[1:3], "big") & 0x1FFF != pid:
            continue
        if cell[1] & 0x80:
            return True  # the transport's own mark of an error
        payload, adapted = bool(cell[3] & 0x10), bool(cell[3] & 0x20)
        announced = adapted and cell[4] > 0 and bool(cell[5] & 0x80)
        now = cell[3] & 15
        # A packet may be sent twice; one without a payload does not count.
        if counter is not None and not announced and now not in (counter, (counter + payload) & 15):
            return True
        counter = now
    return False


def _row(data: bytes, cells: Cells) -> Iterator[bytes]:
    """The heads of the packets."""
    for at in range(cells.sync, len(data) - 5, cells.length):
        yield data[at : at + 6]


def _duration_s(packet: Packet) -> float:
    return float(packet.duration * packet.time_base) if packet.duration and packet.time_base else 0.0
