"""The servers that the other tests trust."""

from __future__ import annotations

import itertools
import os
import select
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import av
import av.error
import pytest

from pipelines.sources.opening import Timeouts
from pipelines.sources.rtp.packet import RtpPacket, parse
from pipelines.sources.rtsp.rtsp_client import RtspClient
from tests.clips import luma, number_of, numbered
from tests.servers import PatternSpec, Play, RtspServer
from tests.servers.peers import FullBacklog, HttpFiles, SilentPeer, StoppingHttp
from tests.system import need

PASSWORD = "p@s#s:w/%^!"
QUICK = {"rtsp_transport": "tcp", "analyzeduration": "0"}
"""No probing, which takes a second; without nobuffer, with which FFmpeg loses the first packet, a keyframe."""


def watch(url: str, frames: int, transport: str = "tcp") -> list[int]:
    """The numbers of the first frames that a client sees."""
    found: list[int] = []
    with av.open(url, options={**QUICK, "rtsp_transport": transport}, timeout=(10, 10)) as container:
        for frame in container.decode(video=0):
            found.append(number_of(luma(frame)))
            if len(found) == frames:
                break
    return found


def runs(numbers: list[int], length: int = 50) -> bool:
    """Whether each number follows the one before, round and round."""
    return all(b == (a + 1) % length for a, b in itertools.pairwise(numbers))


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    numbered(folder / "plain.mp4", frames=50)
    numbered(folder / "b.mkv", frames=50, b_frames=2, sound=True)
    numbered(folder / "hevc.mp4", frames=50, codec="libx265")
    return folder


def _packets(client: RtspClient, count: int) -> list[RtpPacket]:
    """The next RTP packets."""
    found: list[RtpPacket] = []
    while len(found) < count:
        received = (parse(r.data, r.arrived_s, None) for r in client.receive(1.0) if r.kind == "rtp")
        found += [packet for packet in received if packet is not None]
    return found


class TestRtsp:
    @pytest.fixture(autouse=True)
    def _system(self) -> None:
        need("gst-rtsp-server")

    @pytest.mark.parametrize("transport", ["tcp", "udp"])
    def test_plays_a_file(self, clips: Path, transport: str) -> None:
        with RtspServer({"cam": clips / "plain.mp4"}) as server:
            numbers = watch(server.url("cam"), 75, transport)
        assert numbers[0] == 0
        assert runs(numbers)

    def test_b_frames_sound_hevc_and_a_pattern(self, clips: Path) -> None:
        mounts = {
            "b": clips / "b.mkv",
            "mute": Play(clips / "b.mkv", sound=False),
            "hevc": clips / "hevc.mp4",
            "pattern": PatternSpec(),
        }
        with RtspServer(mounts) as server:
            for name, frames in (("b", 60), ("mute", 15), ("hevc", 15)):
                assert runs(watch(server.url(name), frames)), name
            for name, sounds in (("b", 1), ("mute", 0)):
                with av.open(server.url(name), options=QUICK, timeout=(10, 10)) as container:
                    assert len(container.streams.audio) == sounds
            assert len(watch(server.url("pattern"), 10)) == 10

    def test_two_clients_share_the_camera(self, clips: Path) -> None:
        """The second comes in at the next keyframe; alone it would see frame 0 first."""
        with (
            RtspServer({"cam": numbered(clips / "short_gop.mp4", frames=100, gop=10)}) as server,
            av.open(server.url("cam"), options=QUICK, timeout=(10, 10)) as first,
        ):
            frames = first.decode(video=0)
            assert [number_of(luma(next(frames))) for _ in range(20)] == list(range(20))
            numbers = watch(server.url("cam"), 5)
        assert runs(numbers, 100)
        assert numbers[0] > 0

    @pytest.mark.parametrize("auth", ["basic", "digest"])
    def test_password(self, clips: Path, auth: str) -> None:
        with RtspServer({"cam": clips / "plain.mp4"}, user="u", password=PASSWORD, auth=auth) as server:  # type: ignore[arg-type]
            assert runs(watch(server.url("cam"), 5))
            for url in (server.url("cam", credentials=False), server.url("cam", password="wrong")):
                with pytest.raises(av.error.HTTPUnauthorizedError):
                    watch(url, 1)

    def test_no_such_mount(self, clips: Path) -> None:
        with RtspServer({"cam": clips / "plain.mp4"}) as server, pytest.raises(av.error.HTTPNotFoundError):
            watch(server.url("cam2"), 1)

    def test_kill_and_restart_on_the_same_port(self, clips: Path) -> None:
        with RtspServer({"cam": clips / "plain.mp4"}, user="u", password="p") as server:
            url = server.url("cam")
            assert runs(watch(url, 25))
            server.kill()
            with pytest.raises(av.error.FFmpegError):
                watch(url, 1)
            server.restart()
            assert server.url("cam") == url
            assert runs(watch(url, 25))

    def test_what_happens_to_a_camera_that_is_on(self, clips: Path) -> None:
        """Nothing of it breaks the session, and the pictures go on by their numbers."""
        other = numbered(clips / "other.mp4", size=(96, 80), frames=50, gop=10, sound=True)
        clip = numbered(clips / "this.mp4", frames=50, gop=10, sound=True)
        with (
            RtspServer({"cam": Play(clip, other=other, always_on=True)}) as server,
            av.open(server.url("cam"), options=QUICK, timeout=(10, 10)) as container,
        ):
            seen: list[av.VideoFrame] = []
            for height in (64, 80, 64):
                for frame in container.decode(video=0):
                    seen.append(frame)
                    if frame.height == height:
                        break
                server.switch("cam")
            assert runs([number_of(luma(f)) for f in seen[1:]])

    def test_pictures_freeze_and_their_sound_goes_on(self, clips: Path) -> None:
        clip = numbered(clips / "sound.mp4", frames=50, gop=10, sound=True)
        with (
            RtspServer({"cam": Play(clip, always_on=True)}) as server,
            av.open(server.url("cam"), options=QUICK, timeout=(10, 10)) as container,
        ):
            packets = container.demux()
            list(itertools.islice(packets, 20))
            server.freeze_pictures("cam")
            kinds = [packet.stream.type for packet in itertools.islice(packets, 150)]
            assert kinds[-40:] == ["audio"] * 40  # earlier packets waited in FFmpeg
            server.thaw_pictures("cam")
            videos = (packet for packet in packets if packet.stream.type == "video")
            next(videos)  # the last one before, which FFmpeg hands out when the next begins
            assert next(videos).is_keyframe

    def test_a_camera_restarts_its_clock(self, clips: Path) -> None:
        clip = numbered(clips / "mute.mp4", frames=50, gop=10)
        stop = threading.Event()
        with (
            RtspServer({"cam": Play(clip, sound=False, always_on=True)}) as server,
            RtspClient(server.url("cam"), transport="tcp", stop=stop, limits=Timeouts()) as client,
        ):
            before = _packets(client, 20)
            server.restart_clock("cam")
            after = _packets(client, 40)
        assert len({p.ssrc for p in before}) == 1
        assert after[-1].ssrc != before[0].ssrc
        assert abs(after[-1].timestamp - before[-1].timestamp) > 60 * 90_000

    def test_freeze_and_thaw(self, clips: Path) -> None:
        with RtspServer({"cam": clips / "plain.mp4"}) as server:
            with av.open(server.url("cam"), options=QUICK, timeout=(10, 1)) as container:
                packets = container.demux(video=0)
                next(packets)
                server.freeze()
                with pytest.raises(av.error.ExitError):
                    sum(1 for _ in packets)
            server.thaw()
            numbers = watch(server.url("cam"), 25)
        assert runs(numbers)

    def test_a_broken_file_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "bad.mp4").write_bytes(b"no video")
        with pytest.raises(RuntimeError, match=r"bad\.mp4"), RtspServer({"cam": tmp_path / "bad.mp4"}):
            pass

    def test_dies_with_its_parent(self, clips: Path) -> None:
        """The parent kills itself, the server's stop does not keep it alive."""
        code = f"""
import os, signal, sys
from pathlib import Path
from tests.servers import RtspServer
server = RtspServer({{"cam": Path({str(clips / "plain.mp4")!r})}}).__enter__()
server.freeze()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
        root = Path(__file__).parents[2]
        out = subprocess.run([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, timeout=60).stdout
        assert _gone(int(out))


def _gone(pid: int) -> bool:
    """Whether the process ends within 5 s."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], 5)[0])
    finally:
        os.close(watched)


