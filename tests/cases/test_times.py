"""Faults of time: variable, fractional, missing, jumping and late clocks. Checked are the lines and the annotated video of
the whole run."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import pytest

from tests.cases.whole_run import Ran, run
from tests.clips import numbered
from tests.servers.peers import HttpFiles
from tests.sources.conftest import ffmpeg
from tests.sources.play import PATIENCE_S
from tests.system import need

pytestmark = [pytest.mark.field, pytest.mark.timeout(60)]
MS = 0.0011
"""A millisecond, plus the rounding of a clock of whole milliseconds."""


def near(times: Sequence[float], wanted: Sequence[float], within_s: float = MS) -> None:
    """Each of the times is the wanted one."""
    assert len(times) == len(wanted)
    worst = max(range(len(times)), key=lambda k: abs(times[k] - wanted[k]))
    assert abs(times[worst] - wanted[worst]) <= within_s, f"frame {worst} at {times[worst]}, not {wanted[worst]}"


def steady(ran: Ran, *, count: int = 100, first: int = 0) -> None:
    """Every picture, in order, 40 ms apart from 0 on, in the lines and in the video, which ends one step after the last."""
    assert ran.done.code == 0, ran.done.err
    assert ran.numbers == [k % 110 for k in range(first, first + count)]
    wanted = [k / 25 for k in range(count)]
    near(ran.times, wanted)
    video = ran.video()
    near(video.times, wanted)
    assert video.duration_s == pytest.approx(count / 25, abs=0.05)


@pytest.fixture(scope="module")
def num(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 numbered pictures with B-frames: they are not decoded in the order in which they are shown."""
    return numbered(tmp_path_factory.mktemp("times") / "num.mp4", b_frames=2)


# C10. Variable rate: every frame keeps its time.


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "webm"])
def test_c10_times_of_a_variable_rate_are_kept(suffix: str, tmp_path: Path) -> None:
    clip = tmp_path / f"vfr.{suffix}"
    codec = ["libvpx-vp9", "-deadline", "realtime", "-cpu-used", 8] if suffix == "webm" else ["libx264"]
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=320x240:r=30:d=4",
        "-vf",
        "select='if(lt(n,60),1,not(mod(n,5)))'",
        "-fps_mode",
        "vfr",
        "-c:v",
        *codec,
        clip,
    )
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    wanted = [k / 30 for k in (*range(60), *range(60, 120, 5))]
    near(ran.times, wanted)
    assert [ran.times[k] for k in (59, 60, 61, 71)] == pytest.approx([1.967, 2.0, 2.167, 3.833], abs=MS)
    near(ran.video().times, wanted)


def test_c10_sound_stays_beside_its_pictures(tmp_path: Path) -> None:
    """A rate that changes, with sound: both tracks of the output are as long as those of the source."""
    times = [k / 30 for k in (*range(60), *range(60, 120, 5))]
    clip = numbered(tmp_path / "vfr.mp4", frames=72, times=[round(t, 3) for t in times], sound=True)
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    near(ran.video().times, [round(t, 3) for t in times])
    before, after = (_sound_length_s(path) for path in (clip, tmp_path / "out/o.mp4"))
    assert after == pytest.approx(before, abs=0.03)


def _sound_length_s(path: Path) -> float:
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        packets = [p for p in container.demux(stream) if p.size]
        return float((packets[-1].pts + packets[-1].duration) * stream.time_base)  # type: ignore[operator]


# C22. Clocks that jump.


def _continuous(parts: Sequence[Path], joined: Path) -> Path:
    """Transport streams one after the other, as one recorder writes them: the packets' counters go on."""
    counters: dict[int, int] = {}
    data = bytearray(b"".join(part.read_bytes() for part in parts))
    for at in range(0, len(data), 188):
        pid = int.from_bytes(data[at + 1 : at + 3], "big") & 0x1FFF
        if data[at + 3] & 0x10:
            counters[pid] = (counters.get(pid, -1) + 1) % 16
        data[at + 3] = data[at + 3] & 0xF0 | counters.get(pid, 0)
    joined.write_bytes(data)
    return joined


@pytest.fixture(scope="module")
def intra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered(tmp_path_factory.mktemp("intra") / "num.ts", gop=1)


