"""Session descriptions: the played track, its URL, and the messages of refusals."""

from __future__ import annotations

import base64
import random
from fractions import Fraction

import pytest

from pipelines.errors import SourceError
from pipelines.sources.rtsp.message import ProtocolError
from pipelines.sources.rtsp.sdp import MAX_LINE, Track, Unsupported, join_control, video_track
from tests.servers.scripted import SDP

BASE = "rtsp://h:554/cam/"
SPS, PPS, SLICE = b"\x67\x42\xc0\x1e\xd9", b"\x68\xcb\x83\xcb", b"\x65\x88\x84"
VPS5, SPS5, PPS5 = b"\x40\x01\x0c", b"\x42\x01\x01", b"\x44\x01\xc1"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _sdp(*lines: str, head: str = "m=video 0 RTP/AVP 96", session: tuple[str, ...] = ()) -> bytes:
    return "\r\n".join(["v=0", "s=x", *session, *([head] if head else []), *lines, ""]).encode()


def _track(*lines: str, base: str = BASE, **sections: object) -> Track:
    return video_track(_sdp(*lines, **sections), base)  # type: ignore[arg-type]


H264 = "a=rtpmap:96 H264/90000"


def test_a_camera_with_sound() -> None:
    track = video_track(SDP, BASE)
    assert (track.codec, track.payload_type, track.clock_rate, track.rate) == ("h264", 96, 90000, None)
    assert (track.control, track.aggregate) == (BASE + "trackID=0", BASE)
    assert track.other_tracks == (BASE + "trackID=1",)
    assert track.parameter_sets.startswith(b"\0\0\0\1\x67")
    assert b"\0\0\0\1\x68" in track.parameter_sets


def test_h265_in_the_order_of_the_standard() -> None:
    track = _track(
        "a=rtpmap:98 H265/90000",
        f"a=fmtp:98 sprop-pps={_b64(PPS5)}; sprop-sps={_b64(SPS5)};sprop-vps={_b64(VPS5)};sprop-max-don-diff=0",
        head="m=video 0 RTP/AVP 98",
    )
    assert track.codec == "hevc"
    assert track.parameter_sets == b"".join(b"\0\0\0\1" + unit for unit in (VPS5, SPS5, PPS5))


@pytest.mark.parametrize(
    ("sprop", "expected"),
    [
        (f"{_b64(SPS)},{_b64(PPS)}", [SPS, PPS]),
        (f"{_b64(SPS).rstrip('=')}, {_b64(PPS).rstrip('=')}", [SPS, PPS]),
        (f"{_b64(SPS)},!!!!,{_b64(PPS)}", [SPS, PPS]),
        (f"{_b64(SPS)}===,", [SPS]),
        (f",{_b64(SLICE)},{_b64(PPS)}", [PPS]),
        ("AAAAA", []),
        ("ä", []),
        ("", []),
    ],
)
def test_parameter_sets_that_can_be_read(sprop: str, expected: list[bytes]) -> None:
    track = _track(H264, f"a=fmtp:96 packetization-mode=1; sprop-parameter-sets={sprop}; profile-level-id=42C01E")
    assert track.parameter_sets == b"".join(b"\0\0\0\1" + unit for unit in expected)


@pytest.mark.parametrize(
    ("base", "control", "url"),
    [
        ("rtsp://h/cam/", "trackID=1", "rtsp://h/cam/trackID=1"),
        ("rtsp://h/cam", "trackID=1", "rtsp://h/cam/trackID=1"),
        ("rtsp://h/cam", "/trackID=1", "rtsp://h/cam/trackID=1"),
        ("rtsp://h/cam/", "/cam/trackID=1", "rtsp://h/cam/trackID=1"),
        ("rtsp://h/cam/", "/camera/1", "rtsp://h/cam/camera/1"),
        ("rtsp://h", "track1", "rtsp://h/track1"),
        ("rtsp://h/", "/track1", "rtsp://h/track1"),
        ("rtsp://h/cam?channel=1&subtype=0", "trackID=0", "rtsp://h/cam?channel=1&subtype=0/trackID=0"),
        ("rtsp://h/cam?channel=1/", "trackID=0", "rtsp://h/cam?channel=1/trackID=0"),
        ("rtsp://h/cam", "?track=1", "rtsp://h/cam?track=1"),
        ("rtsp://h/cam", "rtsp://10.0.0.1:554/cam/track1", "rtsp://10.0.0.1:554/cam/track1"),
        ("rtsp://h/cam", "RTSP://h/track1", "RTSP://h/track1"),
        ("rtsp://h/cam", "rtsp://user:secret@h/track1", "rtsp://h/track1"),
        ("rtsp://h/cam/", "*", "rtsp://h/cam/"),
        ("rtsp://h/cam", "", "rtsp://h/cam"),
        ("rtsp://h/cam/", "track 1\u00e4", "rtsp://h/cam/track%201%C3%A4"),
        ("rtsp://h/cam/", "trackID=1:2", "rtsp://h/cam/trackID=1:2"),
    ],
)
def test_control_urls_as_cameras_mean_them(base: str, control: str, url: str) -> None:
    assert join_control(base, control) == url
    assert _track(H264, f"a=control:{control}", base=base).control == url