def test_silent_peer() -> None:
    with SilentPeer() as peer, socket.create_connection(("127.0.0.1", peer.port), 5) as client:
        assert peer.accepted.wait(5)
        client.sendall(b"OPTIONS * RTSP/1.0\r\n\r\n")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_full_backlog() -> None:
    with FullBacklog() as peer, pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", peer.port), 0.3)


def test_stopping_http(clips: Path) -> None:
    with StoppingHttp(clips / "plain.mp4", after=1000) as peer:
        with urllib.request.urlopen(peer.url, timeout=0.5) as answer:
            assert int(answer.headers["Content-Length"]) > 1000
            assert answer.read(1000) == (clips / "plain.mp4").read_bytes()[:1000]
            with pytest.raises(TimeoutError):
                answer.read(1)
        assert peer.stalled.is_set()


def test_http_files_play_and_seek(clips: Path) -> None:
    with HttpFiles(clips) as files:
        with av.open(files.url("plain.mp4"), timeout=(5, 5)) as container:
            assert runs([number_of(luma(f)) for f in container.decode(video=0)])
        asked = urllib.request.Request(files.url("plain.mp4"), headers={"Range": "bytes=10-19"})
        with urllib.request.urlopen(asked, timeout=5) as answer:
            assert answer.status == 206
            assert answer.read() == (clips / "plain.mp4").read_bytes()[10:20]
        assert files.requests[-1].span == "bytes=10-19"
        assert {r.path for r in files.requests} == {"/plain.mp4"}


def test_http_files_refuse(clips: Path) -> None:
    (clips.parent / "secret.txt").write_text("no")
    with HttpFiles(clips, answers={"/b.mkv": 403}, user="u", password="p") as files:
        for url, status in (
            (files.url("plain.mp4"), 401),
            (files.url("b.mkv", "u:p"), 403),
            (files.url("none.mp4", "u:p"), 404),
            (files.url("../secret.txt", "u:p"), 404),
        ):
            with pytest.raises(av.error.HTTPClientError), av.open(url, timeout=(5, 5)):
                pass
            assert files.requests[-1].status == status
        with av.open(files.url("plain.mp4", "u:p"), timeout=(5, 5)) as container:
            assert len(container.streams.video) == 1


def test_a_refusal_carries_its_code(clips: Path) -> None:
    with HttpFiles(clips, answers={"/gone": 404}) as files, pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(files.url("gone"), timeout=5)
    with caught.value as answer:
        assert answer.code == 404
