"""RTSP over TLS: which certificates hold, and what is said about those that do not."""

from __future__ import annotations

import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.sources.opening import Limits
from pipelines.sources.rtsp.client import RtspClient
from pipelines.sources.rtsp.waiting import Stopped
from tests.servers.peers import SilentPeer
from tests.servers.scripted import Scripted, camera, frame, reply
from tests.sources.rtsp.clients import SECRET, Stopping, nothing_open, received  # noqa: F401 - a fixture
from tests.system import need

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_open")]


def _certificate(folder: Path, names: str) -> Path:
    """A self-signed certificate with its key, in one file."""
    need("openssl")
    path = folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=camera", "-addext", f"subjectAltName={names}", "-keyout", str(folder / "key"), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    path.write_bytes(path.read_bytes() + (folder / "key").read_bytes())
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


def _context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def _client(server: Scripted | SilentPeer, **options: object) -> RtspClient:
    url = server.url(scheme="rtsps")
    return RtspClient(url, **{"transport": "tcp", "stop": threading.Event(), "limits": Limits(10, 5), **options})  # type: ignore[arg-type]


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
    with Scripted(camera(), tls=_context(trusted)) as server, _client(server) as client:
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
    with Scripted(camera(), tls=_context(certificate)) as server:
        error = _fails(server)
        assert server.methods == []
    assert error.permanent
    assert "self-signed" in str(error)
    assert "--no-tls-verify" in str(error)


def test_one_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = _certificate(tmp_path, "DNS:other.invalid")
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with Scripted(camera(), tls=_context(other)) as server:
        error = _fails(server)
        assert server.methods == []
    assert error.permanent
    assert "127.0.0.1" in str(error)


def test_the_check_may_be_turned_off(certificate: Path) -> None:
    with Scripted(camera(), tls=_context(certificate)) as server, _client(server, verify_tls=False):
        assert server.methods == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"]


def test_an_old_version(trusted: Path) -> None:
    context = _context(trusted)
    with pytest.deprecated_call():
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with Scripted(camera(), tls=context) as server:
        error = _fails(server)
    assert "no TLS connection" in str(error)
    assert not error.permanent


def test_a_server_that_wants_a_certificate_of_ours(trusted: Path) -> None:
    context = _context(trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with Scripted(camera(), tls=context) as server:
        assert not _fails(server).permanent


def test_a_peer_that_does_not_shake_hands() -> None:
    with SilentPeer() as peer:
        clock = Stopping(12)
        with pytest.raises(Stopped):
            _client(peer, stop=clock.stop, clock=clock).open()
        with pytest.raises(SourceError, match=r"within 0\.2 s"):
            _client(peer, limits=Limits(0.2, 1)).open()


def test_the_password_never_goes_down_to_plain_text(trusted: Path) -> None:
    with Scripted(lambda asked: reply(asked, 401, b"", 'WWW-Authenticate: Basic realm="x"')) as plain:
        moved = camera(DESCRIBE=lambda asked: reply(asked, 302, b"", f"Location: {plain.url()}"))
        with Scripted(moved, tls=_context(trusted)) as server:
            url = server.url(who=f"u:{SECRET}", scheme="rtsps")
            client = RtspClient(url, transport="tcp", stop=threading.Event(), limits=Limits(10, 5))
            with pytest.raises(SourceError, match="401"):
                client.open()
        assert plain.methods == ["OPTIONS", "DESCRIBE"]
        assert not [one for one in plain.asked if "authorization" in one.headers]
