"""Errors of sources that cannot be opened: one line with the given address, without its password; permanent or not."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.redact import redact_url
from pipelines.sources.files.file import FileSource, check_file
from pipelines.sources.files.images import ImagesSource
from pipelines.sources.network import NetworkSource, has_end, speaks
from pipelines.sources.opening import Timeouts
from pipelines.sources.source import Source
from pipelines.sources.webcam import WebcamSource
from samples import FOLDER
from tests.clips import numbered
from tests.servers import Play, RtspServer
from tests.servers.peers import HttpFiles
from tests.sources.conftest import ffmpeg
from tests.sources.play import READERS, RecordingWatch, camera, descriptors, everything
from tests.system import need

pytestmark = pytest.mark.timeout(60)
QUICK = Timeouts(5, 5)
SECRET = "geh3im"


def _refused(source: Source) -> SourceError:
    """The error of a source that cannot be opened; the attempt leaves no open resources."""
    before = descriptors()
    with pytest.raises(SourceError) as caught:
        everything(source)
    assert descriptors() == before
    assert len(str(caught.value).splitlines()) == 1
    assert SECRET not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    return caught.value


def _closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class TestFiles:
    @staticmethod
    def _make(kind: str, folder: Path) -> Path:
        path = folder / f"{kind} 100%.mp4"
        if kind == "empty":
            path.touch()
        elif kind == "text":
            path.write_text("root:x:0:0\n" * 50)
        elif kind == "folder":
            path.mkdir()
        elif kind == "no moov":
            whole = numbered(folder / "whole.mp4", frames=50).read_bytes()
            path.write_bytes(whole[: len(whole) * 6 // 10])
        elif kind == "no frames":
            ffmpeg("-f", "lavfi", "-i", "testsrc2=d=1", "-frames:v", "0", path)
        elif kind == "sound":
            ffmpeg("-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac", path)
        elif kind == "noise":
            path.write_bytes(bytes(k * 7919 % 251 for k in range(20000)))
        return path

    @pytest.mark.parametrize(
        ("kind", "why"),
        [
            ("missing", "No such file"),
            ("empty", ""),
            ("text", ""),
            ("folder", "director"),
            ("no moov", "moov"),
            ("no frames", ""),
            ("sound", "no video stream"),
            ("noise", ""),
        ],
    )
    def test_that_are_no_video(self, kind: str, why: str, tmp_path: Path) -> None:
        path = self._make(kind, tmp_path)
        error = _refused(FileSource(path, limits=QUICK))
        assert error.permanent
        assert path.name in str(error)
        assert why in str(error)
        if kind == "folder":
            return
        with pytest.raises(SourceError, match=path.name) as caught:
            check_file(path)
        assert caught.value.permanent

    def test_without_the_right_to_read(self, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The tests may run as root, with the right to read every file: the refusal is simulated."""
        import av

        def refuse(*_: object, **__: object) -> None:
            raise av.error.PermissionError(13, "Permission denied", str(clips))

        monkeypatch.setattr("pipelines.sources.opening.av.open", refuse)
        error = _refused(FileSource(clips / "num.mp4"))
        assert "num.mp4" in str(error)
        assert "ermission" in str(error)
        assert error.permanent

    def test_a_playlist_on_the_disk_reads_nothing_from_the_network(self, clips: Path, tmp_path: Path) -> None:
        with HttpFiles(clips) as peer:
            (tmp_path / "list.m3u8").write_text(f"#EXTM3U\n#EXTINF:4,\n{peer.url('num.mp4')}\n#EXT-X-ENDLIST\n")
            with pytest.raises(SourceError):
                everything(FileSource(tmp_path / "list.m3u8"))
            assert peer.requests == []

    def test_a_playlist_from_the_network_reads_nothing_from_the_disk(self, clips: Path, tmp_path: Path) -> None:
        (tmp_path / "list.m3u8").write_text(f"#EXTM3U\n#EXTINF:4,\nfile://{clips / 'num.mp4'}\n#EXT-X-ENDLIST\n")
        with HttpFiles(tmp_path) as peer, pytest.raises(SourceError):
            everything(NetworkSource(peer.url("list.m3u8"), live=False, limits=QUICK))

    def test_an_address_in_a_file_s_name_is_a_name(self, tmp_path: Path) -> None:
        error = _refused(FileSource(tmp_path / f"rtsp:user:{SECRET[::-1]}@host.mp4"))
        assert "No such file" in str(error)


