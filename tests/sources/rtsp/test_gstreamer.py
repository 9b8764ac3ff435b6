"""The RTSP client against GStreamer's server: a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal

import pytest

from pipelines.errors import SourceError
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtsp.received import Received
from pipelines.sources.rtsp.rtsp_client import RtspClient
from pipelines.sources.rtsp.rtsp_session import Transport
from pipelines.sources.rtsp.sdp import Unsupported
from tests.servers import PatternSpec, RtspServer
from tests.sources.play import open_files
from tests.system import need

pytestmark = pytest.mark.timeout(60)
MOUNTS = {
    "cam": PatternSpec(160, 120),
    "hevc": PatternSpec(
        line="videotestsrc is-live=true ! video/x-raw,width=160,height=120 ! x265enc tune=zerolatency speed-preset=ultrafast "
        "key-int-max=25 ! rtph265pay config-interval=-1 name=pay0 pt=96"
    ),
    "jpeg": PatternSpec(
        line="videotestsrc is-live=true ! video/x-raw,format=I420,width=160,height=120 ! jpegenc ! rtpjpegpay name=pay0 pt=26"
    ),
    "sound": PatternSpec(line="audiotestsrc is-live=true ! alawenc ! rtppcmapay name=pay0 pt=8"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RtspServer]:
    need("gst-rtsp-server")
    with RtspServer(MOUNTS) as server:
        yield server


def _client(url: str, transport: Transport = "tcp") -> RtspClient:
    return RtspClient(url, transport=transport, stop=threading.Event(), limits=Timeouts(20, 5))


def _watched(client: RtspClient) -> list[Received]:
    """All packets until there are 50 of media and a report."""
    packets: list[Received] = []
    for _ in range(2000):
        packets += client.receive(0.05)
        if sum(p.kind == "rtp" for p in packets) >= 50 and any(p.kind == "rtcp" for p in packets):
            return packets
    raise AssertionError(f"{len(packets)} packets")


def _plausible(packets: list[Received], payload_type: int) -> None:
    media = [p.data for p in packets if p.kind == "rtp"]
    assert {data[0] >> 6 for data in media} == {2}
    assert {data[1] & 0x7F for data in media} == {payload_type}
    sequence = [int.from_bytes(data[2:4], "big") for data in media]
    assert sequence == [(sequence[0] + k) % 65536 for k in range(len(sequence))]
    assert {p.data[1] for p in packets if p.kind == "rtcp"} <= {200, 201, 202}
    assert [p.arrived_s for p in packets] == sorted(p.arrived_s for p in packets)


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize(("name", "codec"), [("cam", "h264"), ("hevc", "hevc")])
def test_a_session(server: RtspServer, name: str, codec: str, transport: Transport) -> None:
    before = open_files()
    with _client(server.url(name), transport) as client:
        track = client.track
        assert (track.codec, track.clock_rate) == (codec, 90000)
        assert track.parameter_sets.count(b"\0\0\0\1") == (2 if codec == "h264" else 3)
        client.send_rtcp(b"\x80\xc9\x00\x01\x00\x00\x00\x01")
        _plausible(_watched(client), track.payload_type)
    assert open_files() - before == set()


@pytest.mark.parametrize(("name", "words", "kind"), [("jpeg", "JPEG", Unsupported), ("sound", "no video", SourceError)])
def test_what_is_not_spoken(server: RtspServer, name: str, words: str, kind: type[SourceError]) -> None:
    with pytest.raises(kind, match=words):
        _client(server.url(name)).open()


def test_a_name_that_it_does_not_know(server: RtspServer) -> None:
    with pytest.raises(SourceError, match="404") as caught:
        _client(server.url("nosuch")).open()
    assert caught.value.permanent


@pytest.mark.parametrize("auth", ["basic", "digest"])
def test_a_password(auth: Literal["basic", "digest"]) -> None:
    need("gst-rtsp-server")
    with RtspServer({"cam": MOUNTS["cam"]}, user="viewer", password="p@s#s:w/%", auth=auth) as server:
        with _client(server.url("cam")) as client:
            _watched(client)
        for url in (server.url("cam", password="wrong"), server.url("cam", credentials=False)):
            with pytest.raises(SourceError, match="401") as caught:
                _client(url).open()
            assert caught.value.denied
        with _client(server.url("cam"), "udp") as client:
            _watched(client)
            server.kill()
            with pytest.raises(SourceError, match="hung up"):
                _watched(client)
