"""The RTSP client against a server that follows a script: good cameras, odd ones, and hostile ones."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import socket
import threading
from collections.abc import Callable

import pytest

from pipelines.errors import SourceError, Stopped
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtsp.message import ProtocolError
from pipelines.sources.rtsp.rtsp_client import REDIRECTS, RtspClient
from pipelines.sources.rtsp.rtsp_session import Transport
from pipelines.sources.rtsp.sdp import Unsupported
from tests.servers.peers import FullBacklog, SilentPeer
from tests.servers.scripted import HANG_UP, SDP, Asked, Reply, Script, Scripted, camera, frame, reply
from tests.sources.rtsp.clients import SECRET, Clock, Stopping, nothing_open, received  # noqa: F401 - a fixture

STAGES = ("OPTIONS", "DESCRIBE", "SETUP", "PLAY")
QUICK = Timeouts(10, 5)
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("nothing_open")]


def _client(
    server: Scripted, who: str = "", *, transport: Transport = "tcp", path: str = "/cam", **options: object
) -> RtspClient:
    options = {"stop": threading.Event(), "limits": QUICK, **options}
    return RtspClient(server.url(path, who), transport=transport, **options)  # type: ignore[arg-type]


def _fails(script: Script, who: str = "", **options: object) -> SourceError:
    """The error of an open that fails; it is one line, and says nothing secret."""
    with Scripted(script) as server:
        with pytest.raises(SourceError) as caught, _client(server, who, **options):  # type: ignore[arg-type]
            pass
        assert str(caught.value).count(f"127.0.0.1:{server.port}/cam: ") == 1
    assert len(str(caught.value).splitlines()) == 1
    assert SECRET not in str(caught.value)
    return caught.value


def _ends(client: RtspClient) -> SourceError:
    """The error that ends a session."""
    for _ in range(2000):
        try:
            client.receive(0.05)
        except SourceError as error:
            return error
    raise AssertionError("the session goes on")


class TestOpen:
    def test_the_requests_of_a_session(self) -> None:
        with Scripted(camera()) as server:
            with _client(server, f"user:{SECRET}", path="/cam?x=1") as client:
                assert client.track.control == server.url("/cam?x=1/trackID=0")
                assert client.track.codec == "h264"
            assert server.methods == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY", "TEARDOWN"]
        assert [one.headers["cseq"] for one in server.asked] == ["1", "2", "3", "4", "5"]
        assert {one.headers["user-agent"] for one in server.asked} == {"Watchline"}
        assert [one.headers.get("session") for one in server.asked] == [None, None, None, "4711", "4711"]
        assert server.asked[1].headers["accept"] == "application/sdp"
        assert server.asked[2].headers["transport"] == "RTP/AVP/TCP;unicast;interleaved=0-1"
        assert server.asked[3].headers["range"] == "npt=0.000-"
        assert server.asked[3].uri == server.asked[4].uri == server.url("/cam?x=1/")
        assert not [one for one in server.asked if "authorization" in one.headers or SECRET in one.uri]

    def test_over_udp(self) -> None:
        with Scripted(camera()) as server, _client(server, transport="udp"):
            first, second = re.findall(r"\d+", server.asked[2].headers["transport"])
            assert int(first) % 2 == 0
            assert int(second) == int(first) + 1

    def test_all_tracks(self) -> None:
        def set_up(asked: Asked) -> Reply:
            return reply(asked, 454 if asked.uri.endswith("1") else 200, b"", "Session: 1", "Transport: x")

        with Scripted(camera(SETUP=set_up)) as server, _client(server, all_tracks=True):
            both = [one for one in server.asked if one.method == "SETUP"]
            assert [one.uri.rpartition("/")[2] for one in both] == ["trackID=0", "trackID=1"]
            assert both[1].headers["transport"].endswith("interleaved=2-3")
            assert both[1].headers["session"] == "1"

    def test_all_tracks_over_udp(self) -> None:
        with Scripted(camera()) as server, _client(server, transport="udp", all_tracks=True) as client:
            ports = [int(re.findall(r"\d+", one.headers["transport"])[0]) for one in server.asked if one.method == "SETUP"]
            assert len(set(ports)) == 2
            with socket.socket(type=socket.SOCK_DGRAM) as sender:
                for port in reversed(ports):
                    sender.sendto(b"%d" % port, ("127.0.0.1", port))
                assert [one.data for one in received(client, 1)] == [b"%d" % ports[0]]

    @pytest.mark.parametrize("status", [400, 404, 405, 500, 501])
    def test_a_server_that_does_not_know_options(self, status: int) -> None:
        with Scripted(camera(OPTIONS=lambda asked: reply(asked, status))) as server, _client(server):
            assert server.methods == list(STAGES)

    def test_content_base(self) -> None:
        def describe(asked: Asked) -> Reply:
            return reply(asked, 200, SDP, "Content-Base: rtsp://10.0.0.7/other/", "Content-Location: rtsp://x/")

        with Scripted(camera(DESCRIBE=describe)) as server, _client(server) as client:
            assert client.track.aggregate == "rtsp://10.0.0.7/other/"
            assert server.asked[2].uri == "rtsp://10.0.0.7/other/trackID=0"

    @pytest.mark.parametrize("line", ["Content-Base: ", "Content-Base: http://x/", "Content-Base: rtsp:x", "X: y"])
    def test_no_base_that_can_be_used(self, line: str) -> None:
        with Scripted(camera(DESCRIBE=lambda asked: reply(asked, 200, SDP, line))) as server, _client(server) as client:
            assert client.track.aggregate == server.url()
            assert client.track.control == server.url("/cam/trackID=0")

    def test_answers_without_a_cseq_and_strange_ones(self) -> None:
        def odd(asked: Asked) -> Reply:
            good = camera()(asked)
            assert good is not None
            return (
                b"RTSP/1.0 100 Continue\r\nCSeq: %d\r\n\r\n" % int(asked.headers["cseq"])
                + reply(Asked("", "", {"cseq": "99"}), 500)
                + re.sub(rb"CSeq: \d+\r\n", b"", good)
                + b"\r\n"
            )

        with Scripted(odd) as server, _client(server):
            assert server.methods == list(STAGES)

    def test_play_for_the_track_alone(self) -> None:
        def play(asked: Asked) -> Reply:
            return reply(asked, 200 if "trackID" in asked.uri else 460)

        with Scripted(camera(PLAY=play)) as server, _client(server):
            assert [one.uri for one in server.asked[-2:]] == [server.url("/cam/"), server.url("/cam/trackID=0")]

    def test_without_a_session_nothing_is_open(self) -> None:
        client = RtspClient("rtsp://127.0.0.1/", transport="tcp", stop=threading.Event(), limits=QUICK)
        assert client.receive(0) == []
        client.send_rtcp(b"x")
        client.close()
        with pytest.raises(RuntimeError):
            _ = client.track


class TestRefusals:
    @pytest.mark.parametrize("stage", STAGES)
    def test_a_camera_that_hangs_up(self, stage: str) -> None:
        error = _fails(camera(**{stage: HANG_UP}), f"u:{SECRET}")
        assert not error.permanent
        assert "hung up" in str(error)

    @pytest.mark.parametrize("stage", STAGES)
    def test_a_stop(self, stage: str) -> None:
        stop = threading.Event()

        def silent(asked: Asked) -> Reply:
            stop.set()
            return None

        with Scripted(camera(**{stage: silent})) as server:
            with pytest.raises(Stopped), _client(server, stop=stop, clock=Clock()):
                pass
            assert server.methods[-1] == ("TEARDOWN" if stage == "PLAY" else stage)

    @pytest.mark.parametrize("stage", STAGES)
    def test_a_camera_that_falls_silent(self, stage: str) -> None:
        clock = Clock()

        def silent(asked: Asked) -> Reply:
            clock.now_s += 10
            return b"RTSP/1.0 200"

        error = _fails(camera(**{stage: silent}), clock=clock)
        assert "within 10 s" in str(error)
        assert not error.permanent

    def test_the_limit_is_for_the_whole_open(self) -> None:
        clock = Clock()

        def slow(asked: Asked) -> Reply:
            clock.now_s += 4
            return camera()(asked)

        assert "within 10 s" in str(_fails(slow, clock=clock))

    @pytest.mark.parametrize("stage", ["DESCRIBE", "SETUP", "PLAY"])
    @pytest.mark.parametrize(
        ("status", "permanent", "denied", "words"),
        [
            (401, True, True, "401: user or password is missing or wrong"),
            (403, True, True, "403: access is forbidden"),
            (404, True, False, "404: there is no such stream"),
            (454, False, False, "454"),
            (400, False, False, "400 Words"),
            (461, True, False, "`rtsp_transport` udp"),
            (500, False, False, "500 Words"),
            (503, False, False, "503"),
            (302, False, False, "302"),
        ],
    )
    def test_a_status(self, stage: str, status: int, permanent: bool, denied: bool, words: str) -> None:
        error = _fails(camera(**{stage: lambda asked: reply(asked, status)}), f"u:{SECRET}")
        assert (error.permanent, error.denied) == (permanent, denied)
        assert words in str(error)

    def test_a_reason_that_is_long_and_strange(self) -> None:
        error = _fails(camera(DESCRIBE=lambda asked: reply(asked, 418).replace(b"Words", b"\x1b[2J\x85" + b"x" * 5000)))
        assert str(error).isprintable()
        assert len(str(error)) < 200

    @pytest.mark.parametrize(
        ("answer", "transport", "words"),
        [
            ("RTP/AVP;unicast;client_port=1-2;server_port=3-4", "tcp", "`rtsp_transport` udp"),
            ("RTP/AVP/TCP;unicast;interleaved=0-1", "udp", "`rtsp_transport` tcp"),
            ("RTP/AVP;multicast;destination=232.0.0.1;port=5-6", "udp", "multicast"),
        ],
    )
    def test_another_transport(self, answer: str, transport: Transport, words: str) -> None:
        error = _fails(camera(SETUP=lambda asked: reply(asked, 200, b"", f"Transport: {answer}")), transport=transport)
        assert error.permanent
        assert words in str(error)

    def test_what_is_not_spoken_keeps_its_kind(self) -> None:
        assert isinstance(_fails(camera(SDP.replace(b"H264", b"JPEG"))), Unsupported)
        assert "no video" in str(_fails(camera(SDP.replace(b"m=video", b"m=text"))))

    @pytest.mark.parametrize(
        "body",
        [
            b"RTSP/1.0 200 OK\r\nContent-Length: 10485760\r\n\r\n" + SDP,
            b"RTSP/1.0 200 OK\r\nContent-Length: -7\r\n\r\n",
            b"RTSP/1.0 200 OK\r\nContent-Length: many\r\n\r\n",
            b"RTSP/1.0 200 OK\r\n\r\n" + SDP,
            b"RTSP/1.0 200 OK\r\n" + b"X: y\r\n" * 200,
            b"RTSP/1.0 200 OK\r\nX: " + b"y" * 70000,
            b"HTTP/1.0 400 Bad RtspRequest\r\n\r\n",
            b"\0" * 100,
            b"RTSP/1.0 200 OK\r\nCSeq: 2\r\n\r\n",
        ],
    )
    def test_a_description_that_breaks_a_rule(self, body: bytes) -> None:
        error = _fails(camera(DESCRIBE=body))
        assert isinstance(error, ProtocolError)
        assert not error.permanent

    def test_a_description_that_is_longer_than_its_length(self) -> None:
        assert "no video" in str(_fails(camera(DESCRIBE=b"RTSP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n" + SDP)))

    def test_a_description_of_10_mb(self) -> None:
        sdp = SDP + b"a=x\r\n" * 2_000_000
        assert "body" in str(_fails(camera(sdp)))
        assert "lines" in str(_fails(camera(sdp[: 1 << 20])))

    @pytest.mark.parametrize(
        "data", [b"X: y\r\n", b"\r\n", b"RTSP/1.0 100 Go on\r\n\r\n", b"RTSP/1.0 200 OK\r\nCSeq: 77\r\n\r\n"]
    )
    def test_a_reply_that_never_ends(self, data: bytes) -> None:
        """Each part of it comes at once, and time passes with it."""
        clock = Clock()
        with Scripted(camera(DESCRIBE=b"RTSP/1.0 100 Go on\r\n\r\n")) as server:
            done = threading.Event()

            def feed() -> None:
                server.until(lambda s: "DESCRIBE" in s.methods)
                for _ in range(5000):
                    if done.is_set():
                        return
                    clock.now_s += 0.01
                    try:
                        server.push(data)
                    except OSError:
                        return

            thread = threading.Thread(target=feed)
            thread.start()
            with pytest.raises(SourceError), _client(server, clock=clock):
                pass
            done.set()
            thread.join()

    def test_packets_without_an_end_before_an_answer(self) -> None:
        error = _fails(camera(PLAY=frame(bytes(60000)) * 200))
        assert isinstance(error, ProtocolError)

    @pytest.mark.parametrize("url", ["rtsp://", "rtsp://h:99999/x", "http://h/x", "rtsp://[::1/x", f"rtsp:u:{SECRET}@h"])
    def test_a_malformed_address(self, url: str) -> None:
        with pytest.raises(SourceError) as caught:
            RtspClient(url, transport="tcp", stop=threading.Event(), limits=QUICK).open()
        assert caught.value.permanent
        assert SECRET not in str(caught.value)

    def test_nobody_listens(self) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            url = f"rtsp://u:{SECRET}@127.0.0.1:{one.getsockname()[1]}/cam"
            with pytest.raises(SourceError, match="refused") as caught:
                RtspClient(url, transport="tcp", stop=threading.Event(), limits=QUICK).open()
        assert not caught.value.permanent
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(("code", "permanent"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
    def test_a_host_that_nobody_knows(self, code: int, permanent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(*_: object, **__: object) -> None:
            raise socket.gaierror(code, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(SourceError, match=r"'camera\.invalid' is not known") as caught:
            RtspClient("rtsp://camera.invalid/x", transport="tcp", stop=threading.Event(), limits=QUICK).open()
        assert caught.value.permanent is permanent

    def test_every_address_of_a_host_is_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Scripted(camera()) as server, socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", a) for a in (deaf.getsockname(), ("127.0.0.1", server.port))]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            with RtspClient("rtsp://twice/cam", transport="tcp", stop=threading.Event(), limits=QUICK):
                assert server.methods == list(STAGES)

    def test_an_address_that_does_not_answer_leaves_time_for_the_next(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Scripted(camera()) as server, FullBacklog() as full:
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (full.port, server.port)]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            with RtspClient("rtsp://twice/cam", transport="tcp", stop=threading.Event(), limits=Timeouts(1, 1)):
                assert server.methods == list(STAGES)

    @pytest.mark.parametrize("times", [1, 7])
    def test_a_stop_before_and_while_connecting(self, times: int) -> None:
        clock = Stopping(times)
        with FullBacklog() as full:
            url = f"rtsp://127.0.0.1:{full.port}/"
            with pytest.raises(Stopped):
                RtspClient(url, transport="tcp", stop=clock.stop, limits=QUICK, clock=clock).open()

    def test_a_peer_that_accepts_and_says_nothing(self) -> None:
        with SilentPeer() as peer, pytest.raises(SourceError, match=r"within 0\.2 s"):
            RtspClient(peer.url(), transport="tcp", stop=threading.Event(), limits=Timeouts(0.2, 1)).open()


def _digest(asked: Asked, algorithm: str = "md5") -> bool:
    """Whether the request holds the right answer to a challenge; computed as a server does."""
    said = dict(re.findall(r'(\w+)="?([^",]*)', asked.headers.get("authorization", "")))

    def h(*parts: str) -> str:
        return hashlib.new(algorithm, ":".join(parts).encode()).hexdigest()

    first, second = h("u", said.get("realm", ""), SECRET), h(asked.method, said.get("uri", ""))
    middle = [said[k] for k in ("nonce", "nc", "cnonce", "qop")] if "qop" in said else [said.get("nonce", "")]
    return said.get("uri") == asked.uri and said.get("response") == h(first, *middle, second)


def _guarded(check: Callable[[Asked], bool], *challenges: str) -> Script:
    """A camera that lets in only requests that pass the check."""
    fields = [f"WWW-Authenticate: {challenge}" for challenge in challenges]
    return lambda asked: camera()(asked) if check(asked) else reply(asked, 401, b"", *fields)


BASIC = "Basic " + base64.b64encode(f"u:{SECRET}".encode()).decode()
DIGEST = 'Digest realm="door", nonce="abc", qop="auth"'
SHA = 'Digest realm="door", nonce="abc", qop="auth", algorithm=SHA-256'


class TestAuthentication:
    @pytest.mark.parametrize(
        ("check", "challenges"),
        [
            (lambda a: a.headers.get("authorization") == BASIC, ['Basic realm="door"']),
            (_digest, [DIGEST]),
            (_digest, ['Digest realm="door", nonce="abc"', 'Basic realm="door"']),
            (lambda a: _digest(a, "sha256"), [DIGEST, SHA, 'Basic realm="door"']),
            (lambda a: _digest(a, "sha256"), [f'Basic realm="door", {DIGEST}, {SHA}']),
        ],
    )
    def test_the_right_password(self, check: Callable[[Asked], bool], challenges: list[str]) -> None:
        with Scripted(_guarded(check, *challenges)) as server:
            with _client(server, f"u:{SECRET}"):
                pass
            assert server.methods == ["OPTIONS", *STAGES, "TEARDOWN"]
            assert all(check(one) for one in server.asked[1:])

    @pytest.mark.parametrize("who", ["u:wrong", f"v:{SECRET}", ""])
    @pytest.mark.parametrize("challenge", [DIGEST, SHA, 'Basic realm="door"'])
    def test_a_wrong_one_is_tried_once(self, who: str, challenge: str) -> None:
        with Scripted(_guarded(lambda _: False, challenge)) as server:
            with pytest.raises(SourceError, match="401: user or password is missing or wrong") as caught, _client(server, who):
                pass
            assert sum("authorization" in one.headers for one in server.asked) == (1 if who else 0)
        assert caught.value.permanent
        assert caught.value.denied

    @pytest.mark.parametrize("stale", ["", ", stale=true"])
    def test_a_challenge_for_ever(self, stale: str) -> None:
        error = _fails(_guarded(lambda _: False, DIGEST + stale), f"u:{SECRET}")
        assert error.denied

    def test_a_new_nonce_for_each_request(self) -> None:
        nonces = iter(range(1000))
        current = ""

        def one_time(asked: Asked) -> Reply:
            nonlocal current
            if current and f'"{current}"' in asked.headers.get("authorization", "") and _digest(asked):
                current = ""
                return camera()(asked)
            current = f"n{next(nonces)}"
            return reply(asked, 401, b"", f'WWW-Authenticate: Digest realm="door", nonce="{current}", qop="auth"')

        with Scripted(one_time) as server, _client(server, f"u:{SECRET}"):
            assert server.methods == [m for stage in STAGES for m in (stage, stage)]

    def test_a_stale_nonce(self) -> None:
        def stale(asked: Asked) -> Reply:
            if '"new"' in asked.headers.get("authorization", "") and _digest(asked):
                return camera()(asked)
            known = "authorization" in asked.headers
            nonce = 'nonce="new", stale=true' if known else 'nonce="old"'
            return reply(asked, 401, b"", f'WWW-Authenticate: Digest realm="door", {nonce}')

        with Scripted(stale) as server, _client(server, f"u:{SECRET}"):
            assert server.methods == ["OPTIONS"] * 2 + list(STAGES)

    def test_a_camera_that_hangs_up_with_its_401(self) -> None:
        hung: list[Asked] = []

        def script(asked: Asked) -> Reply:
            if _digest(asked):
                return HANG_UP if len(hung) == 1 and not hung.append(asked) else camera()(asked)  # type: ignore[func-returns-value]
            hung.append(asked)
            return reply(asked, 401, b"", f"WWW-Authenticate: {DIGEST}")

        with Scripted(script) as server, _client(server, f"u:{SECRET}"):
            assert server.methods == ["OPTIONS", "OPTIONS", *STAGES]

    def test_a_scheme_that_is_not_spoken_is_named(self) -> None:
        error = _fails(_guarded(lambda _: False, "Negotiate"), f"u:{SECRET}")
        assert "negotiate" in str(error)
        assert error.denied

    def test_options_may_be_refused_to_a_stranger(self) -> None:
        script = camera(OPTIONS=lambda asked: reply(asked, 401, b"", f"WWW-Authenticate: {DIGEST}"))
        with Scripted(script) as server, _client(server):
            assert server.methods == list(STAGES)


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 303, 305, 307, 308])
    def test_to_another_camera(self, status: int) -> None:
        with Scripted(camera()) as there:
            moved = camera(DESCRIBE=lambda asked: reply(asked, status, b"", f"Location: {there.url('/b')}"))
            with Scripted(moved) as here, _client(here) as client:
                assert client.track.aggregate == there.url("/b/")
                assert here.methods == ["OPTIONS", "DESCRIBE"]
                assert there.methods == list(STAGES)

    @pytest.mark.parametrize("stage", STAGES)
    def test_at_any_time(self, stage: str) -> None:
        def moved(asked: Asked) -> Reply:
            return camera()(asked) if "/b" in asked.uri else reply(asked, 302, b"", "Location: /b")

        with Scripted(camera(**{stage: moved})) as server, _client(server):
            assert server.asked[-1].uri == server.url("/b/")

    @pytest.mark.parametrize(("hops", "works"), [(1, True), (REDIRECTS, True), (REDIRECTS + 1, False), (10**9, False)])
    def test_a_chain(self, hops: int, works: bool) -> None:
        def moved(asked: Asked) -> Reply:
            done = int(asked.uri.rpartition("/")[2].replace("cam", "0"))
            return reply(asked, 302, b"", f"Location: /{done + 1}") if done < hops else reply(asked, 200, SDP)

        script = camera(DESCRIBE=moved)
        if works:
            with Scripted(script) as server, _client(server):
                assert server.methods.count("DESCRIBE") == hops + 1
        else:
            assert f"more than {REDIRECTS} times" in str(_fails(script))

    @pytest.mark.parametrize("location", ["file:///etc/passwd", "http://127.0.0.1/", "data:,x", "rtsp://"])
    def test_to_what_is_no_camera(self, location: str) -> None:
        error = _fails(camera(DESCRIBE=lambda asked: reply(asked, 302, b"", f"Location: {location}")), f"u:{SECRET}")
        assert error.permanent
        assert "redirected" in str(error)

    def test_the_password_stays_with_its_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        check = _guarded(lambda _: False, 'Basic realm="x"')
        with Scripted(check) as there:
            real = socket.getaddrinfo
            monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: real("127.0.0.1", *a, **k))
            moved = camera(DESCRIBE=lambda asked: reply(asked, 302, b"", f"Location: rtsp://elsewhere:{there.port}/"))
            with Scripted(moved) as here, pytest.raises(SourceError, match="401"), _client(here, f"u:{SECRET}"):
                pass
            assert there.methods == ["OPTIONS", "DESCRIBE"]
            assert not [one for one in there.asked if "authorization" in one.headers]


class TestReceive:
    def test_packets_of_the_track_alone(self) -> None:
        data = frame(b"a") + frame(b"r", 1) + frame(b"other", 2) + frame(b"b")
        with Scripted(camera(PLAY=lambda asked: reply(asked) + data)) as server, _client(server, clock=Clock()) as client:
            packets = received(client, 3)
            assert [(p.kind, p.data) for p in packets] == [("rtp", b"a"), ("rtcp", b"r"), ("rtp", b"b")]
            assert {p.arrived_s for p in packets} == {1000.0}

    def test_what_came_before_the_answer(self) -> None:
        with Scripted(camera(PLAY=lambda asked: frame(b"a") + reply(asked) + frame(b"b"))) as server, _client(server) as client:
            server.push(frame(b"c"))
            assert [p.data for p in received(client, 3)] == [b"a", b"b", b"c"]

    def test_the_channels_that_the_server_chose(self) -> None:
        def set_up(asked: Asked) -> Reply:
            return reply(asked, 200, b"", "Transport: RTP/AVP/TCP;unicast;interleaved=6-7;ssrc=1234", "Session: 1")

        with Scripted(camera(SETUP=set_up)) as server, _client(server) as client:
            server.push(frame(b"x", 0) + frame(b"a", 6) + frame(b"r", 7))
            assert [(p.kind, p.data) for p in received(client, 2)] == [("rtp", b"a"), ("rtcp", b"r")]
            client.send_rtcp(b"report")
            server.until(lambda s: s.said == [(7, b"report")])

    def test_many_packets_in_order(self) -> None:
        sent = [k.to_bytes(2, "big") * 700 for k in range(3000)]
        with Scripted(camera()) as server, _client(server) as client:
            pusher = threading.Thread(target=lambda: server.push(b"".join(map(frame, sent))))
            pusher.start()
            packets = received(client, len(sent))
            pusher.join()
        assert [p.data for p in packets] == sent

    def test_over_udp_from_the_server_alone(self) -> None:
        with Scripted(camera()) as server, _client(server, transport="udp") as client:
            port = int(re.findall(r"\d+", server.asked[2].headers["transport"])[0])
            with socket.socket(type=socket.SOCK_DGRAM) as good, socket.socket(type=socket.SOCK_DGRAM) as foreign:
                foreign.bind(("127.0.0.2", 0))
                foreign.sendto(b"evil", ("127.0.0.1", port))
                good.sendto(b"r", ("127.0.0.1", port + 1))
                for k in range(20):
                    good.sendto(b"%d" % k, ("127.0.0.1", port))
                packets = received(client, 21)
        assert [p.data for p in packets if p.kind == "rtp"] == [b"%d" % k for k in range(20)]
        assert [p.data for p in packets if p.kind == "rtcp"] == [b"r"]

    def test_udp_from_the_source_that_the_server_names(self) -> None:
        def set_up(asked: Asked) -> Reply:
            return reply(asked, 200, b"", "Transport: RTP/AVP;unicast;source=127.0.0.2;server_port=9-10", "Session: 1")

        with Scripted(camera(SETUP=set_up)) as server, _client(server, transport="udp") as client:
            port = int(re.findall(r"\d+", server.asked[2].headers["transport"])[0])
            with socket.socket(type=socket.SOCK_DGRAM) as source:
                source.bind(("127.0.0.2", 0))
                source.sendto(b"a", ("127.0.0.1", port))
                assert received(client, 1)[0].data == b"a"

    def test_reports_and_openers_over_udp(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as rtp, socket.socket(type=socket.SOCK_DGRAM) as rtcp:
            for one in (rtp, rtcp):
                one.bind(("127.0.0.1", 0))
                one.settimeout(20)
            ports = f"{rtp.getsockname()[1]}-{rtcp.getsockname()[1]}"

            def set_up(asked: Asked) -> Reply:
                return reply(asked, 200, b"", f"Transport: RTP/AVP;unicast;server_port={ports}", "Session: 1")

            with Scripted(camera(SETUP=set_up)) as server, _client(server, transport="udp") as client:
                assert rtp.recv(100) == b"\x80" + bytes(11)
                assert rtcp.recv(100)[:4] == b"\x80\xc9\x00\x01"
                client.send_rtcp(b"report")
                assert rtcp.recv(100) == b"report"

    @pytest.mark.parametrize("transport", ["tcp", "udp"])
    def test_a_hang_up(self, transport: Transport) -> None:
        with Scripted(camera()) as server, _client(server, transport=transport) as client:
            server.push(frame(b"last"))
            server.hang_up()
            if transport == "tcp":
                assert received(client, 1)[0].data == b"last"
            error = _ends(client)
            assert "hung up" in str(error)
            assert str(error) == str(_ends(client))

    @pytest.mark.parametrize("method", ["TEARDOWN", "ANNOUNCE", "REDIRECT"])
    def test_an_end_that_is_announced(self, method: str) -> None:
        with Scripted(camera()) as server, _client(server) as client:
            server.push(frame(b"last") + f"{method} * RTSP/1.0\r\nCSeq: 1\r\nLocation: rtsp://x/\r\n\r\n".encode())
            assert received(client, 1)[0].data == b"last"
            assert method in str(_ends(client))

    @pytest.mark.parametrize(
        ("method", "status"), [("OPTIONS", 200), ("GET_PARAMETER", 200), ("SET_PARAMETER", 200), ("RECORD", 501), ("X_Y", 501)]
    )
    def test_requests_of_the_server(self, method: str, status: int) -> None:
        with Scripted(camera()) as server, _client(server) as client:
            server.push(f"{method} * RTSP/1.0\r\nCSeq: 88\r\nContent-Length: 1\r\n\r\nx".encode() + frame(b"on"))
            assert received(client, 1)[0].data == b"on"
            server.until(lambda s: len(s.said) == 1)
            (said,) = server.said
            assert isinstance(said, bytes)
            assert said.startswith(b"RTSP/1.0 %d " % status)
            assert b"CSeq: 88" in said

    def test_what_came_before_rubbish_is_handed_out(self) -> None:
        with Scripted(camera()) as server, _client(server) as client:
            server.push(frame(b"good") + b"\0\0\0")
            assert received(client, 1)[0].data == b"good"
            assert "out of step" in str(_ends(client))

    def test_after_the_stop_there_is_nothing(self) -> None:
        stop = threading.Event()
        with Scripted(camera()) as server, _client(server, stop=stop, clock=Clock()) as client:
            server.push(frame(b"a"))
            stop.set()
            assert client.receive(1000) == []

    def test_a_stop_ends_a_wait(self) -> None:
        clock = Stopping(30)
        with Scripted(camera()) as server, _client(server, stop=clock.stop, clock=clock) as client:
            assert client.receive(10_000) == []
            assert clock.stop.is_set()

    def test_a_clock_that_stands_still(self) -> None:
        with Scripted(camera()) as server, _client(server, clock=Clock()) as client:
            assert client.receive(0.2) == []

    def test_reports_to_a_peer_that_does_not_read(self) -> None:
        with Scripted(camera(PLAY=lambda asked: reply(asked) + b"")) as server, _client(server) as client:
            for _ in range(2000):
                client.send_rtcp(bytes(1000))
            server.until(lambda s: len(s.said) > 50)
            assert {len(one[1]) for one in server.said if isinstance(one, tuple)} == {1000}


class TestKeepAlive:
    @staticmethod
    def _session(line: str) -> Script:
        def set_up(asked: Asked) -> Reply:
            return reply(
                asked, 200, b"", f"Transport: {asked.headers['transport']};server_port=9-10", *([line] if line else [])
            )

        return camera(SETUP=set_up)

    @pytest.mark.parametrize("transport", ["tcp", "udp"])
    @pytest.mark.parametrize(
        ("line", "period_s"),
        [
            ("Session: 1;timeout=60", 30),
            ("Session: 1", 30),
            ("Session: 1; Timeout = 10", 5),
            ("Session: 1;timeout=1", 0.5),
            ("Session: 1;timeout=0", 30),
            ("Session: 1;timeout=x", 30),
            ("Session: 1;timeout=999999", 60),
            ("", 30),
        ],
    )
    def test_half_way_to_the_end(self, line: str, period_s: float, transport: Transport) -> None:
        clock = Clock()
        with Scripted(self._session(line)) as server, _client(server, clock=clock, transport=transport) as client:
            for k in range(3):
                clock.now_s += period_s - 0.01
                assert client.receive(0) == []
                clock.now_s += 0.02
                assert client.receive(0) == []
                server.until(lambda s, k=k: s.methods.count("GET_PARAMETER") == k + 1)  # type: ignore[misc]
                clock.now_s -= 0.01
            assert server.asked[-1].uri == client.track.aggregate
            assert server.asked[-1].headers.get("session") == ("1" if line else None)

    def test_options_where_nothing_else_is_offered(self) -> None:
        clock = Clock()
        script = camera(OPTIONS=lambda asked: reply(asked, 200, b"", "Public: PLAY"))
        with Scripted(script) as server, _client(server, clock=clock) as client:
            clock.now_s += 31
            client.receive(0)
            server.until(lambda s: s.methods[-1] == "OPTIONS")

    def test_options_where_the_offer_was_empty(self) -> None:
        clock = Clock()
        with Scripted(camera(GET_PARAMETER=lambda asked: reply(asked, 451))) as server, _client(server, clock=clock) as client:
            clock.now_s += 31
            for _ in range(2000):
                client.receive(0.01)
                if server.methods[-1] == "OPTIONS":
                    break
            assert server.methods[-2:] == ["GET_PARAMETER", "OPTIONS"]

    def test_an_answer_that_nobody_asked_for(self) -> None:
        with Scripted(camera()) as server, _client(server, f"u:{SECRET}") as client:
            server.push(f"RTSP/1.0 401 No\r\nWWW-Authenticate: {DIGEST}\r\n\r\n".encode() * 50 + frame(b"on"))
            assert received(client, 1)[0].data == b"on"
            assert server.methods == list(STAGES)

    def test_with_credentials_and_a_nonce_that_grew_old(self) -> None:
        clock, nonce = Clock(), "first"

        def script(asked: Asked) -> Reply:
            if f'"{nonce}"' in asked.headers.get("authorization", "") and _digest(asked):
                return camera()(asked)
            return reply(asked, 401, b"", f'WWW-Authenticate: Digest realm="door", nonce="{nonce}"')

        with Scripted(script) as server, _client(server, f"u:{SECRET}", clock=clock) as client:
            nonce = "second"
            clock.now_s += 31
            for _ in range(2000):
                client.receive(0.01)
                if server.methods.count("GET_PARAMETER") == 2:
                    break
            assert _digest(server.asked[-1])
            nonce = "third"
            clock.now_s += 31
            client.receive(0)
            server.until(lambda s: s.methods.count("GET_PARAMETER") >= 3)

    def test_one_that_is_refused_for_good_ends_nothing(self) -> None:
        clock = Clock()
        script = camera(GET_PARAMETER=lambda asked: reply(asked, 401, b"", f"WWW-Authenticate: {DIGEST}"))
        with Scripted(script) as server, _client(server, f"u:{SECRET}", clock=clock) as client:
            for _ in range(3):
                clock.now_s += 31
                for _ in range(5):
                    assert client.receive(0.01) == []
            server.push(frame(b"on"))
            assert received(client, 1)[0].data == b"on"
            assert 3 <= server.methods.count("GET_PARAMETER") <= 6


class TestClose:
    def test_twice(self) -> None:
        with Scripted(camera()) as server:
            client = _client(server)
            client.open()
            client.close()
            client.close()
            assert client.receive(0) == []
            assert server.methods.count("TEARDOWN") == 1

    def test_a_server_that_does_not_answer_it(self) -> None:
        with Scripted(camera(TEARDOWN=None)) as server:
            with _client(server):
                server.push(frame(bytes(1000)) * 20)
            server.until(lambda s: s.methods[-1] == "TEARDOWN")

    def test_a_session_that_never_played_is_torn_down(self) -> None:
        with Scripted(camera(PLAY=lambda asked: reply(asked, 500))) as server:
            with pytest.raises(SourceError), _client(server):
                pass
            assert server.methods[-1] == "TEARDOWN"

    @pytest.mark.parametrize("transport", ["tcp", "udp"])
    def test_an_error_of_the_caller(self, transport: Transport) -> None:
        with Scripted(camera()) as server, pytest.raises(ZeroDivisionError), _client(server, transport=transport):
            raise ZeroDivisionError


def test_hostile_servers_end_in_documented_errors() -> None:
    """Mutations of good replies: an open works, or fails with a SourceError; so do the later calls."""
    chance = random.Random(7)
    good = camera()

    def mutated(asked: Asked) -> Reply:
        data = bytearray((good(asked) or b"") + (frame(b"x") * 3 if asked.method == "PLAY" else b""))
        for _ in range(chance.choice([0, 0, 1, 1, 3])):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    del data[at : at + chance.randrange(20)]
                case 2:
                    data[at:at] = data[chance.randrange(len(data)) :][: chance.randrange(60)]
                case 3:
                    data[at:at] = chance.choice([b"\r\n\r\n", b"$\0\0\1x", b": ", b";timeout=0", b"-1", b"401", b"rtsp://"])
        return bytes(data) or HANG_UP

    opened, errors = 0, []
    with Scripted(mutated) as server:
        for _ in range(100):
            try:
                with _client(server, "u:p", transport=chance.choice(["tcp", "udp"]), limits=Timeouts(0.05, 0.05)) as client:
                    opened += 1
                    for _ in range(3):
                        client.receive(0.001)
            except SourceError as error:
                errors.append(str(error))
    assert all(error.isprintable() for error in errors)
    assert min(opened, len(errors)) > 10
