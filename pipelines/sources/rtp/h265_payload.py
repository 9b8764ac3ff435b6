"""H.265 over RTP (RFC 7798): single NAL units, AP and FU, and the fields of the NAL unit header (H.265, 7.4.2.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipelines.sources.bitstream.nal import H265Nal as Nal
from pipelines.sources.bitstream.sei import recovery_point
from pipelines.sources.rtp.nal_payload import KEY, LEADING, PARAMETERS, SEI, SLICE, TRAILING, Fragments

AP, FU, PACI = 48, 49, 50
KINDS: Final = {
    **dict.fromkeys(range(Nal.RASL[0]), SLICE),
    **dict.fromkeys(Nal.RASL, SLICE | LEADING),
    **dict.fromkeys((*Nal.BLA, *Nal.IDR, Nal.CRA), SLICE | KEY),
    **dict.fromkeys((Nal.VPS, Nal.SPS, Nal.PPS), PARAMETERS),
    Nal.SEI: SEI,
    **dict.fromkeys((Nal.FILLER, Nal.SUFFIX_SEI), TRAILING),
}
BY_TYPE: Final = tuple(KINDS.get(kind, 0) for kind in range(64))


class H265(Fragments):
    """The H.265 depacketizer of one track without decoding order numbers (sprop-max-don-diff 0, the default).

    PACI packets and undefined types are ignored, as RFC 7798 requires.
    """

    def take(self, payload: bytes) -> Iterable[bytes]:
        kind = payload[0] >> 1 & 0x3F
        if kind == FU:
            return self._fragment(payload)
        if kind >= PACI:
            return ()
        if self.drop():
            self.damaged = True
        if kind < AP and len(payload) > 1:
            return (payload,)
        nals = self._aggregate(payload, 2) if kind == AP else []
        if nals and all(len(nal) > 1 and nal[0] >> 1 & 0x3F < AP for nal in nals):
            return nals
        self.damaged = True
        return ()

    def _fragment(self, payload: bytes) -> Iterable[bytes]:
        if len(payload) < 3:
            self.drop()
            self.damaged = True
            return ()
        flags = payload[2]
        kind = flags & 0x3F
        if flags < 0x80:
            self._go_on(kind, payload[3:])
        elif kind < AP:
            # The layer and temporal ids come from the payload header, the type from the FU header (RFC 7798, 4.4.3).
            self._begin(kind, bytes((payload[0] & 0x81 | kind << 1, payload[1])), payload[3:])
        else:
            self.drop()
            self.damaged = True
        return self._end() if flags & 0x40 else ()

    def kind(self, nal: bytes) -> int:
        # A temporal id field of 0 is forbidden; a start code in place of the header has it.
        return BY_TYPE[nal[0] >> 1 & 0x3F] if nal[1] & 7 else 0

    def first(self, nal: bytes) -> bool:
        """The value of first_slice_segment_in_pic_flag, the first bit of the slice segment header (7.3.6.1)."""
        return len(nal) > 2 and nal[2] > 0x7F

    def recovery(self, nal: bytes) -> int | None:
        return recovery_point(nal[2:])
