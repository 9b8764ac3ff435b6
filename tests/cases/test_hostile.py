"""Input that means harm: random bytes, headers that announce too much, bombs, playlists and redirects that lead astray.

Each must end with one line that names the fault, no signal, no hang, bounded memory, and nothing read that the source
has no right to.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import pytest

from tests.cases import bombs
from tests.cases.measured import Measured, measured
from tests.clips import level, numbered
from tests.command import PROBE
from tests.servers.peers import EndlessHttp, HttpFiles
from tests.sources.conftest import ffmpeg
from tests.system import need

pytestmark = [pytest.mark.field, pytest.mark.timeout(60)]
LIMIT_S = 30.0
PEAK_MB = 800.0
"""The process itself takes about 90; FFmpeg may ask for 512 in one piece."""
HUGE = 100_000
ONCE = ("--no-reconnect", "--open-timeout", "2", "--read-timeout", "2")
SECRET = "geheim"


def run(place: Path, source: str, *flags: str) -> Measured:
    """Run it in a process of its own: alive at the end, in time and in bounds."""
    ran = measured("run", source, *PROBE, *flags, "--jsonl", "-", cwd=place, limit_s=LIMIT_S)
    assert ran.done.code in (0, 1, 2), ran.done.err
    assert "Traceback" not in ran.done.err
    assert ran.peak_mb < PEAK_MB
    return ran


def refused(place: Path, source: str, *flags: str) -> str:
    """It cannot be read, which one line says."""
    ran = run(place, source, *flags)
    assert (ran.done.code, ran.done.out) == (2, ""), ran.done.err
    (line,) = (line for line in ran.done.errors() if not line.startswith(" ") and "could not be decoded" not in line)
    return line


def all_refused(place: Path, *sources: str, flags: tuple[str, ...] = ()) -> Measured:
    """None of them can be read, which is said of each."""
    ran = measured("run", *sources, *PROBE, *flags, "--jsonl", "-", cwd=place, limit_s=LIMIT_S)
    assert (ran.done.code, ran.done.out) == (2, ""), ran.done.err
    said = ran.done.errors()
    assert [source for source in sources if not any(source in line for line in said)] == []
    assert "Traceback" not in ran.done.err
    assert ran.peak_mb < PEAK_MB
    return ran


# Bytes of no kind.


def test_hostile_random_bytes(tmp_path: Path) -> None:
    names = [f"random.{k}" for k in ("mp4", "ts", "mkv", "avi", "h264", "m3u8", "jpg", "png", "gif", "webp")]
    for name in names:
        (tmp_path / name).write_bytes(random.Random(name).randbytes(300_000))
    ran = measured("run", *names, *PROBE, "--jsonl", "-", cwd=tmp_path, limit_s=LIMIT_S)
    assert ran.done.code in (1, 2), ran.done.err
    # Some of it may pass for a picture, which cannot be trusted then.
    assert all(line.get("cause") == "corrupt" for line in ran.done.lines)
    assert all(name in ran.done.err or name.split(".")[0] in ran.done.out for name in names)
    assert ran.peak_mb < PEAK_MB


def test_hostile_devices_that_never_end(tmp_path: Path) -> None:
    all_refused(tmp_path, "/dev/zero", "/dev/urandom", "/dev/null")


# Headers that announce too much.


def test_hostile_pictures_with_huge_headers(tmp_path: Path) -> None:
    """FFmpeg itself draws the line at 2^28 pixels or so, and takes a gigabyte before it."""
    nothing = zlib.compress(bytes(900))
    huge = {
        "16k.png": bombs.png(16_000, 16_000, nothing),
        "huge.png": bombs.png(HUGE, HUGE, nothing),
        "16k.gif": bombs.gif(16_000, 16_000),
        "huge.gif": bombs.gif(65_535, 65_535),
        "16k.bmp": bombs.bmp(16_000, 16_000),
        "huge.bmp": bombs.bmp(HUGE, HUGE),
        "16k.ppm": bombs.ppm(16_000, 16_000),
        "huge.ppm": bombs.ppm(HUGE, HUGE),
        "16k.jpg": bombs.jpeg(tmp_path / "made", 16_000, 16_000),
        "huge.jpg": bombs.jpeg(tmp_path / "made", 65_500, 65_500),
        "huge.h264": bombs.h264(HUGE, HUGE),
        "16k.h264": bombs.h264(16_384, 16_384),
    }
    for name, data in huge.items():
        (tmp_path / name).write_bytes(data)
    assert all_refused(tmp_path, *huge).peak_mb < 250


def test_hostile_a_video_of_huge_pictures_is_refused_with_its_size(tmp_path: Path) -> None:
    """Twenty of these, 200 MB each, would be on their way at once."""
    (tmp_path / "huge.h264").write_bytes(bombs.h264(8192, 8192))
    assert "8192x8192" in refused(tmp_path, "huge.h264")


def test_hostile_that_parameter_set_is_a_good_one_otherwise(tmp_path: Path) -> None:
    (tmp_path / "small.h264").write_bytes(bombs.h264(64, 64))
    ran = run(tmp_path, "small.h264")
    # Its pictures come out, though smeared: their slices were made by another one.
    assert [line["status"] for line in ran.done.lines] == ["dropped"] * 4


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_hostile_the_size_in_a_container_is_not_believed(suffix: str, tmp_path: Path) -> None:
    good = numbered(tmp_path / f"good{suffix}", frames=10)
    bad = tmp_path / f"bad{suffix}"
    bad.write_bytes(bombs.with_size(good, HUGE, HUGE))
    assert bad.read_bytes() != good.read_bytes()
    ran = run(tmp_path, bad.name)
    assert ran.done.code == 0
    assert [line["labels"][0]["id"] for line in ran.done.lines] == [level(n) for n in range(10)]
    assert ran.peak_mb < 200


# Bombs.


def test_hostile_a_picture_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    data = bombs.zeros(16_000 * 48_001)
    (tmp_path / "bomb.png").write_bytes(bombs.png(16_000, 16_000, data))
    assert "bomb.png" in refused(tmp_path, "bomb.png")


@pytest.mark.parametrize("suffix", ["png", "mp4"])
@pytest.mark.parametrize("part", [bombs.profile, bombs.comment])
def test_hostile_what_lies_beside_a_picture_unpacks_to_more_than_there_may_be(
    part: Callable[[bytes], bytes], suffix: str, tmp_path: Path
) -> None:
    """Read as a picture, and, by its name, as a video. A comment that is too long is left out by FFmpeg."""
    (tmp_path / f"bomb.{suffix}").write_bytes(bombs.small_png(part(bombs.zeros(600 << 20))))
    ran = run(tmp_path, f"bomb.{suffix}")
    assert ran.done.code == (2 if part is bombs.profile else 0), ran.done.err


@pytest.mark.parametrize("suffix", ["png", "mp4"])
def test_a_picture_with_a_colour_profile_is_read(suffix: str, tmp_path: Path) -> None:
    """PyAV's side data would take the process with it."""
    (tmp_path / f"good.{suffix}").write_bytes(bombs.small_png(bombs.profile(zlib.compress(b"profile" * 50))))
    ran = run(tmp_path, f"good.{suffix}")
    assert ran.done.code == 0, ran.done.err
    assert len(ran.done.lines) == 1


