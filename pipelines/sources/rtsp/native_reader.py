"""Reads cameras over RTSP with Watchline's own client. A picture is decoded as soon as its last packet has arrived.

FFmpeg's reader returns a picture when the next one begins: one frame period later, unseen by Watchline's clocks. The own
client runs on the source's thread. The only library (aiortsp) needs an event loop, which would have to run inside the
source's generator, and gives neither the arrival time of each packet nor a prompt stop.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from fractions import Fraction

import av

from pipelines.errors import SourceError, Stopped
from pipelines.frame import DEFAULT_RATE, CameraClock, Capture, StreamInfo
from pipelines.redact import redact_url
from pipelines.sources.decode import PictureDecoder
from pipelines.sources.media_time import Timeline
from pipelines.sources.rtp.access_units import AccessUnits
from pipelines.sources.rtp.h264_payload import H264
from pipelines.sources.rtp.h265_payload import H265
from pipelines.sources.rtp.packet import parse
from pipelines.sources.rtp.reception import Reception
from pipelines.sources.rtp.rtcp import Bye, SenderReport, parse_rtcp
from pipelines.sources.rtp.sequence import WINDOW, Ordered, PacketOrder
from pipelines.sources.rtp.timestamps import WRAP, Unwrapped
from pipelines.sources.rtp.unit import AccessUnit
from pipelines.sources.rtsp.received import Received
from pipelines.sources.rtsp.rtsp_client import RtspClient
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.sources.rtsp.sdp import Track
from pipelines.watch import PacketCounts, Watch

ALONE_S = 2.0
"""If no packet comes within this time after PLAY, the client sets up all tracks: GStreamer's server never sends a packet of a
shared camera to a client that leaves out one of its tracks."""
REPORT_S = 5.0
"""Time between two receiver reports (RFC 3550, 6.2)."""
LONGEST_WAIT_S = 0.5


class NativeRtsp:
    """One session with a camera, read by Watchline's own client.

    It ends with SourceError if the camera disconnects or sends no picture within the read timeout, and with Unsupported if
    the client does not support the stream.

    :param url: rtsp or rtsps.
    :param clock: monotonic.
    """

    live = True

    def __init__(self, url: str, options: RtspOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._options = options
        self._clock = clock

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        try:
            with contextlib.suppress(_NoPackets):
                yield from self._session(stop, watch, all_tracks=False)
                return
            # Not in an except clause: its traceback would keep the first session's memory during the second one.
            watch.once("all tracks", "the camera sends nothing for its video alone; the sound is set up too, and ignored")
            yield from self._session(stop, watch, all_tracks=True)
        except Stopped:
            return

    def _session(self, stop: threading.Event, watch: Watch, *, all_tracks: bool) -> Iterator[Capture]:
        options = self._options
        with RtspClient(
            self._url,
            transport=options.transport,
            stop=stop,
            limits=options.limits,
            verify_tls=options.tls_verify,
            clock=self._clock,
            all_tracks=all_tracks,
            credentials=options.credentials,
        ) as client:
            alone = not all_tracks and bool(client.track.other_tracks)
            yield from _Reader(client, redact_url(self._url), options, watch, self._clock, alone=alone).captures(stop)


class _NoPackets(Exception):
    """No packet came within ALONE_S: the camera may require that all of its tracks are set up."""


class _Reader:
    """Turns the packets of an open session into captures.

    :param name: of the camera, for people.
    :param alone: the camera has other tracks, which are not set up.
    """

    def __init__(
        self,
        client: RtspClient,
        name: str,
        options: RtspOptions,
        watch: Watch,
        clock: Callable[[], float],
        *,
        alone: bool,
    ) -> None:

        track = client.track
        self._name = name
        self._client = client
        self._options = options
        self._watch = watch
        self._clock = clock
        self._alone = alone
        self._track = track
        self._sequence = PacketOrder(window=WINDOW if options.transport == "udp" else 0)
        self._units = AccessUnits(H264() if track.codec == "h264" else H265())
        self._reception = Reception(self._sequence, track.clock_rate, ssrc=secrets.randbits(32), cname="watchline")
        self._stamps = Unwrapped()
        self._camera = _CameraClock(track.clock_rate)
        self._decoder = self._make_decoder(track)
        self._parameter_sets = track.parameter_sets
        self._early: Received | None = None
        """The last RTCP packet before the first RTP packet, which tells the video's SSRC."""
        self._missing = False
        """Whether the last unit was lost completely."""
        self._began_s = clock()
        self._report_s = self._began_s + 1
        self._reported = PacketCounts()

    def _make_decoder(self, track: Track) -> PictureDecoder:
        comparable: CameraClock = "not compared"
        if self._client.same_host:
            comparable = "same host"
        elif self._options.clock_trusted:
            comparable = "trusted"
        info = StreamInfo(time_base=Fraction(1, track.clock_rate), rate=track.rate, camera_clock=comparable)
        context = av.CodecContext.create(track.codec, "r")
        return PictureDecoder(context, watch=self._watch, info=info, timeline=Timeline(info, leaps=False), clock=self._clock)

    def captures(self, stop: threading.Event) -> Iterator[Capture]:
        """The decoded pictures, until the stop event is set.

        :raises SourceError: if the session ends before.
        """
        try:
            while not stop.is_set():
                for packet in self._client.receive(self._wait_s()):
                    yield from self._take(packet)
                now = self._clock()
                yield from self._assembled(self._sequence.due(now))
                yield from self._decoded(self._units.due(now))
                self._do_periodic_work(now)
        except SourceError:
            # Pictures that arrived before the end are still returned, and those that the decoder holds back.
            yield from self._assembled(self._sequence.flush())
            yield from self._decoded(self._units.flush())
            yield from self._decoder.captures(av.Packet(), self._clock())
            raise
        finally:
            self._report_counts()

    def _wait_s(self) -> float:
        now = self._clock()
        wakes = [s for s in (self._sequence.wake_s, self._units.wake_s) if s is not None]
        return max(min([now + LONGEST_WAIT_S, *wakes]) - now, 0.0)

    def _take(self, packet: Received) -> Iterator[Capture]:
        if packet.kind == "rtcp":
            if self._sequence.ssrc is None:
                self._early = packet
            else:
                self._control(packet)
            return
        parsed = parse(packet.data, packet.arrived_s, self._track.payload_type)
        if parsed is not None:
            self._reception.arrived(parsed)
            items = self._sequence.push(parsed)
            if self._early is not None:
                early, self._early = self._early, None
                self._control(early)
            yield from self._assembled(items)

    def _assembled(self, items: Iterable[Ordered]) -> Iterator[Capture]:
        for item in items:
            yield from self._decoded(self._units.push(item))

    def _decoded(self, units: Iterable[AccessUnit]) -> Iterator[Capture]:
        for unit in units:
            if unit.restarted:
                # Times must not go back: the new pictures would lie before the last key picture and count as damaged.
                self._stamps.restart(int(self._track.clock_rate / (self._track.rate or DEFAULT_RATE)))
                self._camera = _CameraClock(self._track.clock_rate)
            if not unit.data:
                # An empty unit: the next unit follows a gap.
                self._missing = True
                continue
            packet = av.Packet(self._parameter_sets + unit.data)
            self._parameter_sets = b""
            packet.pts = self._stamps.extend(unit.timestamp)
            packet.is_keyframe = unit.key or unit.recovery == 0
            gap, self._missing = unit.lost_before or self._missing, False
            yield from self._decoder.captures(
                packet, unit.arrived_s, damaged=unit.damaged, gap=gap, captured_s=self._camera.wall_s(unit.timestamp)
            )

    def _control(self, packet: Received) -> None:
        """Take an RTCP packet.

        :raises SourceError: if it is the goodbye of the video's sender.
        """
        for item in parse_rtcp(packet.data):
            if isinstance(item, SenderReport):
                self._reception.sender_report(item, packet.arrived_s)
                if item.ssrc == self._sequence.ssrc:
                    self._camera.report = item
            elif isinstance(item, Bye) and self._sequence.ssrc in item.ssrcs:
                raise SourceError(f"{self._name}: the camera ended the stream")

    def _do_periodic_work(self, now: float) -> None:
        """Send a receiver report if it is due, report the counts, and check the time limits.

        :raises SourceError: if no picture came within the read timeout.
        :raises _NoPackets: if no packet came, and the camera has other tracks.
        """
        if now >= self._report_s:
            self._report_s = now + REPORT_S
            self._client.send_rtcp(self._reception.report(now))
        self._report_counts()
        no_packets = self._sequence.received == 0
        silence_s = self._options.limits.read_s
        if self._alone and no_packets and now - self._began_s > min(ALONE_S, silence_s / 2):
            raise _NoPackets
        if now - self._decoder.last_s > silence_s:
            blocked = no_packets and self._options.transport == "udp"
            hint = "; a firewall may hold the packets back: `rtsp_transport` tcp gets around it" if blocked else ""
            raise SourceError(f"{self._name}: no picture for {silence_s:g} s (the read timeout){hint}")

    def _report_counts(self) -> None:
        """Tell the watch the packet counts since the last call, and once if the camera's markers are unusable."""
        if self._units.reason is not None:
            self._watch.once("markers", f"{self._units.reason}: a picture is known to be complete when the next one begins")
        s = self._sequence
        counts = PacketCounts(s.received, s.lost, s.reordered, s.duplicated)
        if counts != self._reported:
            self._watch.packets(counts - self._reported)
            self._reported = counts


class _CameraClock:
    """Converts RTP timestamps to the camera's wall clock, by its last sender report (RFC 3550, 6.4.1)."""

    def __init__(self, clock_rate: int) -> None:
        self._clock_rate = clock_rate
        self.report: SenderReport | None = None

    def wall_s(self, timestamp: int) -> float | None:
        """Seconds since 1970; None before the first sender report with a wall clock."""
        if self.report is None or self.report.unix_s is None:
            return None
        ticks = (timestamp - self.report.timestamp + WRAP // 2) % WRAP - WRAP // 2
        return self.report.unix_s + ticks / self._clock_rate
