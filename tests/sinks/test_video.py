"""The annotated file: times, colours, shapes, names, and playback after every kind of end."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

from pipelines.errors import SinkError, UsageError
from pipelines.frame import Picture, StreamInfo
from pipelines.sinks.video import VideoFile, VideoOptions, check_video_path
from tests.sinks.feed import NTSC, VFR, Times, apart, decoded, frame, noise, numbers, packets, picture, play, times

ROOT = Path(__file__).parents[2]
SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".ts")
CLOCKS = {
    "variable": (VFR, StreamInfo(Fraction(1, 15360), Fraction(18))),
    "ntsc": (NTSC, StreamInfo(Fraction(1001, 30000), Fraction(30000, 1001))),
    "ntsc, no time base": (NTSC, StreamInfo(None, Fraction(30000, 1001))),
    "90 kHz": (NTSC, StreamInfo(Fraction(1, 90000), Fraction(30000, 1001))),
    "avi": ([Fraction(n, 10) for n in range(20)], StreamInfo(Fraction(1, 10), Fraction(10))),
}


def written(path: Path, at: Times, info: StreamInfo | None = None, **options: Any) -> Path:
    """A finished file of numbered pictures."""
    sink = VideoFile(path, VideoOptions(**options))
    play(sink, at, info)
    sink.close(True)
    assert sink.written == len(at)
    return path


@pytest.mark.parametrize(
    ("clock", "live", "bframes"),  # each pair of values at least once
    [case for k, clock in enumerate(CLOCKS) for case in ((clock, False, 2 * (k % 2)), (clock, True, 2 - 2 * (k % 2)))],
)
def test_times_are_kept_exactly(tmp_path: Path, clock: str, live: bool, bframes: int) -> None:
    at, info = CLOCKS[clock]
    path = written(tmp_path / "o.mp4", at, info, live=live, bframes=bframes)
    assert times(path)[0] == 0
    assert apart(times(path), at) < 2e-5
    assert numbers(path) == list(range(len(at)))
    with av.open(str(path)) as container:
        assert container.duration is not None
        assert container.duration / 1e6 == pytest.approx(float(at[-1] + 1 / info.rate), abs=0.002)


@pytest.mark.parametrize(("suffix", "bframes"), [*((suffix, 2) for suffix in SUFFIXES), (".mp4", 0), (".ts", 0)])
def test_every_container_keeps_distances_and_rate(tmp_path: Path, suffix: str, bframes: int) -> None:
    at, info = CLOCKS["ntsc"]
    path = written(tmp_path / f"o{suffix}", at, info, bframes=bframes)
    found = times(path)
    # MPEG-TS has no time 0: the distance to the first packet counts.
    assert suffix == ".ts" or found[0] == 0
    assert apart([t - found[0] for t in found], at) <= (0.0006 if suffix == ".mkv" else 0)
    with av.open(str(path)) as container:
        assert container.streams.video[0].base_rate == Fraction(30000, 1001)


def test_a_finished_file_is_a_plain_mp4(tmp_path: Path) -> None:
    path = written(tmp_path / "o.mp4", NTSC)
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == len(NTSC)
    assert b"moof" not in path.read_bytes()[:64]
    assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FRAME_COUNT) == len(NTSC)


@pytest.mark.parametrize(("rate", "step"), [(Fraction(10), 0.1), (None, 0.04)])
def test_missing_times_are_made_up(tmp_path: Path, rate: Fraction | None, step: float) -> None:
    path = written(tmp_path / "o.mp4", [None] * 30, StreamInfo(rate=rate))
    assert apart(times(path), [k * step for k in range(30)]) < 1e-6


def test_made_up_times_count_the_frames_that_were_not_shown(tmp_path: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4")
    for number in (0, 5, 10):
        sink.show(frame(number, None, StreamInfo()), picture(number))
    sink.close(True)
    assert apart(times(tmp_path / "o.mp4"), [0, 0.2, 0.4]) < 1e-6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_times_that_stand_or_go_back_are_nudged(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"o{suffix}", [0, 0.04, 0.04, 0.01, 0.12], StreamInfo(Fraction(1, 12800)))
    found = times(path)
    assert all(a < b for a, b in pairwise(found))
    assert numbers(path) == [0, 1, 2, 3, 4]
    assert apart([t - found[0] for t in found], [0, 0.04, 0.04, 0.04, 0.12]) < 0.003


def test_a_file_that_loops_goes_on_after_its_last_frame(tmp_path: Path) -> None:
    sink, info = VideoFile(tmp_path / "o.mp4"), StreamInfo(Fraction(1, 12800), Fraction(25))
    for session in range(3):
        play(sink, [Fraction(k, 25) for k in range(10)], info, session, first=10 * session)
    sink.close(True)
    assert times(tmp_path / "o.mp4") == [Fraction(k, 25) for k in range(30)]


def test_a_camera_that_comes_back_goes_on_where_it_arrived(tmp_path: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4", VideoOptions(live=True))
    shown = [(0, 2.0, 100.0), (0, 2.04, 100.04), (1, 0.0, 107.5), (1, 0.04, 107.6), (2, 0.0, 107.5), (2, 0.04, 107.6)]
    for number, (session, pts_s, arrived_s) in enumerate(shown):
        sink.show(frame(number, pts_s, StreamInfo(), session, arrived_s), picture(number))
    sink.close(False)
    # By its arrival time the last session begins before the end of the session before it.
    assert apart(times(tmp_path / "o.mp4"), [0, 0.04, 7.5, 7.54, 7.58, 7.62]) < 1e-4


COLOURS: list[dict[str, Any]] = [
    {"matrix": "bt601"},
    {"matrix": "bt709"},
    {"matrix": "bt709", "full_range": True},
    {"matrix": "bt601", "full_range": True},
    {"matrix": "bt2020"},
    {"matrix": "fcc"},
    {"matrix": "smpte240m", "full_range": True},
]
CODES = {"bt601": 6, "bt709": 1, "bt2020": 9, "fcc": 4, "smpte240m": 7}


@pytest.mark.parametrize(
    ("colour", "suffix"),
    [*((colour, ".mp4") for colour in COLOURS), *((COLOURS[k], s) for k in (2, 6) for s in (".mkv", ".ts"))],
)
def test_colours_come_back_with_their_tags(tmp_path: Path, colour: dict[str, Any], suffix: str) -> None:
    planes = [np.full(shape, value, np.uint8) for shape, value in (((64, 64), 92), ((32, 32), 104), ((32, 32), 201))]
    sink = VideoFile(tmp_path / f"o{suffix}")
    sink.show(frame(0, 0, StreamInfo()), Picture(*planes, **colour))
    sink.close(True)
    with av.open(str(tmp_path / f"o{suffix}")) as container:
        image = next(container.decode(video=0))
    assert image.colorspace == CODES[colour["matrix"]]
    assert image.color_range == (2 if colour.get("full_range") else 1)
    assert image.format.name in ("yuv420p", "yuvj420p")
    for plane, value in zip(image.planes, (92, 104, 201), strict=True):
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
        assert abs(rows.astype(int) - value).max() <= 6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_size_and_sample_aspect_are_kept(tmp_path: Path, suffix: str) -> None:
    sink = VideoFile(tmp_path / f"o{suffix}")
    sink.show(frame(0, 0, StreamInfo()), picture(0, (720, 302), sample_aspect=Fraction(64, 45)))
    sink.close(True)
    with av.open(str(tmp_path / f"o{suffix}")) as container:
        image = next(container.decode(video=0))
        assert (image.width, image.height) == (720, 302)
        assert container.streams.video[0].codec_context.sample_aspect_ratio == Fraction(64, 45)


def test_planes_may_be_padded_read_only_or_turned(tmp_path: Path) -> None:
    wide = np.zeros((64, 80), np.uint8)
    wide[:, :32], wide[:, 32:64] = 40, 200
    chroma = np.full((32, 32), 128, np.uint8)
    chroma.flags.writeable = False
    sink = VideoFile(tmp_path / "o.mkv")
    for number, how in enumerate(({}, {"rotation": 180}, {"mirrored": True})):
        sink.show(frame(number, number / 25, StreamInfo()), Picture(wide[:, :64], chroma, chroma, **how))
    sink.close(True)
    with av.open(str(tmp_path / "o.mkv")) as container:
        rows = [np.frombuffer(memoryview(f.planes[0]), np.uint8)[:64].astype(int) for f in container.decode(video=0)]
    assert [(abs(r[8] - 40) < 6, abs(r[56] - 200) < 6) for r in rows] == [(True, True), (False, False), (False, False)]


def test_another_size_is_fitted_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    white = {"matrix": "bt709", "full_range": True}
    pictures = [
        picture(50, (128, 64)),
        picture(50, (64, 64)),  # bars left and right
        picture(50, (64, 64), sample_aspect=Fraction(2)),  # fills the width
        picture(50, (2, 128)),
        Picture(np.full((32, 64), 255, np.uint8), *(np.full((16, 32), 128, np.uint8) for _ in "uv"), **white),
    ]
    sink = VideoFile(tmp_path / "o.mp4")
    for number, shown in enumerate(pictures):
        sink.show(frame(number, number / 25, StreamInfo()), shown)
    sink.close(True)
    with av.open(str(tmp_path / "o.mp4")) as container:
        rows = [np.frombuffer(memoryview(f.planes[0]), np.uint8).reshape(64, -1) for f in container.decode(video=0)]
    grey = 16 + 2 * 50
    assert abs(int(rows[1][32, 64]) - grey) <= 6
    assert (abs(rows[1][:, :28].astype(int) - 16) <= 6).all()
    assert (abs(rows[1][:, 100:].astype(int) - 16) <= 6).all()
    assert (abs(rows[2][2:-2, 2:126].astype(int) - grey) <= 6).all()
    assert abs(int(rows[4][32, 64]) - 235) <= 6
    assert [r.getMessage() for r in caplog.records if r.name == "watchline.sinks.video"] == [
        f"{tmp_path / 'o.mp4'}: the picture changed to 64x64 and is fitted into the first size"
    ]


NAMES = (
    "a b.mp4",
    "тест 猫.mp4",
    "x:8:00.mp4",
    "n%03d.mp4",
    "-dash.mp4",
    "it's;$(id).mp4",
    'a"b.mkv',
    "n%03d.ts",
    "\udcff.mp4",
    "file:x.mov",
    "[a]*?.mp4",
    "ä" * 123 + ".mp4",
    "UP.MP4",
)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_odd_names_are_written_exactly(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    check_video_path(path)
    assert os.listdir(tmp_path) == []
    written(path, NTSC[:5])
    assert os.listdir(tmp_path) == [name]
    with path.open("rb") as data, av.open(data) as container:
        assert sum(1 for _ in container.decode(video=0)) == 5


def test_nothing_of_the_source_gets_into_the_file(tmp_path: Path) -> None:
    info = StreamInfo(sound="rtsp://user:secret@camera/door")
    path = written(tmp_path / "o.mkv", NTSC[:3], info, live=True)
    assert b"secret" not in path.read_bytes()
    with av.open(str(path)) as container:
        assert {key.lower() for key in container.metadata} <= {"encoder"}


def test_no_frame_no_file(tmp_path: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4")
    sink.close(True)
    sink.close(False)
    assert os.listdir(tmp_path) == []
    with pytest.raises(SinkError, match="closed"):
        play(sink, [0])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_early_end_keeps_every_accepted_frame(tmp_path: Path, suffix: str) -> None:
    sink = VideoFile(tmp_path / f"o{suffix}", VideoOptions(bframes=2))
    play(sink, NTSC[:17])
    sink.close(False)
    assert numbers(tmp_path / f"o{suffix}") == list(range(17))


def test_closing_in_another_thread_while_frames_are_shown(tmp_path: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4", VideoOptions(live=True, threads=2))
    begun, outcome = threading.Event(), []

    def lane() -> None:
        try:
            for number in range(100_000):
                sink.show(frame(number, number / 25, StreamInfo(rate=Fraction(25))), picture(number % 100))
                begun.set()
        except SinkError as error:
            outcome.append(error)

    thread = threading.Thread(target=lane)
    thread.start()
    begun.wait()
    sink.close(False)
    thread.join()
    assert len(outcome) == 1
    assert len(times(tmp_path / "o.mp4")) == sink.written > 0


def test_encoder_threads_end_with_the_file(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/task"))

    before = count()
    sink = VideoFile(tmp_path / "o.mp4", VideoOptions(threads=2))
    play(sink, NTSC[:10], StreamInfo(rate=Fraction(30)))
    during = count()
    sink.close(True)
    assert before < during <= before + 3
    assert count() == before


def child(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run code in another Python, in the repository's root."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", code, *args]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


KILLED = """
import os, signal, sys
from fractions import Fraction
from pathlib import Path
from pipelines.frame import StreamInfo
from pipelines.sinks.video import VideoFile, VideoOptions
from tests.sinks.feed import play
path, live, rate, bframes, threads = Path(sys.argv[1]), sys.argv[2] == "True", *map(int, sys.argv[3:])
info = StreamInfo(Fraction(1, 90000), Fraction(rate))
sink = VideoFile(path, VideoOptions(live=live, bframes=bframes, threads=threads))
play(sink, [Fraction(k, rate) for k in range(int(7.5 * rate))], info)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("suffix", "live", "rate", "bframes", "threads"),
    [
        (".mp4", False, 25, 0, 1),
        (".mp4", True, 25, 0, 1),
        (".mp4", False, 25, 2, 1),
        (".mp4", True, 1, 0, 1),
        (".mov", False, 10, 0, 1),
        (".mkv", True, 25, 0, 1),
        (".mkv", False, 5, 0, 1),
        (".mkv", True, 1, 0, 1),
        (".ts", True, 25, 0, 1),
        (".mp4", False, 1, 0, 4),
        (".mkv", False, 2, 0, 4),
        (".mp4", False, 5, 0, 16),
        (".mp4", False, 25, 0, 16),
    ],
)
def test_sigkill_costs_two_seconds_at_most(
    tmp_path: Path, suffix: str, live: bool, rate: int, bframes: int, threads: int
) -> None:
    """Also at one frame a second with many encoder threads, although each thread holds back one frame."""
    path = tmp_path / f"o{suffix}"
    numbers = (str(n) for n in (rate, bframes, threads))
    assert child(KILLED, str(path), str(live), *numbers).returncode == -signal.SIGKILL
    found = list(decoded(path))
    assert [number for _, number in found] == [k % 110 for k in range(len(found))]
    assert len(found) >= int(7.5 * rate) - 2 * rate
    assert apart([t - found[0][0] for t, _ in found], [k / rate for k in range(len(found))]) < 0.001


