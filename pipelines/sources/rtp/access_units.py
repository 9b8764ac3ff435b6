"""Access units out of ordered packets: where one ends, and whether anything of it is missing.

A unit ends with the marker bit (RFC 6184, 5.1; RFC 7798, 4.1): it is given out at once, without the wait for the next
picture that a parser of the bare stream needs. Servers that set the marker on every NAL unit or on none are noticed, and
their units end where the timestamp changes, one frame period later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipelines.sources.rtp.nal_payload import SLICE, TRAILING, NalUnits
from pipelines.sources.rtp.sequence import Ordered
from pipelines.sources.rtp.unit import NALS_MOST, SHORT_START, AccessUnit, OpenUnit

PROBATION_S = 0.100
"""How long the first marked unit waits for a packet that shows whether it was whole. A camera's next picture comes after
17 to 67 ms; one that sends fewer than ten a second shall not pay a whole period for its first."""
NO_MARKER = "the server does not mark the ends of its pictures"
MARKER_WITHIN = "the server marks ends within its pictures"
NO_TIMESTAMP = -1


class AccessUnits:
    """Assembles the units of one track. One thread, the one that pushes.

    The first marked unit of a session is held until a packet of another timestamp comes, or for 100 ms: a server that
    marks every NAL unit would otherwise cut the first key picture in pieces. A loss straight behind it damages it, for
    what was lost may have been its rest; after that, what was complete before a loss stays good.
    """

    def __init__(self, units: NalUnits) -> None:
        self.closes: Literal["marker", "timestamp"] = "marker"
        """How the ends are found. Goes over to "timestamp" once, for good."""
        self.reason: str | None = None
        """Why it went over."""
        self._units = units
        self._open = OpenUnit(NO_TIMESTAMP, gap_before=True)
        self._out: list[AccessUnit] = []
        self._on_probation = True
        self._held: OpenUnit | None = None
        """The first marked unit, which has the timestamp of `_open`."""
        self._marked = NO_TIMESTAMP
        """The timestamp of the last unit that a marker closed, as long as nothing else came."""

    def push(self, item: Ordered) -> Sequence[AccessUnit]:
        """The units that are known to be at their end now, in the order in which they were sent."""
        packet = item.packet
        if not packet.payload:
            self._empty(item)
            return self._given()
        if item.gap or packet.timestamp != self._open.timestamp:
            self._turn(item)
        units = self._units
        for nal in units.take(packet.payload):
            self._add(nal)
        unit = self._open
        if units.damaged:
            unit.damaged, units.damaged = True, False
        if packet.arrived_s > unit.arrived_s:
            unit.arrived_s = packet.arrived_s
        if packet.marker:
            self._mark()
        return self._given() if self._out else ()

    @property
    def wake_s(self) -> float | None:
        """When `due` will have something if no packet comes, None if nothing is held."""
        if self._held is None or self._units.open:
            # A NAL unit that goes on behind the marker shows within packets whose it is.
            return None
        return self._held.arrived_s + PROBATION_S

    def due(self, now_s: float) -> Sequence[AccessUnit]:
        """The held unit, if it has waited long enough by `now_s`."""
        wake_s = self.wake_s
        if wake_s is not None and now_s >= wake_s:
            self._release()
        return self._given()

    def flush(self) -> Sequence[AccessUnit]:
        """What is left at the end of the session. What no marker and no other timestamp closed counts as damaged."""
        self._break(restarted=False)
        return self._given()

    def _given(self) -> Sequence[AccessUnit]:
        out, self._out = self._out, []
        return out

    def _give(self, unit: OpenUnit) -> None:
        self._out.append(unit.closed())

    def _empty(self, item: Ordered) -> None:
        """A packet without a payload: only its place and its marker say something."""
        if item.gap:
            self._break(restarted=item.restarted)
        if item.packet.marker and item.packet.timestamp == self._open.timestamp:
            self._mark()

    def _turn(self, item: Ordered) -> None:
        """Before a packet of another timestamp, or behind a gap: end what cannot go on."""
        unit = self._open
        same = item.packet.timestamp == unit.timestamp
        if item.gap:
            begun = unit.sliced or unit.damaged or bool(unit.nals) or self._units.open
            if same and begun and not item.restarted:
                unit.damaged = True
                self._units.drop()
                self._doubt()
            else:
                self._break(restarted=item.restarted)
        elif not same:
            self._change()
        if not same:
            self._marked = NO_TIMESTAMP
            self._open.timestamp = item.packet.timestamp

    def _break(self, *, restarted: bool) -> None:
        """A gap behind the open unit, which was not closed: it is damaged, if there was a picture in it."""
        self._doubt()
        unit = self._open
        if self._units.drop() or unit.sliced or unit.damaged:
            unit.damaged = True
            self._give(unit)
            self._open = unit = OpenUnit(unit.timestamp)
        elif restarted:
            self._open = unit = OpenUnit(unit.timestamp)
        else:
            unit.keep_parameters(self._units)
        unit.gap_before = True
        unit.restarted |= restarted

    def _change(self) -> None:
        """Another timestamp follows without a gap: the open unit is at its end, marked or not."""
        unit = self._open
        if self._units.drop():
            unit.damaged = True
        if unit.damaged:
            self._doubt()
        else:
            self._release()
        if unit.sliced or unit.damaged:
            if self.closes == "marker" and not unit.damaged:
                self._go_over(NO_MARKER)
            self._give(unit)
            self._open = OpenUnit(NO_TIMESTAMP)

    def _mark(self) -> None:
        """The packet has the marker. It ends no unit without a slice, and none in the midst of a NAL unit.

        A damaged unit whose slices are all lost ends with its timestamp: nobody waits for it, and behind the marker of a
        broken message the slices may be to come.
        """
        unit = self._open
        if self.closes == "timestamp" or self._units.open or not unit.sliced:
            return
        self._marked = unit.timestamp
        self._open = OpenUnit(unit.timestamp)
        self._doubt()
        if self._on_probation and not unit.damaged:
            self._held = unit
        else:
            self._give(unit)

    def _add(self, nal: bytes) -> None:
        kind = self._units.kind(nal)
        if kind & SLICE:
            self._put(nal, kind)
        elif SHORT_START in nal:
            # Some cameras put a whole unit, start codes and all, where one NAL unit belongs.
            *pieces, last = nal.split(SHORT_START, NALS_MOST)
            for piece in (*(piece.rstrip(b"\0") for piece in pieces), last):
                if len(piece) > 1:
                    self._put(piece, self._units.kind(piece))
        else:
            self._put(nal, kind)

    def _put(self, nal: bytes, kind: int) -> None:
        unit = self._open
        if kind & SLICE and not unit.sliced:
            self._first_slice(nal)
        elif kind & TRAILING and not unit.sliced:
            # It belongs to the picture before. Where that was given out already, or lost, nothing depends on it.
            if self._held is not None:
                self._held.add(nal, kind, self._units)
            return
        self._open.add(nal, kind, self._units)

    def _first_slice(self, nal: bytes) -> None:
        """Before the first slice of the open unit: is it its picture's first, and is it another picture at all?"""
        unit = self._open
        begins = self._units.first(nal)
        if unit.gap_before and not begins:
            unit.damaged = True
        if unit.timestamp != self._marked or unit.gap_before:
            return
        if begins:
            # Another picture with the same timestamp: the second field, or a server without a clock.
            self._release()
        else:
            self._cut(unit)

    def _cut(self, rest: OpenUnit) -> None:
        """The marker came within a picture; `rest` goes on with it."""
        self._go_over(MARKER_WITHIN)
        if self._held is None:
            # The beginning was given out as whole: whoever decodes it must learn that it was not.
            rest.damaged = True
        else:
            self._held.join(rest)
            self._open, self._held = self._held, None

    def _go_over(self, reason: str) -> None:
        self.closes, self.reason = "timestamp", reason

    def _release(self) -> None:
        """The held unit was whole: from now on a marker is believed at once."""
        if self._held is not None:
            self._give(self._held)
            self._held = None
            self._on_probation = False

    def _doubt(self) -> None:
        """What came behind the held unit cannot be told: it may have been its rest."""
        if self._held is not None:
            self._held.damaged = True
            self._give(self._held)
            self._held = None
