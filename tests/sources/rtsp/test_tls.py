"""RTSP over TLS: valid certificates, and the messages about the others."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from pipelines.errors import SourceError, Stopped
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtsp.ffmpeg_reader import FfmpegRtsp
from pipelines.sources.rtsp.rtsp_client import RtspClient
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from tests.servers.certificates import self_signed, server_context
from tests.servers.peers import SilentPeer
from tests.servers.scripted import Scripted, camera, frame, reply
from tests.servers.streaming import described
from tests.sources.play import Player
from tests.sources.rtp.packetize import bare, packetize, stream, wire
from tests.sources.rtsp.clients import SECRET, Stopping, nothing_open, received  # noqa: F401 - a fixture

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_open")]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


def _client(server: Scripted | SilentPeer, **options: object) -> RtspClient:
    url = server.url(scheme="rtsps")
    return RtspClient(url, **{"transport": "tcp", "stop": threading.Event(), "limits": Timeouts(10, 5), **options})  # type: ignore[arg-type]


def _fails(server: Scripted | SilentPeer, **options: object) -> SourceError:
    with pytest.raises(SourceError) as caught:
        _client(server, **options).open()
    return caught.value


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificate, known to this machine."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return certificate


def test_a_certificate_that_holds(trusted: Path) -> None:
    with Scripted(camera(), tls=server_context(trusted)) as server, _client(server) as client:
        assert server.methods == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"]
        assert client.track.control == server.url("/cam/trackID=0", scheme="rtsps")
        sent = [k.to_bytes(2, "big") * 5000 for k in range(300)]
        pusher = threading.Thread(target=lambda: server.push(b"".join(map(frame, sent))))
        pusher.start()
        packets = received(client, len(sent))
        pusher.join()
        assert [p.data for p in packets] == sent
        client.send_rtcp(b"report")
        server.until(lambda s: s.said == [(1, b"report")])
        server.hang_up()
        with pytest.raises(SourceError, match="hung up"):
            received(client, 1)


def test_one_that_nobody_signed(certificate: Path) -> None:
    with Scripted(camera(), tls=server_context(certificate)) as server:
        error = _fails(server)
        assert server.methods == []
    assert error.permanent
    assert "self-signed" in str(error)
    assert "`no_tls_verify`" in str(error)


def test_one_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = self_signed(tmp_path, "DNS:other.invalid")
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with Scripted(camera(), tls=server_context(other)) as server:
        error = _fails(server)
        assert server.methods == []
    assert error.permanent
    assert "127.0.0.1" in str(error)


def test_the_check_may_be_turned_off(certificate: Path) -> None:
    with Scripted(camera(), tls=server_context(certificate)) as server, _client(server, verify_tls=False):
        assert server.methods == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"]


def test_an_old_version(trusted: Path) -> None:
    context = server_context(trusted)
    with pytest.deprecated_call():
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with Scripted(camera(), tls=context) as server:
        error = _fails(server)
    assert "no TLS connection" in str(error)
    assert not error.permanent


def test_a_server_that_wants_a_certificate_of_ours(trusted: Path) -> None:
    context = server_context(trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with Scripted(camera(), tls=context) as server:
        assert not _fails(server).permanent


def test_a_peer_that_does_not_shake_hands() -> None:
    with SilentPeer() as peer:
        clock = Stopping(12)
        with pytest.raises(Stopped):
            _client(peer, stop=clock.stop, clock=clock).open()
        with pytest.raises(SourceError, match=r"within 0\.2 s"):
            _client(peer, limits=Timeouts(0.2, 1)).open()


def test_the_password_never_goes_down_to_plain_text(trusted: Path) -> None:
    with Scripted(lambda asked: reply(asked, 401, b"", 'WWW-Authenticate: Basic realm="x"')) as plain:
        moved = camera(DESCRIBE=lambda asked: reply(asked, 302, b"", f"Location: {plain.url()}"))
        with Scripted(moved, tls=server_context(trusted)) as server:
            url = server.url(who=f"u:{SECRET}", scheme="rtsps")
            client = RtspClient(url, transport="tcp", stop=threading.Event(), limits=Timeouts(10, 5))
            with pytest.raises(SourceError, match="401"):
                client.open()
        assert plain.methods == ["OPTIONS", "DESCRIBE"]
        assert not [one for one in plain.asked if "authorization" in one.headers]


class TestFfmpeg:
    """It would check nothing by itself."""

    @staticmethod
    def _played(certificate: Path, *, verify: bool = True) -> Player:
        options = RtspOptions("ffmpeg", limits=Timeouts(10, 5), tls_verify=verify)
        packets = [frame(wire(packet)) for packet in bare(packetize(stream("h264", frames=30)))]
        played = camera(described("h264"), PLAY=lambda asked: reply(asked) + b"".join(packets))
        with Scripted(played, tls=server_context(certificate)) as server:
            with Player(FfmpegRtsp(server.url(scheme="rtsps"), options)) as player:
                player.until_some()
            assert bool(player.captures) is ("PLAY" in server.methods)
        return player

    def test_a_certificate_that_holds(self, trusted: Path) -> None:
        assert self._played(trusted).error is None

    def test_the_check_may_be_turned_off(self, certificate: Path) -> None:
        assert self._played(certificate, verify=False).error is None

    def test_one_that_nobody_signed(self, certificate: Path) -> None:
        self._is_refused(self._played(certificate))

    def test_one_of_another_host(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = self_signed(tmp_path, "DNS:other.invalid")
        monkeypatch.setenv("SSL_CERT_FILE", str(other))
        self._is_refused(self._played(other))

    @staticmethod
    def _is_refused(player: Player) -> None:
        error = player.error
        assert isinstance(error, SourceError)
        assert error.permanent
        assert "certificate does not hold" in str(error)
        assert "`no_tls_verify`" in str(error)
