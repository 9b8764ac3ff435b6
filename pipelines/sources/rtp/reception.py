"""Reception statistics of a track for its sender (RFC 3550, section 6.4 and appendix A)."""

from __future__ import annotations

from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtp.rtcp import ReportBlock, SenderReport, receiver_report
from pipelines.sources.rtp.sequence import PacketOrder

STALE_S = 60_000
"""Age limit of a sender report, seconds. The delay field holds at most 65535 s; an older report is ignored."""


class Reception:
    """Builds the receiver reports of one track. Thread: the one that pushes into `sequence`.

    :param sequence: the order of the track's packets; source of the counts.
    :param clock_rate: of the RTP timestamps, ticks per second.
    :param ssrc: the receiver's own SSRC, 32 bits, chosen at random by the caller.
    :param cname: the receiver's canonical name.
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
        """Update the jitter (A.8) with the next packet in order of arrival. Only the last packet of a picture counts.

        A camera spreads the packets of one picture, which share a timestamp, over time; that is not network jitter.
        """
        if not packet.marker:
            return
        transit = packet.arrived_s * self._clock_rate - packet.timestamp
        if self._transit is not None:
            # The difference modulo 2**32, because timestamps wrap, in the range from -2**31 to 2**31.
            step = abs((transit - self._transit + 2**31) % 2**32 - 2**31)
            # A second or more means that the camera's clock was set or its timestamps restarted.
            if step < self._clock_rate:
                self._jitter += (step - self._jitter) / 16
        self._transit = transit

    def sender_report(self, report: SenderReport, arrived_s: float) -> None:
        """Keep a sender report for the next receiver report, if its SSRC is the track's."""
        if report.ssrc == self._sequence.ssrc:
            self._sender = (report, arrived_s)

    def report(self, now_s: float) -> bytes:
        """The bytes of a receiver report on the packets since the last report; without a block before the first packet."""
        ssrc = self._sequence.ssrc
        if ssrc is None:
            return receiver_report(self._ssrc, self._cname)
        expected, lost = self._sequence.expected, self._sequence.lost
        newly_expected, newly_lost = expected - self._expected, lost - self._lost
        self._expected, self._lost = expected, lost
        last_report, delay = self._last_report(ssrc, now_s)
        block = ReportBlock(
            ssrc=ssrc,
            fraction_lost=(newly_lost << 8) // newly_expected if newly_expected > 0 else 0,
            lost=lost,
            highest=self._sequence.highest,
            jitter=int(self._jitter),
            last_report=last_report,
            delay=delay,
        )
        return receiver_report(self._ssrc, self._cname, block)

    def _last_report(self, ssrc: int, now_s: float) -> tuple[int, int]:
        """The fields `last_report` and `delay` of the report block; (0, 0) without a recent sender report."""
        if self._sender is None:
            return 0, 0
        report, arrived_s = self._sender
        if report.ssrc != ssrc or not 0 <= now_s - arrived_s < STALE_S:
            return 0, 0
        return report.ntp >> 16 & 0xFFFFFFFF, int((now_s - arrived_s) * 65536)