FULL = """
import resource, sys
from pathlib import Path
from pipelines.errors import SinkError
from pipelines.frame import StreamInfo
from pipelines.sinks.video import VideoFile, VideoOptions
from tests.sinks.feed import frame, noise
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
sink = VideoFile(Path(sys.argv[1]), VideoOptions(live=sys.argv[2] == "True"))
try:
    for number in range(200):
        sink.show(frame(number, number / 25, StreamInfo()), noise(number))
except SinkError as error:
    print(error)
try:
    sink.show(frame(number, number / 25, StreamInfo()), noise(number))
except SinkError as error:
    print(error)
sink.close(False)
print(sink.written)
"""


@pytest.mark.parametrize(("suffix", "live"), [(".mp4", False), (".mp4", True), (".mkv", False), (".ts", False)])
def test_a_full_disk_is_named_and_what_is_there_plays(tmp_path: Path, suffix: str, live: bool) -> None:
    path = tmp_path / f"o{suffix}"
    done = child(FULL, str(path), str(live))
    assert done.stderr == ""
    first, second, accepted = done.stdout.splitlines()
    assert first == second
    frames = playable(path)
    assert 0 < frames < int(accepted)
    said = f"cannot write {path}: File too large: the video ends after {frames} of the {accepted} frames taken"
    length_s = float(first.removeprefix(f"{said} (").removesuffix(" s)"))
    assert length_s == pytest.approx(frames / 25, abs=0.05)


