"""Misleading files: wrong headers, cut off, growing, odd names, no video at all; and the end of a stream."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import numpy as np
import pytest
from rich.console import Console

from app.terminal.console import RunScreen
from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.sources.files.file import FileSource
from pipelines.sources.files.truncation import cut_short
from pipelines.sources.opening import Timeouts
from tests.cases.whole_run import Ran, run
from tests.clips import level, lumas, numbered
from tests.command import PROBE, WATCHLINE, environ, finished, read_lines, values, watchline
from tests.sources.conftest import ffmpeg
from tests.sources.play import Player, RecordingWatch, Transmitter, everything, numbers
from tests.system import need

pytestmark = [pytest.mark.field, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """F0, with sound."""
    clip = tmp_path_factory.mktemp("base") / "base.mp4"
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "sine=d=4",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=320x240:r=25:d=4",
        "-c:v",
        "libx264",
        "-pix_fmt",
        "yuv420p",
        "-g",
        25,
        "-c:a",
        "aac",
        clip,
    )
    return clip


def decodable(path: Path) -> int:
    """Frames that ffprobe decodes."""
    need("ffprobe")
    command = ["ffprobe", "-v", "quiet", "-count_frames", "-select_streams", "v", "-show_entries", "stream=nb_read_frames"]
    done = subprocess.run([*command, "-of", "csv=p=0", str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout.split(",")[0].split()[0])


# C09. Headers that lie about the number of frames.


@pytest.mark.parametrize("lie", [0, 3, 255, 2**31 - 1])
def test_c09_the_number_in_the_header_is_not_believed(lie: int, base: Path, tmp_path: Path) -> None:
    clip = tmp_path / "b.avi"
    ffmpeg("-i", base, "-an", "-c:v", "mpeg4", clip)
    data = bytearray(clip.read_bytes())
    for at in (48, 140):  # dwTotalFrames, dwLength
        assert int.from_bytes(data[at : at + 4], "little") == 100
        data[at : at + 4] = lie.to_bytes(4, "little")
    clip.write_bytes(data)
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    assert len(ran.lines) == ran.stream["shown"] == len(ran.video().times) == 100


def test_c09_what_a_copy_cut_in_the_middle_shows(base: Path, tmp_path: Path) -> None:
    """Its header counts the pictures before the cut too, which no player shows."""
    clip = tmp_path / "cut.mp4"
    ffmpeg("-ss", 1.3, "-i", base, "-c", "copy", clip)
    with av.open(str(clip)) as container:
        assert container.streams.video[0].frames > decodable(clip)
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    assert len(ran.lines) == ran.stream["shown"] == decodable(clip)


@pytest.mark.parametrize("announced", [3, 10, 1000])
def test_c09_no_bar_passes_its_end(announced: int) -> None:
    monitor = LatencyMonitor(0.05)
    ledger = monitor.open("clip", live=False)
    ledger.expected = announced
    for _ in range(10):
        ledger.capture(0.0)
        ledger.failed += 1
    screen = RunScreen(Console(force_terminal=True), monitor, quiet=False)
    screen._drawn()
    (task,) = screen._progress.tasks
    assert task.total == max(announced, 10)
    assert task.percentage <= 100
    ledger.ended = True
    screen._drawn()
    assert task.percentage == 100


# C37. Files that were cut off.

CONTAINERS: dict[str, list[object]] = {
    "mp4": ["-c", "copy", "-movflags", "+faststart"],
    "mov": ["-an", "-c:v", "mjpeg", "-movflags", "+faststart"],
    "frag.mp4": ["-c", "copy", "-movflags", "+frag_keyframe+empty_moov"],
    "mkv": ["-c", "copy"],
    "live.mkv": ["-c", "copy", "-live", 1],
    "webm": ["-an", "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", 8],
    "avi": ["-c:v", "mpeg4", "-c:a", "mp2"],
    "ts": ["-c", "copy"],
    "m2ts": ["-c", "copy"],
    "flv": ["-c", "copy"],
    "ogv": ["-an", "-c:v", "libtheora"],
    "ivf": ["-an", "-c:v", "libvpx", "-deadline", "realtime"],
    "mpg": ["-c:v", "mpeg2video", "-c:a", "mp2"],
    "mjpeg": ["-an", "-c:v", "mjpeg"],
}


def _whole(kind: str, base: Path, folder: Path) -> Path:
    clip = folder / f"whole.{kind}"
    ffmpeg("-i", base, *CONTAINERS[kind], clip)
    return clip


def _cut(clip: Path, share: float = 0.6) -> Path:
    """The first part of a file. Not at the border of a transport packet: that cannot be seen."""
    count = int(clip.stat().st_size * share)
    cut = clip.with_name(clip.name.replace("whole", "cut"))
    cut.write_bytes(clip.read_bytes()[: count + (count % 188 == 0) + (count % 192 == 0)])
    return cut


@pytest.mark.parametrize("kind", CONTAINERS)
def test_c37_a_file_that_was_cut_off_is_called_truncated(kind: str, base: Path, tmp_path: Path) -> None:
    """All whole pictures are shown, the output is finished, the run ends with 1."""
    whole = _whole(kind, base, tmp_path)
    good = {round(25 * (c.pts_s or 0)): c for c in everything(FileSource(whole))}
    cut = _cut(whole)
    ran = run(cut, tmp_path / "out")
    assert ran.done.code == 1, ran.done.err
    (error,) = ran.stream["errors"]
    assert f"'{cut}' is truncated" in error
    assert error in ran.done.err
    shown = sum(k["status"] == "ok" for k in ran.lines)
    assert 30 < decodable(cut) - 3 <= shown <= decodable(cut)
    assert len(ran.video().times) == shown
    trusted = {round(25 * (c.pts_s or 0)): c for c in everything(FileSource(cut)) if not c.corrupt}
    assert [k for k, c in trusted.items() if _differs(c, good[k])] == []


def test_c37_results_are_as_many_as_can_be_decoded(base: Path, tmp_path: Path) -> None:
    cut = _cut(_whole("mp4", base, tmp_path))
    ran = run(cut, tmp_path / "out")
    assert len(ran.lines) == ran.stream["shown"] == len(ran.video().times) == decodable(cut)


def test_c37_of_a_transport_stream_all_but_the_last_picture_is_good(tmp_path: Path) -> None:
    data = numbered(tmp_path / "whole.ts", frames=50).read_bytes()
    (tmp_path / "cut.ts").write_bytes(data[: len(data) // 2])
    ran = run(tmp_path / "cut.ts", tmp_path / "out")
    assert ran.done.code == 1
    assert 20 < len(ran.lines) < 50
    assert ran.numbers == [*range(len(ran.lines) - 1), None]
    assert ran.lines[-1]["cause"] == "corrupt"


@pytest.mark.parametrize("way", ["noise", "zeros", "cut out", "packets cut out"])
@pytest.mark.parametrize("kind", ["ts", "m2ts"])
def test_c37_what_a_damaged_transport_stream_has_lost_is_said(kind: str, way: str, tmp_path: Path) -> None:
    """FFmpeg finds its way back without a word: no error, no flag."""
    clip, length = tmp_path / f"whole.{kind}", 188 if kind == "ts" else 192
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=2", "-c:v", "libx264", "-g", 12, clip)
    data = clip.read_bytes()
    begin, end = len(data) // 3, len(data) // 2
    if way == "packets cut out":
        # An odd number of them: their counters may else fit by chance, 16 to a round.
        begin -= begin % length
        end = begin + 81 * length
    inside = {"noise": np.random.default_rng(1).bytes(end - begin), "zeros": bytes(end - begin)}.get(way, b"")
    clip.write_bytes(data[:begin] + inside + data[end:])
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 1, ran.done.err
    (error,) = ran.stream["errors"]
    found = re.search(r"is damaged: about (0\.\d\d) s of video are missing at (0\.\d\d) s$", error)
    assert found is not None, error
    assert float(found[1]) == pytest.approx((50 - len(ran.lines)) / 25, abs=0.1)
    assert 0.4 < float(found[2]) < 0.7


@pytest.mark.parametrize("sound", [False, True])
def test_c37_a_pause_in_a_transport_stream_is_no_damage(sound: bool, tmp_path: Path) -> None:
    times = [k / 25 + (0.6 if k >= 20 else 0) + (3 if k >= 40 else 0) for k in range(60)]
    made = numbered(tmp_path / "pause.mp4", frames=60, times=[round(t, 3) for t in times], sound=sound)
    ffmpeg("-i", made, "-c", "copy", tmp_path / "pause.ts")
    reports = RecordingWatch()
    assert len(everything(FileSource(tmp_path / "pause.ts"), reports)) == 60
    assert reports.faults == []


def _differs(one: Capture, other: Capture) -> bool:
    return bool(np.abs(one.picture.y.astype(int) - other.picture.y).max() > 2)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_c37_a_whole_file_is_not_called_truncated(kind: str, base: Path, tmp_path: Path) -> None:
    reports = RecordingWatch()
    assert len(everything(FileSource(_whole(kind, base, tmp_path)), reports)) == 100
    assert reports.faults == []


@pytest.mark.parametrize("kind", ["mp4", "frag.mp4", "mkv", "live.mkv", "avi", "ts", "flv", "ogv"])
def test_c37_junk_behind_the_end_is_no_cut(kind: str, base: Path, tmp_path: Path) -> None:
    """Some recorders fill up a block. Only a part that seems to go on counts."""
    clip = _whole(kind, base, tmp_path)
    assert cut_short(clip) is None
    if kind in ("mp4", "frag.mp4", "avi", "ts"):
        clip.write_bytes(clip.read_bytes() + bytes(100))
        assert cut_short(clip) is None


def test_c37_bytes_that_only_begin_like_a_container(tmp_path: Path) -> None:
    """Nothing is read beyond the end, and nothing takes long."""
    rng = np.random.default_rng(7)
    heads = (b"\0\0\0\x08mdat", b"\0\0\0\x01mdat", b"\x1a\x45\xdf\xa3", b"RIFF....AVI ", b"FLV", b"OggS", b"\xff\xd8\xff", b"G")
    began_s = time.monotonic()
    for head in heads:
        for length in (0, 1, 7, 30, 200, 5000):
            for fill in (bytes(length), b"\xff" * length, rng.bytes(length), head * (length // len(head))):
                (tmp_path / "x").write_bytes(head + fill)
                cut_short(tmp_path / "x")
    assert time.monotonic() - began_s < 10


def test_c37_empty_boxes_without_end_do_not_take_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "boxes.mp4"
    path.write_bytes(b"\0\0\0\x08free" * 1_000_000)
    began_s = time.monotonic()
    with pytest.raises(SourceError):
        everything(FileSource(path))
    assert time.monotonic() - began_s < 5


def test_c37_a_recording_without_its_index(base: Path, tmp_path: Path) -> None:
    cut = tmp_path / "nomoov.mp4"
    cut.write_bytes(base.read_bytes()[: base.stat().st_size * 6 // 10])
    began_s = time.monotonic()
    ran = run(cut, tmp_path / "out")
    assert time.monotonic() - began_s < 2
    assert ran.done.code == 2
    (line,) = ran.done.errors()
    assert all(word in line for word in ("nomoov.mp4", "moov", "incomplete")), line
    assert list((tmp_path / "out").iterdir()) == []


def test_c37_a_truncated_file_in_a_loop_says_so_once(base: Path, tmp_path: Path) -> None:
    cut = _cut(_whole("mp4", base, tmp_path))
    ran = run(cut, tmp_path / "out", "--loop", "--max-frames", "200")
    assert ran.done.code == 1
    assert len(ran.stream["errors"]) == 1
    assert len(ran.lines) == 200


def test_c37_beside_others(base: Path, tmp_path: Path) -> None:
    cut = _cut(_whole("mp4", base, tmp_path))
    done = watchline("run", str(cut), str(base), *PROBE, "--jsonl", "-")
    assert done.code == 1
    assert sum(k["stream"] == "base" for k in done.lines) == 100


def test_c37_frames_inside_the_decoder_come_out_where_a_file_breaks_off(tmp_path: Path) -> None:
    """A length that is damaged: FFmpeg gives up. Frame threads hold pictures back until then."""
    clip = numbered(tmp_path / "b.ivf", codec="libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8", "crf": "10"})
    with av.open(str(clip)) as container:
        at = [p.pos for p in container.demux(video=0) if p.size][60]
    assert at is not None
    data = bytearray(clip.read_bytes())
    data[at : at + 4] = b"\xff\xff\xff\xff"
    clip.write_bytes(data)
    with Player(FileSource(clip, threads=4)) as player:
        player.until_ended()
    assert "is damaged: the rest of it cannot be read" in str(player.error)
    assert player.reports.decode_errors == []
    assert numbers(player.captures) == list(range(60))


# Hostile input: a file that changes while it is read.


def _grown(kind: str, base: Path, folder: Path, more: Callable[[Path, bytes], None]) -> tuple[list[Capture], RecordingWatch]:
    """Read half a file; `more` changes it after the first picture."""
    whole = _whole(kind, base, folder)
    data = whole.read_bytes()
    clip = folder / f"grows.{kind}"
    clip.write_bytes(data[: len(data) // 2])
    reports, captures = RecordingWatch(), []
    for capture in FileSource(clip).frames(threading.Event(), reports):
        if not captures:
            more(clip, data[len(data) // 2 :])
        captures.append(capture)
    return captures, reports


@pytest.mark.parametrize("kind", ["mp4", "frag.mp4", "live.mkv", "ts", "flv", "avi"])
def test_hostile_a_file_that_grows_ends_where_it_ended_when_it_was_opened(kind: str, base: Path, tmp_path: Path) -> None:
    def append(path: Path, rest: bytes) -> None:
        with path.open("ab") as file:
            file.write(rest * 3)

    captures, reports = _grown(kind, base, tmp_path, append)
    assert 20 < len(captures) < 75
    (fault,) = reports.faults
    assert "was still being written" in fault


def test_hostile_a_writer_that_is_faster_than_we_are_does_not_keep_us_for_ever(base: Path, tmp_path: Path) -> None:
    """More comes with every picture that is read."""
    whole = _whole("ts", base, tmp_path)
    clip = tmp_path / "grows.ts"
    clip.write_bytes(whole.read_bytes())
    reports, count = RecordingWatch(), 0
    with clip.open("ab") as file:
        for _ in FileSource(clip).frames(threading.Event(), reports):
            count += 1
            file.write(whole.read_bytes())
            file.flush()
            assert count <= 110
    assert 95 <= count <= 105
    assert "was still being written" in reports.faults[0]


def test_hostile_a_file_that_is_emptied(base: Path, tmp_path: Path) -> None:
    captures, reports = _grown("ts", base, tmp_path, lambda path, _: os.truncate(path, 1000))
    assert captures
    assert "became shorter" in reports.faults[0]


def test_hostile_a_file_that_is_taken_away_is_read_to_its_end(base: Path, tmp_path: Path) -> None:
    reports, captures = RecordingWatch(), []
    clip = _whole("ts", base, tmp_path)
    for capture in FileSource(clip).frames(threading.Event(), reports):
        clip.unlink(missing_ok=True)
        captures.append(capture)
    assert len(captures) == 100
    assert reports.faults == []


def test_hostile_a_run_over_a_file_that_grows(base: Path, tmp_path: Path) -> None:
    """The sound does not run on, either: the output ends with its pictures."""
    clip = tmp_path / "grows.ts"
    whole = _whole("ts", base, tmp_path).read_bytes()
    clip.write_bytes(whole)
    stop, nobody = threading.Event(), threading.Event()

    def write() -> None:
        with clip.open("ab") as file:
            while not stop.is_set():
                file.write(whole)
                file.flush()
                nobody.wait(0.005)

    writer = threading.Thread(target=write, name="writer")
    writer.start()
    try:
        ran = run(clip, tmp_path / "out")
    finally:
        stop.set()
        writer.join()
    assert ran.done.code == 1, ran.done.err
    assert "was still being written" in ran.stream["errors"][0]
    assert len(ran.lines) >= 95
    assert abs(ran.video().duration_s - (ran.times[-1] + 0.04)) < 1


# C55. Names.

NAMES = (
    b"a b.mp4",
    "тест 猫.mp4".encode(),
    b"x:8:00.mp4",
    b"n%03d.mp4",
    b"-dash.mp4",
    b"it's;$(touch id).mp4",
    b"\xff.mp4",
    b"n" * 246 + b".mp4",
    "ä".encode() * 123 + b".mp4",
    b"[a]*?.mp4",
    b"new\nline.mp4",
    b"esc\x1b[31m.mp4",
    b"concat:a|b.mp4",
    b"$HOME.mp4",
    b"`touch id`.mp4",
    b"back\\slash.mp4",
    b" lead.mp4",
    b"#x.mp4",
    b'quo"te.mp4',
    b"pipe:1.mp4",
)


def _command(arguments: list[bytes], folder: bytes) -> tuple[int, bytes]:
    """The installed command in a locale that knows only ASCII."""
    env = {k: v for k, v in environ().items() if k not in ("PYTHONUTF8", "LANG")} | {"LC_ALL": "C"}
    done = subprocess.run([os.fsencode(WATCHLINE), *arguments], cwd=folder, env=env, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_c55_a_name_is_a_name(name: bytes, base: Path, tmp_path: Path) -> None:
    """As a source and as an output, in the C locale: nothing in it means anything, and all that is written is UTF-8."""
    folder = os.fsencode(tmp_path)
    for part in (b"in", b"out"):
        os.mkdir(os.path.join(folder, part))
    os.symlink(base, os.path.join(folder, b"in", name))
    output = os.path.join(b"..", b"out", name)
    places = [b"--output=" + output, b"--jsonl", b"../lines.jsonl", b"--report", b"../report.json"]
    flags = [b"--model", b"probe", b"--no-show"]
    code, said = _command([b"run", *flags, *places, b"--", name], os.path.join(folder, b"in"))
    assert code == 0, said
    assert os.listdir(os.path.join(folder, b"out")) == [name]
    assert os.listdir(os.path.join(folder, b"in")) == [name]
    assert len(read_lines(tmp_path / "lines.jsonl")) == 100
    (stream,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["streams"].values()
    assert stream["shown"] == 100
    with open(os.path.join(folder, b"out", name), "rb") as file, av.open(file) as container:
        assert sum(1 for _ in container.decode(video=0)) == 100
    assert b"\x1b" not in said, "a name must not speak to the terminal"


@pytest.mark.parametrize("name", [b"\xff.mp4", b"esc\x1b[31m.mp4", b"new\nline.mp4", "猫.mp4".encode()], ids=ascii)
def test_c55_a_name_in_an_error(name: bytes, base: Path, tmp_path: Path) -> None:
    """One line, and a report that is UTF-8, also of a file that is no video."""
    folder = os.fsencode(tmp_path)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(b"hello")
    code, said = _command(
        [b"run", name, os.fsencode(base), b"--model", b"probe", b"--no-show", b"-q", b"--report", b"r.json"], folder
    )
    assert code == 1
    (line,) = said.splitlines()
    assert b"no video that can be decoded" in line
    assert b"\x1b" not in said
    streams = json.loads((tmp_path / "r.json").read_bytes().decode("utf-8"))["streams"]
    assert len(streams) == 2
    assert sum(bool(s["errors"]) for s in streams.values()) == 1


def test_c55_a_name_without_anything_in_it() -> None:
    for empty in ("", " "):
        done = watchline("run", empty, *PROBE)
        assert done.code == 2
        assert "a source is empty; name one" in done.err


# C60. No video in it.


def _make(kind: str, base: Path, folder: Path) -> str:
    """A source of this kind."""
    path = folder / {"sound": "a.m4a", "folder": "empty"}.get(kind, f"{kind}.mp4")
    frames0 = ["-f", "lavfi", "-i", "testsrc2", "-frames:v", "0"]
    if kind == "empty":
        path.touch()
    elif kind == "sound":
        ffmpeg("-i", base, "-vn", "-c", "copy", path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("root:x:0:0:root:/root:/bin/bash\n" * 40)
    elif kind == "noise":
        path.write_bytes(np.random.default_rng(1).bytes(200_000))
    elif kind == "nought":
        path.write_bytes(bytes(200_000))
    elif kind == "program":
        path.write_bytes(Path("/proc/self/exe").resolve().read_bytes()[:500_000])
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "device":
        return "/dev/zero"
    elif kind.startswith("0 frames"):
        path = folder / kind.replace(" ", "_")
        ffmpeg(*frames0, path)
    return str(path)


KINDS = (
    "empty",
    "sound",
    "folder",
    "text",
    "noise",
    "nought",
    "program",
    "missing",
    "dangling",
    "device",
    "0 frames.mp4",
    "0 frames.mkv",
    "0 frames.avi",
    "0 frames.flv",
    "0 frames.ts",
)


@pytest.mark.parametrize("kind", KINDS)
def test_c60_what_has_no_video_is_refused_in_one_line(kind: str, base: Path, tmp_path: Path) -> None:
    source = _make(kind, base, tmp_path)
    began_s = time.monotonic()
    ran = run(source, tmp_path / "out")
    assert time.monotonic() - began_s < 2
    assert ran.done.code == 2
    (line,) = ran.done.errors()
    assert Path(source).name in line
    assert any(words in line for words in ("cannot read", "no video", "no such file")), line
    assert "Traceback" not in ran.done.err
    assert list((tmp_path / "out").iterdir()) == []


def test_c60_a_fifo_that_nobody_writes(tmp_path: Path) -> None:
    """Only reading shows it: it is refused after the open limit, and leaves nothing but the report that was asked for."""
    os.mkfifo(tmp_path / "fifo.mp4")
    began_s = time.monotonic()
    ran = run(tmp_path / "fifo.mp4", tmp_path / "out", "--open-timeout", "1")
    assert 1 <= time.monotonic() - began_s < 2
    assert ran.done.code == 2
    (line,) = ran.done.errors()
    assert "fifo.mp4: nothing came within 1 s (the open timeout)" in line
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["r.json"]


@contextmanager
def _fed(pipe: Path, data: bytes) -> Iterator[None]:
    """A FIFO into which these bytes are written, and then nothing; it stays open."""
    ended = threading.Event()

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            file.write(data)
            ended.wait()

    writer = threading.Thread(target=write, name="writer")
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def test_c60_a_fifo_whose_writer_falls_silent_is_no_end(base: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "fifo"
    os.mkfifo(pipe)
    whole = _whole("ts", base, tmp_path).read_bytes()
    with _fed(pipe, whole), Player(FileSource(pipe, limits=Timeouts(5, 0.5))) as player:
        player.until_ended()
    assert isinstance(player.error, SourceError)
    assert "nothing came within 0.5 s (the read timeout)" in str(player.error)
    assert len(player.captures) >= 98


@pytest.mark.parametrize("name", ["one.png", "png.mp4", "one.jpg", "one.bmp", "one.webp"])
def test_c60_a_picture_is_one_frame(name: str, base: Path, tmp_path: Path) -> None:
    """With any name."""
    clip = tmp_path / name
    ffmpeg("-i", base, "-frames:v", 1, *(["-f", "image2", "-c:v", "png"] if name == "png.mp4" else []), clip)
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    assert len(ran.lines) == len(ran.video().times) == 1


# C66. The end of a stream.


@pytest.mark.parametrize("frames", [1, 3, 100])
def test_c66_a_run_ends_with_its_last_frame(frames: int, place: Path) -> None:
    """Fifty times, with an output: at most a second after the last result."""
    numbered(place / "num.mp4", frames=frames, b_frames=2 if frames > 1 else 0)
    for _ in range(50):
        done = watchline("run", "num.mp4", *PROBE, "-o", "o.mp4", "--jsonl", "-")
        ended_s = time.monotonic()
        assert done.code == 0, done.err
        assert values(done.lines) == [(k, str(level(k))) for k in range(frames)]
        assert ended_s - done.lines[-1]["shown_s"] <= 1
    assert len(list(lumas("o.mp4"))) == frames


def test_c66_the_process_ends_too(place: Path) -> None:
    numbered(place / "num.mp4", frames=3)
    for _ in range(5):
        done = finished("run", "num.mp4", *PROBE, "--jsonl", "-")
        assert time.monotonic() - done.lines[-1]["shown_s"] <= 1
        assert len(done.lines) == 3


def test_c66_two_files_of_different_length(place: Path) -> None:
    numbered(place / "two.mp4", frames=50)
    numbered(place / "four.mp4", frames=100)
    done = watchline("run", "two.mp4", "four.mp4", *PROBE, "--jsonl", "-")
    ended_s = time.monotonic()
    assert done.code == 0, done.err
    assert values(done.lines, "two") == [(k, str(level(k))) for k in range(50)]
    assert values(done.lines, "four") == [(k, str(level(k))) for k in range(100)]
    assert ended_s - max(k["shown_s"] for k in done.lines) <= 1


def test_c66_a_sender_that_hangs_up(place: Path) -> None:
    """With --no-reconnect the end of a live stream is the run's: an error, and soon. With it, it is an outage (C04)."""
    need("ffmpeg")
    numbered(place / "num.mp4")
    with Transmitter(place / "num.mp4") as camera:
        ran: list[Ran] = []
        watcher = threading.Thread(target=lambda: ran.append(run(camera.url, place / "out", "--no-reconnect")))
        watcher.start()
        lines = place / "out/o.jsonl"
        nobody, end_s = threading.Event(), time.monotonic() + 20
        while not (lines.exists() and lines.stat().st_size > 2000):
            assert time.monotonic() < end_s
            nobody.wait(0.02)
        camera.hang_up()
        hung_up_s = time.monotonic()
        watcher.join(20)
        ended_s = time.monotonic()
    assert ran[0].done.code == 1
    assert "the server ended the stream" in ran[0].done.err
    assert ended_s - hung_up_s <= 1
    shown = [k for k in ran[0].lines if k["status"] == "ok"]
    assert len(ran[0].video().times) == len(shown) > 0
