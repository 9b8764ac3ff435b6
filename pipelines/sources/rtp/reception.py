"""How a track is received, as its sender wants to know it (RFC 3550, section 6.4 and appendix A)."""

from __future__ import annotations

from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtp.rtcp import ReportBlock, SenderReport, receiver_report
from pipelines.sources.rtp.sequence import PacketOrder

STALE_S = 60_000
"""The delay field holds 65535 s: a report older than this counts as none."""


class Reception:
    """Makes the receiver reports of one track. One thread, the one that pushes into `sequence`.

    :param clock_rate: of the timestamps, ticks a second.
    :param ssrc: our own, 32 bits, chosen at random by the caller.
    """

    def __init__(self, sequence: PacketOrder, clock_rate: int, *, ssrc: int, cname: str) -> None:
        self._sequence = sequence
        self._clock_rate = clock_rate
        self._ssrc = ssrc
        self._cname = cname
        self._jitter = 0.0
        self._transit: float | None = None
        self._sender: tuple[SenderReport, float] | None = None
        self._expected = self._lost = 0

    def arrived(self, packet: RtpPacket) -> None:
        """Take the packets in order of arrival; those that end a picture make the jitter (A.8).

        The ones before share its timestamp while the camera spreads them over time: that is no jitter of the network.
        """
        if not packet.marker:
            return
        transit = packet.arrived_s * self._clock_rate - packet.timestamp
        if self._transit is not None:
            # Modulo the timestamp's wrap, to the nearer side.
            step = abs((transit - self._transit + 2**31) % 2**32 - 2**31)
            # More than a second is a clock that was set or a new numbering.
            if step < self._clock_rate:
                self._jitter += (step - self._jitter) / 16
        self._transit = transit

    def sender_report(self, report: SenderReport, arrived_s: float) -> None:
        """Remember it for the next answer, if it is the track's."""
        if report.ssrc == self._sequence.ssrc:
            self._sender = (report, arrived_s)

    def report(self, now_s: float) -> bytes:
        """A receiver report over what came since the last one; without a block before the first packet."""
        ssrc = self._sequence.ssrc
        if ssrc is None:
            return receiver_report(self._ssrc, self._cname)
        expected, lost = self._sequence.expected, self._sequence.lost
        of, missing = expected - self._expected, lost - self._lost
        self._expected, self._lost = expected, lost
        last_report, delay = self._last_report(ssrc, now_s)
        block = ReportBlock(
            ssrc=ssrc,
            fraction_lost=(missing << 8) // of if of > 0 else 0,
            lost=lost,
            highest=self._sequence.highest,
            jitter=int(self._jitter),
            last_report=last_report,
            delay=delay,
        )
        return receiver_report(self._ssrc, self._cname, block)

    def _last_report(self, ssrc: int, now_s: float) -> tuple[int, int]:
        if self._sender is None:
            return 0, 0
        report, arrived_s = self._sender
        if report.ssrc != ssrc or not 0 <= now_s - arrived_s < STALE_S:
            return 0, 0
        return report.ntp >> 16 & 0xFFFFFFFF, int((now_s - arrived_s) * 65536)