def playable(path: Path) -> int:
    """The number of frames that the decoder gives before the end or an incomplete packet."""
    frames = 0
    with av.open(str(path)) as container, suppress(av.InvalidDataError):
        for _ in container.decode(video=0):
            frames += 1
    return frames


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("became", ["removed", "replaced"])
def test_a_file_that_is_gone_at_the_end_is_no_success(tmp_path: Path, suffix: str, became: str) -> None:
    path = tmp_path / f"o{suffix}"
    sink = VideoFile(path)
    play(sink, NTSC[:5])
    path.unlink()
    if became == "replaced":
        path.write_bytes(b"another")
    with pytest.raises(SinkError, match=f"^{re.escape(str(path))} was {became} while it was written$"):
        sink.close(True)
    assert sink.written == 0
    sink.close(True)
    assert became == "removed" or path.read_bytes() == b"another"


def test_a_disk_that_fills_at_the_very_end(tmp_path: Path) -> None:
    """The last fragment fits on the disk, and the index of a plain mp4 does not: the fragments stay."""
    code = FULL.replace("300_000", "int(sys.argv[3])").replace("range(200)", "range(26)")
    whole, short = tmp_path / "whole.mp4", tmp_path / "short.mp4"
    child(code, str(whole), "False", str(10**8))
    done = child(code, str(short), "False", str(whole.stat().st_size - 600))
    found = len(packets(short, "video"))
    assert re.search(rf"SinkError: cannot write .*: the video ends after {found} of the 27 frames taken", done.stderr)
    assert len(packets(short, "video")) >= 25


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    sink = VideoFile(tmp_path / "gone" / "o.mp4")
    with pytest.raises(SinkError, match=r"^cannot write .*gone/o\.mp4: No such file or directory$"):
        play(sink, [0, 1])
    sink.close(True)
    assert sink.written == 0