class TestServers:
    @pytest.mark.parametrize(("status", "denied"), [(401, True), (403, True), (404, False)])
    @pytest.mark.parametrize("live", [True, False])
    def test_that_refuse(self, status: int, denied: bool, live: bool, clips: Path) -> None:
        with HttpFiles(clips, answers={"/num.mp4": status}) as peer:
            source = NetworkSource(peer.url("num.mp4", f"user:{SECRET}") + f"?token={SECRET}&n=7", live=live, limits=QUICK)
            with pytest.raises(SourceError) as caught:
                everything(source)
            error = caught.value
        assert (error.permanent, error.denied) == (True, denied)
        assert str(status) in str(error)
        assert f"127.0.0.1:{peer.port}/num.mp4" in str(error)
        assert "n=7" in str(error)
        assert SECRET not in str(error)
        assert len(str(error).splitlines()) == 1

    @pytest.mark.parametrize("status", [500, 503])
    def test_that_are_in_trouble_are_tried_again(self, status: int, clips: Path) -> None:
        with HttpFiles(clips, answers={"/num.mp4": status}) as peer, pytest.raises(SourceError) as caught:
            everything(NetworkSource(peer.url("num.mp4"), live=True, limits=QUICK))
        assert not caught.value.permanent

    def test_a_password_that_is_right(self, clips: Path) -> None:
        with HttpFiles(clips, user="u", password="p@s#s:w/%^!") as peer:
            url = peer.url("num.mp4", "u:p%40s%23s%3Aw%2F%25%5E%21")
            assert len(everything(NetworkSource(url, live=False, limits=QUICK))) == 100

    def test_a_live_stream_that_ends(self, clips: Path) -> None:
        clip = numbered(clips / "ends.ts", frames=30)
        with HttpFiles(clips) as peer:
            url = peer.url(clip.name, f"u:{SECRET}")
            with pytest.raises(SourceError, match="ended the stream") as caught:
                everything(NetworkSource(url, live=True, limits=QUICK))
        assert not caught.value.permanent
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("scheme", ["rtsp native", "rtsp ffmpeg", "http", "tcp"])
    def test_nobody_listens(self, scheme: str) -> None:
        url = f"{scheme.split()[0]}://user:{SECRET}@127.0.0.1:{_closed_port()}/cam"
        error = _refused(_live(scheme, url))
        assert not error.permanent
        assert "127.0.0.1" in str(error)
        assert "refused" in str(error)

    @pytest.mark.parametrize("scheme", ["rtsp native", "rtsp ffmpeg", "http", "tcp"])
    def test_a_host_that_nobody_knows(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(host: str, *_: object, **__: object) -> None:
            assert host == "camera.invalid"
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        url = f"{scheme.split()[0]}://user:{SECRET}@camera.invalid/cam"
        error = _refused(_live(scheme, url))
        assert error.permanent
        assert "'camera.invalid' is not known" in str(error)

    @pytest.mark.parametrize("client", ["native", "ffmpeg"])
    def test_a_name_server_that_does_not_answer_is_asked_again(self, client: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def silent(*_: object, **__: object) -> None:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

        monkeypatch.setattr(socket, "getaddrinfo", silent)
        assert not _refused(camera("rtsp://camera.invalid/cam", f"{client} tcp")).permanent

    def test_a_scheme_that_nobody_knows(self) -> None:
        error = _refused(NetworkSource(f"gopher+x://u:{SECRET}@127.0.0.1/cam", live=True))
        assert error.permanent
        assert "protocol" in str(error)

    def test_a_page_in_place_of_a_stream(self, clips: Path) -> None:
        (clips / "page.mp4").write_text("<html><body>Log in, please</body></html>\n" * 20)
        with HttpFiles(clips) as peer, pytest.raises(SourceError) as caught:
            everything(NetworkSource(peer.url("page.mp4"), live=True, limits=QUICK))
        assert "page.mp4" in str(caught.value)
        assert not caught.value.permanent

    def test_what_has_an_end(self, clips: Path) -> None:
        stop = threading.Event()
        with HttpFiles(clips, answers={"/gone.mp4": 404}) as peer:
            assert has_end(peer.url("num.mp4"), QUICK, stop)
            with pytest.raises(SourceError, match="404"):
                has_end(peer.url("gone.mp4"), QUICK, stop)
        with pytest.raises(SourceError, match="refused"):
            has_end(f"http://127.0.0.1:{_closed_port()}/num.mp4", QUICK, stop)


def _live(kind: str, url: str) -> Source:
    scheme, _, client = kind.partition(" ")
    return camera(url, f"{client} tcp") if scheme == "rtsp" else NetworkSource(url, live=True)


class TestRtsp:
    @pytest.mark.parametrize("reader", READERS)
    @pytest.mark.parametrize("auth", ["basic", "digest"])
    def test_a_wrong_password_a_wrong_name_and_a_camera_that_goes(self, clips: Path, auth: str, reader: str) -> None:
        need("gst-rtsp-server")
        mounts = {"cam": Play(clips / "num.mp4", sound=False)}
        with RtspServer(mounts, user="viewer", password="right", auth=auth) as server:  # type: ignore[arg-type]
            wrong = _refused(camera(server.url("cam", password=SECRET), reader, QUICK))
            assert (wrong.permanent, wrong.denied) == (True, True)
            assert "401" in str(wrong)
            nobody = _refused(camera(server.url("cam", credentials=False), reader, QUICK))
            assert nobody.denied
            absent = _refused(camera(server.url("nosuch"), reader, QUICK))
            assert (absent.permanent, absent.denied) == (True, False)
            assert "404" in str(absent)
            assert "right" not in str(absent)
            frames = camera(server.url("cam"), reader, QUICK).frames(threading.Event(), RecordingWatch())
            next(frames)
            server.kill()
            with pytest.raises(SourceError) as caught:
                list(frames)
        assert not caught.value.permanent
        assert "right" not in str(caught.value)

    @pytest.mark.parametrize("reader", READERS)
    def test_a_camera_without_video(self, reader: str) -> None:
        need("gst-rtsp-server")
        from tests.servers import PatternSpec

        sound = PatternSpec(line="audiotestsrc is-live=true ! alawenc ! rtppcmapay name=pay0 pt=8")
        with RtspServer({"cam": sound}) as server:
            assert "no video stream" in str(_refused(camera(server.url("cam"), reader, QUICK)))


class TestOthers:
    def test_a_camera_at_this_machine_that_is_not_there(self) -> None:
        error = _refused(WebcamSource(Path("/dev/video97")))
        assert error.permanent
        assert "/dev/video97" in str(error)

    @pytest.mark.parametrize("content", [b"", b"no picture", None])
    def test_a_picture_that_is_none_is_told_and_passed_over(self, content: bytes | None, clips: Path, tmp_path: Path) -> None:
        bad = tmp_path / "bad.png"
        if content is not None:
            bad.write_bytes(content)
        reports = RecordingWatch()
        good = clips / "num/0.png"
        assert len(everything(ImagesSource([good, bad, good]), reports)) == 2
        assert len(reports.decode_errors) == len(reports.faults) == 1
        assert str(bad) in reports.faults[0]
        assert len(reports.faults[0].splitlines()) == 1

    @pytest.mark.parametrize("behind", [b"", b"\0" * 100, b"a film of a phone"])
    def test_a_picture_that_was_cut_off_is_shown_and_told(self, behind: bytes, tmp_path: Path) -> None:
        """FFmpeg fills the rest with grey without an error. Data behind the end marker are not a truncation."""
        whole = (FOLDER / "photos/home.jpg").read_bytes()
        good, cut = tmp_path / "good.jpg", tmp_path / "cut.jpg"
        good.write_bytes(whole + behind)
        cut.write_bytes(whole[:8000])
        reports = RecordingWatch()
        assert len(everything(ImagesSource([good]), reports)) == 1
        assert reports.faults == []
        assert len(everything(ImagesSource([cut]), reports)) == 1
        assert reports.faults == [f"'{cut}' is truncated: its picture has no end; the rest was read"]


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("rtsp://u:p@host:554/a?x=1", "rtsp://***@host:554/a?x=1"),
        ("rtsp://u:p@ss/w#rd@host/a", "rtsp://***@host/a"),
        ("http://host/a?user=joe&PASSWORD=x&n=1&token=", "http://host/a?user=***&PASSWORD=***&n=1&token="),
        ("http://host/a#frag", "http://host/a"),
        ("/tmp/a b@c.mp4", "/tmp/a b@c.mp4"),
        ("rtsp://[::1]:554/a", "rtsp://[::1]:554/a"),
        ("rtsp://u:p@[broken/a", "rtsp://***@[broken/a"),
    ],
)
def test_addresses_as_they_are_shown(address: str, wanted: str) -> None:
    assert redact_url(address) == wanted


def test_what_this_ffmpeg_speaks() -> None:
    """Without a connection; the names of ffmpeg's own list are of another build."""
    assert [s for s in ("http", "https", "tcp", "udp", "rtmp") if not speaks(s)] == []
    assert not speaks("gopher+x")