@pytest.mark.parametrize("suffix", ["ts", "flv", "h264"])
def test_c22_a_clock_that_starts_again_goes_on(suffix: str, intra: Path, tmp_path: Path) -> None:
    twice = tmp_path / f"twice.{suffix}"
    if suffix == "ts":
        _continuous([intra, intra], twice)
    else:
        one = tmp_path / f"one.{suffix}"
        ffmpeg("-i", intra, "-c", "copy", "-f", suffix, one)
        twice.write_bytes(one.read_bytes() + one.read_bytes()[13 if suffix == "flv" else 0 :])  # one header
    ran = run(twice, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    assert ran.numbers == [*range(100), *range(100)]
    near(ran.times, [k / 25 for k in range(200)], 0.002)
    near(ran.video().times, ran.times)


def test_c22_two_recordings_in_one_file_lose_nothing_to_time(intra: Path, tmp_path: Path) -> None:
    """Joined with cat, the counters of the packets break off: the picture before the joint may have lost its end, and counts
    as corrupt with the one before it (FFmpeg flags that one). Nothing is lost because of the time."""
    twice = tmp_path / "twice.ts"
    twice.write_bytes(intra.read_bytes() * 2)
    ran = run(twice, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    assert len(ran.lines) == 200
    near(ran.times, [k / 25 for k in range(200)], 0.002)
    dropped = [(k["frame"], k["cause"]) for k in ran.lines if k["status"] != "ok"]
    assert dropped == [(98, "corrupt"), (99, "corrupt")]
    assert len(ran.video().times) == 198


@pytest.mark.parametrize("outlier_s", [3600.0, 20.0])
def test_c22_one_wrong_stamp_shifts_nothing(outlier_s: float, tmp_path: Path) -> None:
    parts = []
    for first, count, offset in ((0, 50, 0.0), (50, 1, outlier_s), (51, 49, 2.04)):
        part, moved = tmp_path / f"{first}.mkv", tmp_path / f"{first}.ts"
        numbered(part, frames=count, first=first, gop=1)
        ffmpeg("-i", part, "-c", "copy", "-muxdelay", 0, "-output_ts_offset", offset, "-f", "mpegts", moved)
        parts.append(moved)
    ran = run(_continuous(parts, tmp_path / "outlier.ts"), tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    assert ran.numbers == list(range(100))
    assert ran.times[51] == pytest.approx(2.04, abs=0.1)
    near(ran.times, [k / 25 for k in range(100)], 0.1)
    assert ran.video().duration_s < 10


# C24. Rates that are no whole number.


@pytest.mark.parametrize("rate", [Fraction(30000, 1001), Fraction(24000, 1001), Fraction(25, 2)])
def test_c24_a_fractional_rate_does_not_drift(rate: Fraction, tmp_path: Path) -> None:
    """A minute of it."""
    count = round(60 * rate)
    clip = numbered(tmp_path / "ntsc.mp4", frames=count, rate=rate, step=1, size=(32, 32))
    ran = run(clip, tmp_path / "out")
    assert ran.done.code == 0, ran.done.err
    wanted = [float(k / rate) for k in range(count)]
    near(ran.times, wanted)
    video = ran.video()
    near(video.times, wanted)
    assert video.rate == rate
    assert video.duration_s == pytest.approx(float(count / rate), abs=float(1 / rate))


# C57. No times at all, or only those of decoding.

RAW = {
    "raw.h264": ("libx264", "-crf", 8, "-bf", 2),
    "raw.hevc": ("libx265", "-crf", 8, "-x265-params", "log-level=none"),
    "raw.m4v": ("mpeg4", "-q:v", 1, "-bf", 2),
    "raw.m2v": ("mpeg2video", "-q:v", 1, "-bf", 2),
    "mpeg4.avi": ("mpeg4", "-q:v", 1, "-bf", 2),
    "h264.avi": ("libx264", "-crf", 8, "-bf", 3),
    "mjpeg.avi": ("mjpeg", "-q:v", 1, "-pix_fmt", "yuvj420p"),
}


@pytest.mark.parametrize("name", RAW)
def test_c57_without_times_they_are_made_up_by_the_rate(name: str, num: Path, tmp_path: Path) -> None:
    clip = tmp_path / name
    full_range = "mjpeg" in name  # MJPEG has no other one: the numbers must stay the same
    ranges = ["-vf", "scale=in_range=full:out_range=full"] if full_range else []
    ffmpeg("-i", num, *ranges, "-c:v", *RAW[name], *(["-f", "m4v"] if name == "raw.m4v" else []), clip)
    steady(run(clip, tmp_path / "out"))


def test_c57_an_avi_that_counts_fields(num: Path, tmp_path: Path) -> None:
    """ffmpeg's copy of H.264: every second packet is empty, so that the header says 50 a second."""
    clip = tmp_path / "fields.avi"
    ffmpeg("-i", num, "-c", "copy", "-f", "avi", clip)
    steady(run(clip, tmp_path / "out"))


def test_c57_a_transport_stream_over_udp(num: Path, tmp_path: Path) -> None:
    """Live: the first frames may have gone by before somebody listens."""
    need("ffmpeg")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    send = [
        "ffmpeg",
        "-v",
        "error",
        "-re",
        "-stream_loop",
        "-1",
        "-i",
        str(num),
        "-c",
        "copy",
        "-f",
        "mpegts",
        f"udp://127.0.0.1:{port}?pkt_size=1316",
    ]
    sender = subprocess.Popen(send, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ran = run(f"udp://127.0.0.1:{port}", tmp_path / "out", "--max-frames", "60", "--open-timeout", str(PATIENCE_S))
    finally:
        sender.kill()
        sender.wait()
    assert ran.done.code == 0, ran.done.err
    assert len(ran.times) == 60
    shown = [(t, n) for t, n in zip(ran.times, ran.numbers, strict=True) if n is not None]
    assert len(shown) > 30
    (begin_s, first), *_ = shown
    assert [round(25 * (t - begin_s)) % 100 for t, _ in shown] == [(n - first) % 100 for _, n in shown], "each at its own time"
    near([25 * t for t in ran.times], [round(25 * t) for t in ran.times], 0.05)


# C58. Clocks that do not begin at nought.


@pytest.mark.parametrize("offset", [3600, 95_442])
def test_c58_a_late_start_and_the_wrap_of_33_bits(offset: int, num: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.ts"
    ffmpeg("-i", num, "-c", "copy", "-mpegts_copyts", 1, "-output_ts_offset", offset, "-f", "mpegts", moved)
    steady(run(moved, tmp_path / "out"))


EARLY_AND_LATE: dict[str, tuple[list[object], list[object]]] = {
    "early.mkv": (["-itsoffset", -0.5], ["-avoid_negative_ts", "disabled"]),
    "late.mkv": (["-itsoffset", 7], []),
    "late.mp4": (["-itsoffset", 7], []),
    "negative offsets.mp4": ([], ["-movflags", "+negative_cts_offsets", "-use_editlist", 0]),
    "negative offsets.mov": ([], ["-movflags", "+negative_cts_offsets"]),
    "late.flv": (["-itsoffset", 7], []),
}


@pytest.mark.parametrize("name", EARLY_AND_LATE)
def test_c58_the_first_frame_is_at_nought(name: str, num: Path, tmp_path: Path) -> None:
    moved = tmp_path / name
    before, after = EARLY_AND_LATE[name]
    ffmpeg(*before, "-i", num, "-c", "copy", *after, moved)
    steady(run(moved, tmp_path / "out"))


def test_c58_what_an_edit_list_hides_is_not_shown(num: Path, tmp_path: Path) -> None:
    """A negative start is an edit list in mp4: 13 pictures belong to the file only because others lean on them. ffprobe does
    not count them either."""
    moved = tmp_path / "early.mp4"
    ffmpeg("-itsoffset", -0.5, "-i", num, "-c", "copy", moved)
    steady(run(moved, tmp_path / "out"), count=87, first=13)


def test_c58_over_http(num: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.ts"
    ffmpeg("-i", num, "-c", "copy", "-mpegts_copyts", 1, "-output_ts_offset", 95_442, "-f", "mpegts", moved)
    with HttpFiles(tmp_path) as peer:
        steady(run(peer.url("moved.ts"), tmp_path / "out"))