def test_hostile_a_folder_of_bombs_beside_good_pictures(tmp_path: Path) -> None:
    """Each is told and passed over; the good ones are all there."""
    folder = tmp_path / "photos"
    folder.mkdir()
    good = bombs.small_png(bombs.profile(zlib.compress(b"profile")))
    for k in range(3):
        (folder / f"{k}-good.png").write_bytes(good)
        (folder / f"{k}-huge.png").write_bytes(bombs.png(16_000, 16_000, zlib.compress(b"")))
    ran = run(tmp_path, "photos")
    assert ran.done.code == 1
    assert len(ran.done.lines) == 3
    assert all(f"{k}-huge.png" in ran.done.err for k in range(3))


# Playlists on the disk.


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clip, its segments and their playlist."""
    need("ffmpeg")
    folder = tmp_path_factory.mktemp("film")
    clip = numbered(folder / "num.ts", frames=100)
    ffmpeg("-i", clip, "-c", "copy", "-f", "hls", "-hls_time", 1, "-hls_list_size", 0, folder / "good.m3u8")
    numbered(folder / "num.mp4", frames=100)
    return folder


def playlist(*names: str) -> str:
    """A complete HLS playlist of segments of a second."""
    lines = [f"#EXTINF:1.0,\n{name}" for name in names]
    return "\n".join(["#EXTM3U", "#EXT-X-TARGETDURATION:1", *lines, "#EXT-X-ENDLIST", ""])


def joined(*names: str) -> str:
    """An ffconcat list."""
    return "".join(["ffconcat version 1.0\n", *(f"file '{name}'\n" for name in names)])


class TestLocalPlaylists:
    @pytest.mark.parametrize("names", [("good0.ts", "good1.ts"), ("{folder}/good0.ts", "file://{folder}/good1.ts")])
    def test_hostile_none_of_a_local_playlist_of_local_files(self, names: tuple[str, ...], film: Path, tmp_path: Path) -> None:
        mine = film / f"{tmp_path.name}.m3u8"
        mine.write_text(playlist(*(name.format(folder=film) for name in names)))
        assert len(run(film, mine.name).done.lines) == 50

    def test_a_list_of_files_beside_it(self, film: Path) -> None:
        (film / "twice.ffconcat").write_text(joined("num.mp4", "num.mp4"))
        assert len(run(film, "twice.ffconcat").done.lines) == 200

    @pytest.mark.parametrize("name", ["x.m3u8", "x.ffconcat", "x.mp4", "x.jpg"])
    @pytest.mark.parametrize("form", [playlist, joined])
    def test_hostile_the_network_is_not_asked(self, form: Callable[..., str], name: str, film: Path, tmp_path: Path) -> None:
        """With any name; and half of the file is never shown as the whole."""
        with HttpFiles(film) as server:
            (tmp_path / name).write_text(form("num.ts", server.url("num.ts")))
            (tmp_path / "num.ts").write_bytes((film / "num.ts").read_bytes())
            said = refused(tmp_path, name)
            assert server.requests == []
        assert name in said

    @pytest.mark.parametrize("tag", ['#EXT-X-MAP:URI="{url}"', '#EXT-X-KEY:METHOD=AES-128,URI="{url}"'])
    def test_hostile_nor_for_keys(self, tag: str, film: Path) -> None:
        with HttpFiles(film) as server:
            text = playlist("good0.ts").replace("#EXTINF", tag.format(url=server.url("num.ts", f"u:{SECRET}")) + "\n#EXTINF")
            (film / "key.m3u8").write_text(text)
            said = refused(film, "key.m3u8")
            assert server.requests == []
        assert "on the disk only" in said
        assert SECRET not in said

    def test_hostile_a_list_within_a_list(self, film: Path) -> None:
        (film / "inner.m3u8").write_text(playlist("http://127.0.0.1:9/num.ts"))
        (film / "outer.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\ninner.m3u8\n")
        assert "'inner.m3u8' names 'http://127.0.0.1:9/num.ts'" in refused(film, "outer.m3u8")

    def test_hostile_a_list_that_names_itself(self, film: Path) -> None:
        (film / "self.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nself.m3u8\n")
        assert "self.m3u8" in refused(film, "self.m3u8")

    def test_hostile_an_ffconcat_list_reaches_no_other_folder(self, film: Path) -> None:
        lists = {"a.ffconcat": f"{film}/num.mp4", "b.ffconcat": "../num.mp4", "c.ffconcat": "file:num.mp4"}
        for name, target in lists.items():
            (film / name).write_text(joined(target))
        assert all_refused(film, *lists).done.err.count("beside it") == 3

    def test_a_segment_that_is_not_there(self, film: Path) -> None:
        (film / "hole.m3u8").write_text(playlist("good0.ts", "nope.ts", "good1.ts"))
        assert "'nope.ts': there is no such file" in refused(film, "hole.m3u8")

    def test_hostile_a_session_description_listens_to_nobody(self, tmp_path: Path) -> None:
        (tmp_path / "cam.sdp").write_text(SDP)
        assert "cam.sdp" in refused(tmp_path, "cam.sdp")

    def test_hostile_the_sound_does_not_go_to_the_network_either(self, tmp_path: Path) -> None:
        """It is read by itself, for the annotated video."""
        numbered(tmp_path / "num.ts", frames=25, sound=True)
        with HttpFiles(tmp_path) as server:
            (tmp_path / "x.m3u8").write_text(playlist("num.ts"))
            assert len(run(tmp_path, "x.m3u8", "-o", "out.mp4").done.lines) == 25
            assert server.requests == []
        with av.open(str(tmp_path / "out.mp4")) as video:
            assert len(video.streams.audio) == 1


SDP = """v=0\r
o=- 0 0 IN IP4 127.0.0.1\r
s=x\r
c=IN IP4 127.0.0.1\r
t=0 0\r
m=video 5004 RTP/AVP 96\r
a=rtpmap:96 H264/90000\r
"""

# Input from the network.


class TestFromTheNetwork:
    """A clip with a hundred good pictures lies on this machine's disk; none of it may be shown."""

    @pytest.fixture
    def served(self, film: Path, tmp_path: Path) -> Iterator[HttpFiles]:
        (tmp_path / "good0.ts").write_bytes((film / "good0.ts").read_bytes())
        (tmp_path / "num.mp4").write_bytes((film / "num.mp4").read_bytes())
        with HttpFiles(tmp_path) as server:
            yield server

    def test_hostile_a_playlist_reads_no_file_of_this_machine(self, film: Path, served: HttpFiles) -> None:
        good = playlist("good0.ts")
        texts = [
            *(playlist(form + str(film / "good0.ts")) for form in ("", "file:", "file://", "crypto:file://", "concat:")),
            playlist(f"subfile,,start,0,end,0,,:{film}/good0.ts"),
            good.replace("#EXTINF", f'#EXT-X-MAP:URI="file://{film}/num.mp4"\n#EXTINF'),
            good.replace("#EXTINF", f'#EXT-X-KEY:METHOD=AES-128,URI="file://{film}/num.ts"\n#EXTINF'),
            f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nfile://{film}/good.m3u8\n",
            *(joined(form + str(film / "num.mp4")) for form in ("", "file:", "file://")),
            SDP,
        ]
        for k, text in enumerate(texts):
            (served.folder / f"{k}.m3u8").write_text(text)
        all_refused(served.folder, *(served.url(f"{k}.m3u8") for k in range(len(texts))), flags=ONCE)

    def test_hostile_a_playlist_that_names_itself_ends_with_the_limit(self, served: HttpFiles) -> None:
        (served.folder / "self.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nself.m3u8\n")
        assert "self.m3u8" in refused(served.folder, served.url("self.m3u8"), *ONCE)

    def test_a_playlist_of_the_same_server_is_read(self, film: Path) -> None:
        with HttpFiles(film) as server:
            assert len(run(film, server.url("good.m3u8"), *ONCE).done.lines) == 100

    def test_hostile_a_redirect_leads_to_http_only(self, film: Path, served: HttpFiles) -> None:
        places = [
            f"file://{film}/num.mp4",
            f"file:{film}/num.mp4",
            f"{film}/num.mp4",
            f"concat:{film}/num.ts",
            "rtsp://127.0.0.1:9/x",
            "gopher://127.0.0.1:9/x",
            "data:video/mp2t;base64,AAAA",
            "/7.mp4",
        ]
        served.moved.update({f"/{k}.mp4": place for k, place in enumerate(places)})
        all_refused(served.folder, *(served.url(f"{k}.mp4") for k in range(len(places))), flags=ONCE)

    def test_a_redirect_to_http_is_followed(self, served: HttpFiles) -> None:
        served.moved["/away.mp4"] = served.url("num.mp4")
        assert len(run(served.folder, served.url("away.mp4"), *ONCE).done.lines) == 100

    def test_hostile_answers_that_never_end(self, tmp_path: Path) -> None:
        """Looking whether it has an end and opening it take no longer than --open-timeout each."""
        boxes = b"\x00\x00\x00\x18ftypisom\0\0\0\0isomisom"
        with EndlessHttp(b"", bytes(1 << 16)) as zeros, EndlessHttp(boxes, b"\0\0\0\x10free12345678" * 4096) as free:
            all_refused(tmp_path, zeros.url("x.mp4"), free.url("x.mp4"), flags=ONCE)