@pytest.mark.parametrize(
    ("session", "aggregate", "control"),
    [
        ("*", "rtsp://h:554/cam/", "rtsp://h:554/cam/t1"),
        ("rtsp://h/all", "rtsp://h/all", "rtsp://h/all/t1"),
        ("stream", "rtsp://h:554/cam/stream", "rtsp://h:554/cam/stream/t1"),
    ],
)
def test_the_aggregate(session: str, aggregate: str, control: str) -> None:
    track = _track(H264, "a=control:t1", session=(f"a=control:{session}",))
    assert (track.aggregate, track.control) == (aggregate, control)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("a=rtpmap:96 JPEG/90000",), "JPEG"),
        (("a=rtpmap:96 MP4V-ES/90000",), "MP4V-ES"),
        ((), "unknown codec"),
        ((H264, "a=fmtp:96 packetization-mode=2"), "packetization-mode=2"),
        (("a=rtpmap:96 H265/90000", "a=fmtp:96 sprop-max-don-diff=1"), "sprop-max-don-diff"),
        ((H264, "c=IN IP4 232.1.2.3/127"), "232.1.2.3"),
        ((H264, "c=IN IP6 ff15::101"), "ff15::101"),
        (("a=rtpmap:96 \x1b[2JX\u202e/90000",), r"sends \[2JX;"),
    ],
)
def test_what_is_not_spoken(lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(Unsupported, match=why) as caught:
        _track(*lines)
    assert caught.value.permanent


def test_a_group_for_the_whole_session() -> None:
    with pytest.raises(Unsupported, match="multicast"):
        _track(H264, session=("c=IN IP4 239.0.0.1",))
    assert _track(H264, "c=IN IP4 0.0.0.0", session=("c=IN IP4 239.0.0.1",)).codec == "h264"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("m=video 0 RTP/AVP 26", "JPEG"),
        ("m=video 0 RTP/AVP 33", "MPEG-TS"),
        ("m=video 0 RTP/SAVP 96", "encrypted"),
        ("m=video 0 udp 96", "udp"),
        ("m=video 0", "none"),
        ("m=video 0 RTP/AVP", "no format"),
        ("m=video 0 RTP/AVP x 999 -1", "unknown codec"),
    ],
)
def test_heads_that_are_not_spoken(head: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        _track(H264, head=head)


@pytest.mark.parametrize(
    "sdp", [b"", b"v=0\r\n", b"\xff\xfe\0", b"m=audio 0 RTP/AVP 8\r\na=control:x\r\n", b"m=\r\nm=video\r\n"]
)
def test_no_video(sdp: bytes) -> None:
    with pytest.raises(SourceError, match="no video") as caught:
        video_track(sdp, BASE)
    assert caught.value.permanent
    assert not isinstance(caught.value, Unsupported)


def test_the_first_that_is_spoken() -> None:
    lines = (
        "a=rtpmap:26 JPEG/90000",
        "a=control:jpeg",
        "m=video 0 RTP/AVPF 97 96",
        "a=rtpmap:97 VP8/90000",
        H264,
        "a=control:h",
    )
    track = _track(*lines, head="m=video 0 RTP/AVP 26")
    assert (track.payload_type, track.control) == (96, BASE + "h")
    assert track.other_tracks == (BASE + "jpeg",)


@pytest.mark.parametrize(
    ("rtpmap", "rate"), [("H264", 90000), ("h264/90000", 90000), ("H264/48000/1", 48000), ("H264/", 90000)]
)
def test_clock_rates(rtpmap: str, rate: int) -> None:
    assert _track(f"a=rtpmap:96 {rtpmap}").clock_rate == rate


@pytest.mark.parametrize("rate", ["0", "-1", "1", "99999999999999999999", "x", "9e4", "\u0663000"])
def test_clock_rates_that_are_absurd(rate: str) -> None:
    with pytest.raises(ProtocolError, match="clock rate"):
        _track(f"a=rtpmap:96 H264/{rate}")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25", Fraction(25)),
        ("29.97", Fraction(2997, 100)),
        ("30000/1001", Fraction(30000, 1001)),
        ("25.", Fraction(25)),
        ("0", None),
        ("5/0", None),
        ("x", None),
        ("1e9", None),
        ("-5", None),
        ("100000", None),
        ("nan", None),
        ("9" * 9000, None),
    ],
)
def test_frame_rates(text: str, rate: Fraction | None) -> None:
    assert _track(H264, f"a=framerate: {text}").rate == rate


def test_a_frame_rate_for_the_whole_session() -> None:
    assert _track(H264, session=("a=framerate:12.5",)).rate == Fraction(25, 2)


def test_bare_newlines_and_rubbish_between() -> None:
    track = video_track(b"v=0\nnonsense\n=\nx\na\na=\nm=video 0 RTP/AVP 96 \n a = x\na=RTPMAP:96  H264/90000\n", BASE)
    assert track.codec == "h264"


@pytest.mark.parametrize("sdp", [b"a=x\n" * 100_000, b"a=" + b"x" * (MAX_LINE + 1), b"m=video 0 RTP/AVP 96\n" * 50_000])
def test_descriptions_without_an_end(sdp: bytes) -> None:
    with pytest.raises(ProtocolError):
        video_track(sdp, BASE)


def test_many_tracks_are_not_all_set_up() -> None:
    sdp = SDP + b"m=audio 0 RTP/AVP 8\r\na=control:x\r\n" * 500
    assert len(video_track(sdp, BASE).other_tracks) == 16


def test_hostile_descriptions_raise_nothing_else() -> None:
    chance = random.Random(4)
    lines = SDP.split(b"\r\n")
    for _ in range(3000):
        some = [chance.choice(lines) for _ in range(len(lines))] if chance.random() < 0.5 else lines[:]
        data = bytearray(b"\r\n".join(some))
        for _ in range(chance.randrange(8)):
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.randrange(3)] = chance.choice(
                [chance.randbytes(2), b"=", b":", b" ", b"/", b"96", b"\n", b"*"]
            )
        try:
            track = video_track(bytes(data), BASE)
        except SourceError:
            continue
        assert track.control.isprintable()
        assert " " not in track.control
        assert len(track.other_tracks) <= 16
