"""The native reader against cameras with chosen packets; its pictures are compared with the sent ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from pipelines.choices import RtspTransport
from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtsp.native_reader import NativeRtsp
from pipelines.sources.rtsp.rtsp_client import RtspClient
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from tests.servers.streaming import Streaming, described, goodbye, sender_report
from tests.sources.play import Player
from tests.sources.rtp.packetize import CODECS, STEP, Codec, Marks, Stream, bare, decode, packetize, stream, wire
from tests.sources.rtsp.clients import Clock, nothing_open  # noqa: F401 - a fixture

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_open")]
TRANSPORTS: tuple[RtspTransport, ...] = ("tcp", "udp")
Plane = npt.NDArray[np.uint8]
WRAPS = 2**32 - 4 * STEP
SSRC = 5
AT_ONCE = 20
"""Packets that are sent before the reader is waited for: no buffer of the network overflows."""


def true_pictures(*sources: Stream) -> list[Plane]:
    """The luma of every picture as a decoder has it that misses nothing, in presentation order."""
    found = [image for one in sources for image in decode(one.codec, [one.data(k) for k in range(len(one.units))])]
    return [image[: image.shape[0] * 2 // 3] for image in found]


def which(captures: Sequence[Capture], truth: Sequence[Plane]) -> list[int]:
    """Which true pictures these are, -1 for one that is none."""
    return [next((k for k, y in enumerate(truth) if np.array_equal(c.picture.y, y)), -1) for c in captures]


def clean(captures: Sequence[Capture]) -> list[Capture]:
    return [c for c in captures if not c.corrupt]


class Camera:
    """A scripted camera and a player of it. The player's clock stands still until a test moves it."""

    def __init__(
        self,
        sdp: bytes,
        transport: RtspTransport = "tcp",
        *,
        trusted: bool = False,
        read_s: float = 5,
        timeout_s: int = 60,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.clock = Clock()
        self.server = Streaming(sdp, timeout_s=timeout_s)
        self._options = RtspOptions("native", transport, Timeouts(10, read_s), clock_trusted=trusted)
        self._clock = clock or self.clock
        self._sent = 0

    def __enter__(self) -> Camera:
        self.server.__enter__()
        self.player = Player(NativeRtsp(self.server.url(), self._options, self._clock))
        self.player.__enter__()
        self.server.until_playing()
        return self

    def __exit__(self, *error: object) -> None:
        self.player.__exit__(*error)
        self.server.__exit__(*error)

    def send(self, packets: Sequence[RtpPacket]) -> None:
        """Send them, and wait until they have been read."""
        for k in range(0, len(packets), AT_ONCE):
            some = packets[k : k + AT_ONCE]
            self.server.send(*map(wire, some))
            self._sent += len(some)
            self.player.reports.until_received(self._sent)

    def ended(self) -> str:
        """Hang up, and wait for the end; its error."""
        self.server.hang_up()
        self.player.until_ended()
        assert isinstance(self.player.error, SourceError)
        return str(self.player.error)


def watched(sdp: bytes, packets: Sequence[RtpPacket], transport: RtspTransport = "tcp") -> Player:
    """A session from its first packet to its last."""
    with Camera(sdp, transport) as camera:
        camera.send(packets)
        assert "hung up" in camera.ended()
    return camera.player


class TestWhole:
    @pytest.mark.parametrize("transport", TRANSPORTS)
    @pytest.mark.parametrize(("codec", "b_frames", "slices"), [("h264", 0, 1), ("h264", 2, 4), ("h265", 0, 1), ("h265", 2, 1)])
    def test_every_picture_comes_once_in_order_over_all_wraps(
        self, codec: Codec, b_frames: int, slices: int, transport: RtspTransport
    ) -> None:
        source = stream(codec, frames=30, gop=10, b_frames=b_frames, slices=slices, first=WRAPS)
        packets = bare(packetize(source, sequence=65_500))
        player = watched(described(codec), packets, transport)
        assert which(player.captures, true_pictures(source)) == list(range(30))
        assert not any(c.corrupt for c in player.captures)
        assert [c.pts_s for c in player.captures] == pytest.approx([k / 25 for k in range(30)])
        assert player.reports.counts.as_dict() == {"received": len(packets), "lost": 0, "reordered": 0, "duplicated": 0}
        assert (player.reports.said, player.reports.decode_errors) == ({}, [])

    @pytest.mark.parametrize("codec", CODECS)
    def test_parameter_sets_in_the_description_alone(self, codec: Codec) -> None:
        source = stream(codec)
        kinds = range(7, 9) if codec == "h264" else range(32, 35)
        sets = [nal for nal in source.units[0] if (nal[0] & 31 if codec == "h264" else nal[0] >> 1) in kinds]
        bald = Stream(codec, [[nal for nal in nals if nal not in sets] for nals in source.units], source.stamps)
        player = watched(described(codec, sets), bare(packetize(bald)))
        assert which(clean(player.captures), true_pictures(source)) == list(range(12))

    def test_a_size_and_a_profile_that_change(self) -> None:
        later = STEP * 12
        small = stream("h264", profile="baseline")
        parts = [small, stream("h264", first=1000 + later, size=(192, 64)), stream("h264", first=1000 + 2 * later, b_frames=2)]
        whole = Stream("h264", [u for p in parts for u in p.units], [s for p in parts for s in p.stamps])
        player = watched(described("h264"), bare(packetize(whole)))
        assert which(player.captures, true_pictures(*parts)) == list(range(36))
        assert not any(c.corrupt for c in player.captures)
        times = [c.pts_s or 0 for c in player.captures]
        assert all(b > a for a, b in pairwise(times))

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_a_camera_that_begins_anew_within_its_session(self, transport: RtspTransport) -> None:
        """Its clock, its numbers and its identity are others; ours go on."""
        source = stream("h264")
        packets = bare(packetize(source))
        again = bare(packetize(stream("h264", first=77), sequence=40_000, ssrc=9))
        player = watched(described("h264"), packets + again, transport)
        assert which(player.captures, true_pictures(source)) == [*range(12)] * 2
        assert not any(c.corrupt for c in player.captures)
        assert [c.pts_s for c in player.captures] == pytest.approx([k / 25 for k in range(24)])
        assert player.reports.counts.lost == 0


class TestMarkers:
    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize(("marks", "words"), [("every", "within its pictures"), ("never", "does not mark")])
    def test_habits(self, codec: Codec, marks: Marks, words: str) -> None:
        source = stream(codec, slices=4 if codec == "h264" else 1)
        player = watched(described(codec), bare(packetize(source, marks=marks, aggregate=False)))
        # With one slice a picture the marks on the other NAL units are passed over, and that on the slice is right.
        right = marks == "every" and codec == "h265"
        # Nobody can know that the last one is whole: neither a marker nor a next picture says so.
        assert which(clean(player.captures), true_pictures(source)) == list(range(12 if right else 11))
        assert right or words in player.reports.said["markers"]
        assert len(player.reports.said) == (not right)


def groups_that_are_whole(packets: Sequence[tuple[int, RtpPacket]], kept: Sequence[int], gop: int) -> list[int]:
    """Units that must be clean: those of which, and of all before them in their group, every packet was sent."""
    units = {unit for unit, _ in packets}
    hurt = {packets[k][0] for k in set(range(len(packets))) - set(kept)}
    return [unit for unit in sorted(units) if not hurt & set(range(unit - unit % gop, unit + 1))]


class TestLoss:
    @pytest.mark.parametrize("transport", TRANSPORTS)
    @pytest.mark.parametrize("codec", CODECS)
    def test_no_picture_is_wrong_and_none_is_lost_that_was_whole(self, codec: Codec, transport: RtspTransport) -> None:
        source = stream(codec, frames=60)
        truth = true_pictures(source)
        packets = packetize(source, mtu=400)
        # Of the first picture none, and none behind it: nobody could know yet that this camera's markers can be trusted.
        # The last few say how much was lost before them.
        free = [k for k, (unit, _) in enumerate(packets) if 2 <= unit < 58]
        for seed in range(3):
            chance = random.Random(seed)
            lost = {k for k in free if chance.random() < 0.02}
            assert len(lost) > 3
            kept = [k for k in range(len(packets)) if k not in lost]
            player = watched(described(codec), [packets[k][1] for k in kept], transport)
            assert which(clean(player.captures), truth) == groups_that_are_whole(packets, kept, 6), f"seed {seed}"
            assert player.reports.counts.lost == len(lost)
            assert player.reports.counts.received == len(kept)

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_key_picture_heals_nothing_that_is_shown_before_it(self, codec: Codec) -> None:
        """B-frames that come behind a key picture, are shown before it, and lean on both sides."""
        source = stream(codec, frames=40, gop=8, b_frames=2, open_gop=True)
        truth, packets = true_pictures(source), packetize(source)
        for lost in range(8, 29):
            player = watched(described(codec), [packet for unit, packet in packets if not lost <= unit < lost + 3])
            found = which(clean(player.captures), truth)
            assert found == sorted(set(found) - {-1}), f"units {lost} to {lost + 2} are lost"
            assert set(range(6)) <= set(found)
            assert found[-1] == 39

    def test_what_comes_before_a_gap_is_shown_before_the_gap_is_known(self) -> None:
        """Every packet of the first five pictures has come; the rest is missing."""
        source = stream("h264")
        packets = [packet for unit, packet in packetize(source) if unit < 5]
        with Camera(described("h264"), "udp") as camera:
            camera.send(packets)
            assert which(camera.player.until(5), true_pictures(source)) == list(range(5))

    def test_swapped_and_doubled_packets_are_put_right(self) -> None:
        source = stream("h264", frames=30, gop=10)
        packets = bare(packetize(source))
        chance, swapped, doubled = random.Random(3), 0, 0
        sent: list[RtpPacket] = []
        for k in range(0, len(packets) - 8, 8):
            some = packets[k : k + 8]
            if k % 3 == 1:
                some[2], some[6] = some[6], some[2]
                swapped += 4  # the one that came late, and the three between that came after a higher number
            if k % 5 == 2:
                some.append(chance.choice(some))
                doubled += 1
            sent += some
        sent += packets[len(sent) - doubled :]
        assert min(swapped, doubled) > 3
        player = watched(described("h264"), sent, "udp")
        assert which(player.captures, true_pictures(source)) == list(range(30))
        assert not any(c.corrupt for c in player.captures)
        counts = player.reports.counts.as_dict()
        assert counts == {"received": len(sent), "lost": 0, "reordered": swapped, "duplicated": doubled}


class TestTheCamerasClock:
    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_each_picture_has_the_time_at_which_it_was_taken(self, transport: RtspTransport) -> None:
        source = stream("h264", frames=24, gop=6, b_frames=2, first=WRAPS)
        packets = packetize(source)
        with Camera(described("h264"), transport) as camera:
            camera.send([packet for unit, packet in packets if unit < 12])
            camera.player.until(9)
            camera.server.report(sender_report(SSRC + 1, 5e8, WRAPS))
            # The RTP clock was at the 10th picture's stamp when the wall clock was at 1.7e9.
            camera.server.report(sender_report(SSRC, 1.7e9, source.stamps[0] + 10 * STEP))
            camera.send([packet for unit, packet in packets if unit >= 12])
            camera.ended()
        captures = camera.player.captures
        assert which(captures, true_pictures(source)) == list(range(24))
        told = [c.captured_s for c in captures]
        known = next(k for k, at in enumerate(told) if at is not None)
        assert 9 <= known <= 14
        assert told[:known] == [None] * known
        assert [at for at in told[known:] if at is not None] == pytest.approx(
            [1.7e9 + (k - 10) / 25 for k in range(known, 24)], abs=1e-6
        )

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_a_report_before_the_first_picture_holds_from_that_on(self, transport: RtspTransport) -> None:
        with Camera(described("h264"), transport) as camera:
            camera.server.report(sender_report(SSRC, 1.7e9, 1000))
            camera.send(bare(packetize(stream("h264"))))
            told = [c.captured_s for c in camera.player.until(11)]
        assert told == pytest.approx([1.7e9 + k / 25 for k in range(len(told))], abs=1e-6)

    @pytest.mark.parametrize(
        ("same", "trusted", "words"), [(True, True, "same host"), (False, True, "trusted"), (False, False, "not compared")]
    )
    def test_whether_it_can_be_compared(self, same: bool, trusted: bool, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if not same:
            monkeypatch.setattr(RtspClient, "same_host", property(lambda _: False))
        with Camera(described("h264"), trusted=trusted) as camera:
            camera.send(bare(packetize(stream("h264"))))
            assert {c.info.camera_clock for c in camera.player.until(11)} == {words}


class TestEnds:
    def test_the_camera_says_goodbye(self) -> None:
        with Camera(described("h264")) as camera:
            camera.send(bare(packetize(stream("h264"))))
            camera.server.report(goodbye(SSRC + 1))
            camera.server.report(goodbye(SSRC))
            camera.player.until_ended()
        assert "the camera ended the stream" in str(camera.player.error)
        assert len(clean(camera.player.captures)) == 12

    def test_the_camera_tears_the_session_down(self) -> None:
        with Camera(described("h264")) as camera:
            camera.send(bare(packetize(stream("h264"))))
            camera.server.push(b"TEARDOWN rtsp://x/ RTSP/1.0\r\nCSeq: 1\r\n\r\n")
            camera.player.until_ended()
            camera.server.until(lambda s: any(isinstance(one, bytes) and b"200 OK" in one for one in s.said))
        assert "the camera ended the stream (TEARDOWN)" in str(camera.player.error)
        assert len(clean(camera.player.captures)) == 12

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_reports_answers_and_pieces_of_pictures_are_no_pictures(self, transport: RtspTransport) -> None:
        source = stream("h264", frames=30, gop=30)
        packets = packetize(source)
        begins = [packet for unit, packet in packets if unit < 3]
        # Pieces of NAL units that have neither a beginning nor an end.
        pieces = [packet for unit, packet in packets if unit >= 3 and packet.payload[0] & 31 == 28]
        pieces = [packet for packet in pieces if not packet.payload[1] & 0xC0]
        with Camera(described("h264"), transport, timeout_s=2) as camera:
            camera.send(begins)
            camera.player.until(2)
            for k in range(4):
                camera.clock.now_s += 1.2
                camera.server.report(sender_report(SSRC, 1.7e9 + k, 1000))
                camera.send(pieces[k : k + 1])
            camera.server.until(lambda s: sum(one.method == "GET_PARAMETER" for one in s.asked) >= 2)
            assert camera.player.error is None
            camera.clock.now_s += 0.3
            camera.player.until_ended()
        assert "no picture for 5 s" in str(camera.player.error)
        assert "firewall" not in str(camera.player.error)

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_a_camera_that_wants_its_sound_set_up_too(self, transport: RtspTransport) -> None:
        """It sends nothing for the video alone."""
        with Camera(described("h264"), transport, read_s=0.5, clock=time.monotonic) as camera:
            camera.server.until_playing(2)
            wanted = [one.uri[-1] for one in camera.server.asked if one.method == "SETUP"]
            camera.send(bare(packetize(stream("h264"))))
            camera.ended()
        assert wanted == ["0", "0", "1"]
        assert which(camera.player.captures, true_pictures(stream("h264"))) == list(range(12))
        assert list(camera.player.reports.said) == ["all tracks"]

    @pytest.mark.parametrize(("transport", "hinted"), [("tcp", False), ("udp", True)])
    def test_a_firewall_is_thought_of_where_nothing_comes(self, transport: RtspTransport, hinted: bool) -> None:
        with Camera(described("h264"), transport, read_s=0.3, clock=time.monotonic) as camera:
            camera.player.until_ended()
        assert "no picture for 0.3 s" in str(camera.player.error)
        assert ("`rtsp_transport` tcp" in str(camera.player.error)) is hinted