def test_the_source_is_not_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path / "a.mp4", NTSC[:5])
    before = path.read_bytes()
    sink = VideoFile(tmp_path / ".." / tmp_path.name / "a.mp4")
    with pytest.raises(SinkError, match="source itself"):
        play(sink, [0], StreamInfo(sound=str(path)))
    sink.close(False)
    assert path.read_bytes() == before


def test_a_file_that_another_run_writes_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "o.mp4"
    first, second = VideoFile(path), VideoFile(path)
    play(first, NTSC[:5])
    with pytest.raises(SinkError, match=r"o\.mp4: another run is writing it$"):
        play(second, [0])
    with pytest.raises(UsageError, match="another run is writing it"):
        check_video_path(path)
    second.close(False)
    first.close(True)
    assert len(list(decoded(path))) == 5
    written(path, NTSC[:3])
    assert len(list(decoded(path))) == 3


def test_odd_sizes_are_refused_in_one_line(tmp_path: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4")
    with pytest.raises(SinkError, match=r"even sides, got 65x33$"):
        sink.show(frame(0, 0, StreamInfo()), picture(0, (65, 33)))
    sink.close(False)


def test_check_refuses_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    os.mkfifo(tmp_path / "pipe.mp4")
    refused = {
        "o": "without ending",
        "o.txt": "'.txt'.*[.]mp4",
        "o.webm": "'.webm'",
        "o.avi": "'.avi'",
        "no/o.mp4": "No such file",
        "folder.mp4": "it is a folder",
        "pipe.mp4": "not a regular file",
        "x" * 300 + ".mp4": "too long",
        "\0.mp4": "null",
    }
    for name, why in refused.items():
        with pytest.raises(UsageError, match=why) as caught:
            check_video_path(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"^cannot write video to /proc/o\.mp4: "):
        check_video_path(Path("/proc/o.mp4"))


def test_check_touches_nothing(tmp_path: Path) -> None:
    there = tmp_path / "there.mkv"
    there.write_bytes(b"as it was")
    for suffix in SUFFIXES:
        check_video_path(tmp_path / f"new{suffix}")
    check_video_path(there)
    assert there.read_bytes() == b"as it was"
    assert os.listdir(tmp_path) == ["there.mkv"]


def test_noise_is_bounded_by_crf(tmp_path: Path) -> None:
    sizes = []
    for crf in (20, 40):
        sink = VideoFile(tmp_path / f"{crf}.mp4", VideoOptions(crf=crf))
        for number in range(5):
            sink.show(frame(number, number / 25, StreamInfo()), noise(number))
        sink.close(True)
        sizes.append((tmp_path / f"{crf}.mp4").stat().st_size)
    assert sizes[0] > 1.5 * sizes[1]
