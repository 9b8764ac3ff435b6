"""Builds access units from ordered packets: finds the end of each unit and marks units with missing parts as damaged.

The marker bit ends a unit (RFC 6184, 5.1; RFC 7798, 4.1). The unit is returned at once; a parser of the bare stream has to
wait for the next picture. If a server sets the marker on every NAL unit or on none, the change of the timestamp ends a
unit instead, one frame period later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipelines.sources.rtp.nal_payload import SLICE, TRAILING, NalUnits
from pipelines.sources.rtp.sequence import Ordered
from pipelines.sources.rtp.unit import NALS_MOST, SHORT_START, AccessUnit, OpenUnit

PROBATION_S = 0.100
"""How long the first marked unit is held until a later packet shows that it is complete. A camera's next picture comes
after 17 to 67 ms; the limit spares cameras below 10 frames a second a whole frame period of delay."""
NO_MARKER = "the server does not mark the ends of its pictures"
MARKER_WITHIN = "the server marks ends within its pictures"
NO_TIMESTAMP = -1


class AccessUnits:
    """Assembles the access units of one track. Thread: the one that calls `push`.

    The first marked unit of a session is held until a packet with another timestamp comes, or for 100 ms. Without the hold,
    a server that marks every NAL unit would split the first key picture. If packets are lost directly after the held unit,
    it counts as damaged, because the lost packets may have belonged to it. Later units stay undamaged if they were complete
    before a loss.

    :param units: the depacketizer of the track's codec.
    """

    def __init__(self, units: NalUnits) -> None:
        self.closes: Literal["marker", "timestamp"] = "marker"
        """How the end of a unit is found. Changes to "timestamp" at most once and never back."""
        self.reason: str | None = None
        """Why `closes` changed to "timestamp", for people; None until it changes."""
        self._units = units
        self._open = OpenUnit(NO_TIMESTAMP, gap_before=True)
        self._out: list[AccessUnit] = []
        self._on_probation = True
        self._held: OpenUnit | None = None
        """The first marked unit; it has the same timestamp as `_open`."""
        self._marked = NO_TIMESTAMP
        """The timestamp of the last unit that a marker closed; NO_TIMESTAMP after a packet with another timestamp."""

    def push(self, item: Ordered) -> Sequence[AccessUnit]:
        """Add the next packet. Returns the units that are complete now, in sending order."""
        packet = item.packet
        if not packet.payload:
            self._take_empty(item)
            return self._emitted()
        if item.gap or packet.timestamp != self._open.timestamp:
            self._end_previous(item)
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
        return self._emitted() if self._out else ()

    @property
    def wake_s(self) -> float | None:
        """Monotonic time at which `due` returns the held unit if no packet comes; None if no unit is held."""
        if self._held is None or self._units.open:
            # A NAL unit continues after the marker: the next packets show which picture it belongs to.
            return None
        return self._held.arrived_s + PROBATION_S

    def due(self, now_s: float) -> Sequence[AccessUnit]:
        """The held unit if its hold ends at or before `now_s` (monotonic), else no unit."""
        wake_s = self.wake_s
        if wake_s is not None and now_s >= wake_s:
            self._release_whole()
        return self._emitted()

    def flush(self) -> Sequence[AccessUnit]:
        """The remaining units at the end of the session. A unit without a marker or a later timestamp counts as damaged."""
        self._end_at_gap(restarted=False)
        return self._emitted()

    def _emitted(self) -> Sequence[AccessUnit]:
        out, self._out = self._out, []
        return out

    def _emit(self, unit: OpenUnit) -> None:
        self._out.append(unit.closed())

    def _take_empty(self, item: Ordered) -> None:
        """Take a packet without a payload. Only its sequence number and its marker matter."""
        if item.gap:
            self._end_at_gap(restarted=item.restarted)
        if item.packet.marker and item.packet.timestamp == self._open.timestamp:
            self._mark()

    def _end_previous(self, item: Ordered) -> None:
        """End the open unit if `item`, which follows a gap or has another timestamp, cannot continue it."""
        unit = self._open
        same = item.packet.timestamp == unit.timestamp
        if item.gap:
            begun = unit.sliced or unit.damaged or bool(unit.nals) or self._units.open
            if same and begun and not item.restarted:
                unit.damaged = True
                self._units.drop()
                self._release_damaged()
            else:
                self._end_at_gap(restarted=item.restarted)
        elif not same:
            self._end_at_timestamp()
        if not same:
            self._marked = NO_TIMESTAMP
            self._open.timestamp = item.packet.timestamp

    def _end_at_gap(self, *, restarted: bool) -> None:
        """End the open unit at a gap. The unit is returned as damaged if it has parts of a picture."""
        self._release_damaged()
        unit = self._open
        if self._units.drop() or unit.sliced or unit.damaged:
            unit.damaged = True
            self._emit(unit)
            self._open = unit = OpenUnit(unit.timestamp)
        elif restarted:
            self._open = unit = OpenUnit(unit.timestamp)
        else:
            unit.keep_parameters(self._units)
        unit.gap_before = True
        unit.restarted |= restarted

    def _end_at_timestamp(self) -> None:
        """End the open unit, marked or not, because another timestamp follows without a gap."""
        unit = self._open
        if self._units.drop():
            unit.damaged = True
        if unit.damaged:
            self._release_damaged()
        else:
            self._release_whole()
        if unit.sliced or unit.damaged:
            if self.closes == "marker" and not unit.damaged:
                self._close_by_timestamp(NO_MARKER)
            self._emit(unit)
            self._open = OpenUnit(NO_TIMESTAMP)

    def _mark(self) -> None:
        """End the open unit at a marker, if it has a slice and no NAL unit is open.

        A damaged unit without slices ends with its timestamp: its delay harms no picture, and slices may still follow
        the marker of a broken message.
        """
        unit = self._open
        if self.closes == "timestamp" or self._units.open or not unit.sliced:
            return
        self._marked = unit.timestamp
        self._open = OpenUnit(unit.timestamp)
        self._release_damaged()
        if self._on_probation and not unit.damaged:
            self._held = unit
        else:
            self._emit(unit)

    def _add(self, nal: bytes) -> None:
        kind = self._units.kind(nal)
        if kind & SLICE:
            self._put(nal, kind)
        elif SHORT_START in nal:
            # Some cameras send a whole unit, with its start codes, in place of one NAL unit.
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
            # It belongs to the previous picture. If that was returned or lost already, no decoder needs it.
            if self._held is not None:
                self._held.add(nal, kind, self._units)
            return
        self._open.add(nal, kind, self._units)

    def _first_slice(self, nal: bytes) -> None:
        """Check the first slice of the open unit: the unit is damaged if the slice does not begin its picture.

        Directly after a marker, the slice also shows whether the marker ended the picture.
        """
        unit = self._open
        begins = self._units.first(nal)
        if unit.gap_before and not begins:
            unit.damaged = True
        if unit.timestamp != self._marked or unit.gap_before:
            return
        if begins:
            # Another picture with the same timestamp: the second field, or a server without a clock.
            self._release_whole()
        else:
            self._rejoin(unit)

    def _rejoin(self, rest: OpenUnit) -> None:
        """Add `rest` to its picture after a marker in the middle of the picture."""
        self._close_by_timestamp(MARKER_WITHIN)
        if self._held is None:
            # The first part was returned as a complete unit: the flag tells the decoder that it was not.
            rest.damaged = True
        else:
            self._held.join(rest)
            self._open, self._held = self._held, None

    def _close_by_timestamp(self, reason: str) -> None:
        self.closes, self.reason = "timestamp", reason

    def _release_whole(self) -> None:
        """Return the held unit as complete; from now on a marker ends a unit without a hold."""
        if self._held is not None:
            self._emit(self._held)
            self._held = None
            self._on_probation = False

    def _release_damaged(self) -> None:
        """Return the held unit as damaged, because the packets after it may have belonged to it."""
        if self._held is not None:
            self._held.damaged = True
            self._emit(self._held)
            self._held = None
