"""H.264 over RTP (RFC 6184): single NAL units, STAP-A and FU-A, and the fields of the NAL unit header (H.264, 7.4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipelines.sources.bitstream.nal import H264Nal as Nal
from pipelines.sources.bitstream.sei import recovery_point
from pipelines.sources.rtp.nal_payload import KEY, PARAMETERS, SEI, SLICE, TRAILING, Fragments

STAP_A, STAP_B, MTAP16, MTAP24, FU_A, FU_B = range(24, 30)
KINDS: Final = {
    **dict.fromkeys((Nal.SLICE, Nal.PARTITION_A, Nal.PARTITION_B, Nal.PARTITION_C), SLICE),
    Nal.IDR: SLICE | KEY,
    Nal.SEI: SEI,
    **dict.fromkeys((Nal.SPS, Nal.PPS, Nal.SPS_EXTENSION, Nal.SUBSET_SPS), PARAMETERS),
    Nal.FILLER: TRAILING,
}
BY_TYPE: Final = tuple(KINDS.get(kind, 0) for kind in range(32))


class H264(Fragments):
    """The H.264 depacketizer of one track, packetization modes 0 and 1.

    Interleaved packets (mode 2: STAP-B, MTAP, FU-B) have a separate decoding order. They set `damaged`; the RTSP client
    refuses session descriptions that announce them. The undefined types 30 and 31 are ignored.
    """

    def take(self, payload: bytes) -> Iterable[bytes]:
        kind = payload[0] & 0x1F
        if kind == FU_A:
            return self._fragment(payload)
        if kind > FU_B:
            return ()
        if self.drop():
            self.damaged = True
        if kind < STAP_A:
            return (payload,)
        if kind == STAP_A:
            nals = self._aggregate(payload, 1)
            if all(nal[0] & 0x1F < STAP_A for nal in nals):
                return nals
        self.damaged = True
        return ()

    def _fragment(self, payload: bytes) -> Iterable[bytes]:
        if len(payload) < 2:
            self.drop()
            self.damaged = True
            return ()
        flags = payload[1]
        kind = flags & 0x1F
        if flags < 0x80:
            self._go_on(kind, payload[2:])
        elif 0 < kind < STAP_A:
            # The reference bits come from the FU indicator, the type from the FU header (RFC 6184, 5.8).
            self._begin(kind, bytes((payload[0] & 0xE0 | kind,)), payload[2:])
        else:
            self.drop()
            self.damaged = True
        return self._end() if flags & 0x40 else ()

    def kind(self, nal: bytes) -> int:
        return BY_TYPE[nal[0] & 0x1F]

    def first(self, nal: bytes) -> bool:
        """Whether first_mb_in_slice is 0: an Exp-Golomb code of one bit, the first bit of the slice header (7.3.3)."""
        return len(nal) > 1 and nal[1] > 0x7F

    def recovery(self, nal: bytes) -> int | None:
        return recovery_point(nal[1:])
