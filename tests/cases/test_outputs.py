"""C06, C13, C20, C41, C43: outputs and reports of a run, with a window or without, after every kind of end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import IO

import av
import pytest

from pipelines.frame import Box, Frame, Picture, Prediction
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.render.overlay import NO_BOXES, Overlay
from pipelines.results import CAPACITY, MOST
from tests.clips import level, numbered
from tests.command import PROBE, WATCHLINE, Done, environ, finished, read_lines, running, values, watchline
from tests.display import Environ, start_xvfb, without_display
from tests.monitor.made import end
from tests.sinks.window_scenarios import press_close, press_q, window_id
from tests.sources.conftest import ffmpeg
from tests.sources.play import Transmitter
from tests.system import need

pytestmark = [pytest.mark.field, pytest.mark.timeout(120)]
START_S = 15.0
"""A process on a busy machine may take so long from its start to its window."""


def frames_in(path: Path) -> int:
    """Frames that ffprobe decodes."""
    need("ffprobe")
    said = subprocess.run(
        [
            "ffprobe",
            "-v",
            "error",
            "-count_frames",
            "-select_streams",
            "v:0",
            "-show_entries",
            "stream=nb_read_frames",
            "-of",
            "csv=p=0",
            str(path),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(said.stdout.split()[0].rstrip(","))  # a transport stream's is said for its program, too


def read_shown(stdout: IO[str] | None, count: int) -> list[str]:
    """Read lines until so many frames were shown."""
    assert stdout is not None
    lines: list[str] = []
    while count:
        lines.append(stdout.readline())
        count -= '"status":"ok"' in lines[-1]
    return lines


def ended(process: subprocess.Popen[str], lines: list[str]) -> tuple[float, Done]:
    """Wait for its end; the seconds it took, and all that it said."""
    began_s = time.monotonic()
    out, err = process.communicate(timeout=60)
    return time.monotonic() - began_s, Done(process.returncode, "".join(lines) + out, err)


def shown(done: Done) -> int:
    return sum(line["status"] == "ok" for line in done.lines)


# C06: no display.

NO_DISPLAY = [pytest.param({}, "DISPLAY", id="none"), pytest.param({"DISPLAY": ":77"}, "DISPLAY=:77", id="nothing there")]


@pytest.mark.parametrize(("more", "display"), NO_DISPLAY)
def test_c06_a_window_without_a_display_is_refused_before_the_first_frame(
    place: Path, more: Mapping[str, str], display: str
) -> None:
    numbered(place / "base.mp4")
    args = ("run", "base.mp4", "--model", "probe", "--show", "-o", "o.mp4", "--jsonl", "-", "--report", "r.json")
    done = finished(*args, env=without_display(**more))
    assert done.code == 2, done.err
    (line,) = done.err.splitlines()
    assert "--show" in line
    assert display in line
    assert done.out == ""
    assert os.listdir(place) == ["base.mp4"]


@pytest.mark.parametrize(("more", "display"), NO_DISPLAY)
@pytest.mark.parametrize("flags", [[], ["--no-show"], ["-o", "o.mp4"]], ids=" ".join)
def test_c06_without_show_there_is_no_window_and_all_frames(
    place: Path, more: Mapping[str, str], display: str, flags: list[str]
) -> None:
    numbered(place / "base.mp4")
    done = finished("run", "base.mp4", "--model", "probe", *flags, env=without_display(**more))
    assert done.code == 0, done.err
    assert "100 of 100 frames shown" in done.err
    if "-o" in flags:
        assert frames_in(place / "o.mp4") == 100


def test_c06_a_display_that_goes_away_costs_no_results(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Qt ends the process then: not before the outputs are finished and the report is written."""
    need("Xvfb", "xdotool")
    numbered(place / "num.mp4")
    server, name = start_xvfb(place)
    monkeypatch.setenv("DISPLAY", name)
    args = ("run", "num.mp4", "--loop", "--realtime", "--model", "probe", "--show", "-o", "o.mp4", "--jsonl", "-")
    try:
        with running(*args, "--report", "r.json", env=without_display(DISPLAY=name)) as process:
            _until(process, _window_there)
            lines = read_shown(process.stdout, 10)
            server.kill()
            took_s, done = ended(process, lines)
    finally:
        server.kill()
        server.wait()
    assert done.code == 1, done.err
    assert took_s <= 3
    assert "the window's display is gone; the run has ended, its outputs are finished" in done.err.splitlines()
    (stream,) = json.loads((place / "r.json").read_text())["streams"].values()
    assert frames_in(place / "o.mp4") == stream["shown"] == shown(done) >= 10
    assert len(done.lines) == stream["captured"]


# C13: Ctrl-C and kill.

SLOW = ("--loop", "--max-batch", "4", "--probe-ms-per-frame", "10")
"""A file that does not end, at 100 frames/s."""


@contextlib.contextmanager
def endless(place: Path, kind: str, output: str) -> Iterator[subprocess.Popen[str]]:
    """A run on a camera or a file that only a signal ends."""
    numbered(place / "num.mp4", sound=True)
    with contextlib.ExitStack() as stack:
        source: tuple[str, ...] = ("num.mp4", *SLOW)
        if kind == "camera":
            need("ffmpeg")
            source = stack.enter_context(Transmitter(place / "num.mp4", "-an")).url, "--budget-ms", "500"
        yield stack.enter_context(running("run", *source, *PROBE, "-o", output, "--jsonl", "-", "--report", "r.json"))


@pytest.mark.parametrize(
    ("kind", "output", "number"),
    [
        ("camera", "o.mp4", signal.SIGINT),
        ("camera", "o.mkv", signal.SIGTERM),
        ("file", "o.mp4", signal.SIGTERM),
        ("file", "o.mkv", signal.SIGINT),
        ("file", "o.ts", signal.SIGINT),
    ],
)
def test_c13_a_signal_to_the_process_group_finishes_the_outputs(
    place: Path, kind: str, output: str, number: signal.Signals
) -> None:
    with endless(place, kind, output) as process:
        lines = read_shown(process.stdout, 60)
        os.killpg(process.pid, number)
        took_s, done = ended(process, lines)
    assert done.code == 128 + number, done.err
    assert took_s <= 3
    assert "Traceback" not in done.err
    (stream,) = json.loads(Path("r.json").read_text())["streams"].values()
    assert frames_in(place / output) == stream["shown"] == shown(done) >= 60
    assert [line["frame"] for line in done.lines] == list(range(stream["captured"]))


@pytest.mark.parametrize(("kind", "output"), [("camera", "o.mp4"), ("file", "o.mkv"), ("file", "o.ts")])
def test_c13_sigkill_costs_the_last_two_seconds_at_most(place: Path, kind: str, output: str) -> None:
    with endless(place, kind, output) as process:
        read_shown(process.stdout, 90)
        os.killpg(process.pid, signal.SIGKILL)
        ended(process, [])
    assert frames_in(place / output) >= 90 - 2 * 25


def _stuck(process: subprocess.Popen[str]) -> None:
    """Wait until its standard output, which nobody reads, is full."""
    assert process.stdout is not None
    before, now = -1, 0
    while before < now or now < 1 << 15:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        before, now = now, struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, bytes(4)))[0]


def test_c13_outputs_are_finished_though_nobody_reads_the_lines(place: Path) -> None:
    with running("run", "synthetic:64x64@200", *PROBE, "-o", "o.mp4", "--jsonl", "-") as process:
        _stuck(process)
        began_s = time.monotonic()
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        took_s = time.monotonic() - began_s
        out, err = process.communicate()
    assert process.returncode == 143
    assert took_s <= 3
    assert "cannot write JSON lines to standard output: nobody reads it" in err
    whole = [json.loads(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]
    accepted = sum(line["status"] == "ok" for line in whole)
    assert accepted <= frames_in(place / "o.mp4") <= accepted + CAPACITY + MOST + 1, (
        "the rest waits in the channel of the lines"
    )


def test_c13_a_second_ctrl_c_ends_at_once(place: Path) -> None:
    """While the first one waits for a blocked write. (While a model loads: tests/app/test_exit_codes.py.)"""
    with running("run", "synthetic:64x64@200", *PROBE, "-o", "o.mp4", "--jsonl", "-") as process:
        _stuck(process)
        os.killpg(process.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        began_s = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        assert time.monotonic() - began_s < 1
    assert process.returncode == 130


# C20: latency.


def test_c20_stages_take_what_they_took_and_a_step_of_the_wall_clock_changes_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 ms in the model, 10 ms in the drawing. The wall clock is set an hour on and back again all the time."""
    draw, wall, steps = Overlay.render, time.time, count()

    def slowly(self: Overlay, frame: Frame, prediction: Prediction, boxes: Mapping[str, Box] = NO_BOXES) -> Picture:
        picture = draw(self, frame, prediction, boxes)
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < 0.0095:
            pass  # a sleep would last as much longer as the machine is busy
        return picture

    monkeypatch.setattr(Overlay, "render", slowly)
    monkeypatch.setattr(time, "time", lambda: wall() + 3600 * (-1) ** next(steps))
    limits = ("--probe-ms-per-batch", "40", "--budget-ms", "500", "--max-frames", "40")
    done = watchline("run", "synthetic:64x64@10", *PROBE, *limits, "-o", "o.mp4", "--jsonl", "-", "--report", "r.json")
    assert done.code == 0, done.err
    assert next(steps) > 40, "the wall clock was not looked at"
    report = json.loads((place / "r.json").read_text())
    stages = dict(report["latency_ms"])
    total = stages.pop("total")
    assert stages["infer"]["p50"] == pytest.approx(40, abs=3)
    assert stages["render"]["p50"] == pytest.approx(10, abs=2)
    assert sum(stage["p50"] for stage in stages.values()) == pytest.approx(total["p50"], rel=0.05)
    assert {stage["count"] for stage in (*stages.values(), total)} == {report["streams"]["synthetic-64x64@10"]["shown"]}
    for line in done.lines:
        if line["status"] == "ok":
            assert 0 < line["shown_s"] - line["arrived_s"] < 1
            assert all(0 <= ms < 1000 for ms in line["latency_ms"].values())
    assert 0 < total["max"] < 1000
    assert report["streams"]["synthetic-64x64@10"]["fps"] == pytest.approx(10, rel=0.1)
    assert report["streams"]["synthetic-64x64@10"]["outages"] == []
    assert report["warmup_s"] < 10


def test_c20_percentiles_of_a_known_list() -> None:
    """1 to 1000 ms, in any order, over two streams."""
    monitor = LatencyMonitor(0.05)
    ledgers = [monitor.open(name, live=True) for name in "ab"]
    for k in range(1000):
        ms = 7 * k % 1000 + 1
        end(ledgers[k % 2], "ok", float(k), ms / 1000)
    total = monitor.report().latency_ms["total"]
    assert total.count == 1000
    for name, wanted in (("p50", 500), ("p95", 950), ("p99", 990), ("max", 1000)):
        assert getattr(total, name) == pytest.approx(wanted, abs=1), name


# C41: no child that could block.


@pytest.mark.parametrize("source", ["file", "camera"])
def test_c41_no_ffmpeg_is_started(place: Path, source: str) -> None:
    """Every program of FFmpeg's on the path leaves a mark when it is run: none is."""
    numbered(place / "num.mp4", sound=True)
    (place / "bin").mkdir()
    for name in ("ffmpeg", "ffprobe", "ffplay"):
        fake = place / "bin" / name
        fake.write_text(f"#!/bin/sh\necho {name} >> {place}/ran\nhead -c 262144 /dev/zero >&2\nexec cat\n")
        fake.chmod(0o755)
    env = environ(PATH=f"{place}/bin:{os.environ['PATH']}")
    assert subprocess.run(["ffmpeg"], env=env, capture_output=True, stdin=subprocess.DEVNULL).stderr[:1] == b"\0"
    assert (place / "ran").read_text() == "ffmpeg\n"
    (place / "ran").unlink()
    if source == "file":
        done = finished("run", "num.mp4", *PROBE, "-o", "o.mp4", env=env)
    else:
        with Transmitter(place / "num.mp4", "-an") as camera:
            done = finished("run", camera.url, *PROBE, "-o", "o.mp4", "--max-frames", "50", env=env)
    assert done.code == 0, done.err
    assert not (place / "ran").exists()
    assert frames_in(place / "o.mp4") == int(done.err.split(" of ")[0].split()[-1]) > 0


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_c41_a_writer_that_fails_in_the_middle_is_said_and_the_rest_is_finished(place: Path, suffix: str) -> None:
    """No file may be larger than 300 kB: one video needs more, the other and the lines do not."""
    numbered(place / "num.mp4")
    noise = "testsrc2=s=320x240:r=25:d=4,noise=alls=100:allf=t"
    ffmpeg("-f", "lavfi", "-i", noise, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "noise.mp4")
    (place / "out").mkdir()
    args = ["run", "num.mp4", "noise.mp4", *PROBE, "-o", "out", "--jsonl", "lines.jsonl", "--report", "r.json"]
    if suffix != ".mp4":
        args = ["run", "noise.mp4", *PROBE, "-o", f"out/noise{suffix}", "--jsonl", "lines.jsonl", "--report", "r.json"]
    process = subprocess.Popen(
        [str(WATCHLINE), *args],
        env=environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)),
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    found = playable(place / f"out/noise{suffix}")
    why = f"cannot write out/noise{suffix}: File too large: the video ends after {found} of the "
    assert f"noise: {why}" in err
    assert f"annotated video, incomplete: out/noise{suffix}" in err.splitlines()
    assert f"annotated video: out/noise{suffix}" not in err
    assert "Traceback" not in err
    streams = json.loads((place / "r.json").read_text())["streams"]
    (said,) = streams["noise"]["errors"]
    assert said.startswith(why)
    assert 0 < streams["noise"]["shown"] < 100
    lines = read_lines(place / "lines.jsonl")
    assert sum(line["status"] == "ok" and line["stream"] == "noise" for line in lines) == streams["noise"]["shown"]
    assert 0 < found <= streams["noise"]["shown"] + 1
    if suffix == ".mp4":
        assert frames_in(place / "out/num.mp4") == 100
        assert values(lines, "num") == [(k, str(level(k))) for k in range(100)]


def playable(path: Path) -> int:
    """Decodable frames of a file that may be cut off at its end."""
    frames = 0
    with av.open(str(path)) as container, contextlib.suppress(av.InvalidDataError):
        for _ in container.decode(video=0):
            frames += 1
    return frames


@contextlib.contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A file system of that size, where this process may mount one."""
    at.mkdir()
    said = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], capture_output=True, text=True)
    if said.returncode:
        pytest.skip(f"needs the right to mount: {said.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_c41_a_full_disk_is_no_success(place: Path, suffix: str) -> None:
    """Video and lines are on it: the video's fault names the playable part, the lines end with a whole one."""
    noise = "testsrc2=s=320x240:r=25:d=4,noise=alls=100:allf=t"
    ffmpeg("-f", "lavfi", "-i", noise, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "noise.mp4")
    video, lines = f"full/o{suffix}", "full/o.jsonl"
    with small_disk(place / "full", "1500k"):
        done = watchline("run", "noise.mp4", *PROBE, "-o", video, "--report", "r.json")
        assert done.code == 1, done.err
        (stream,) = json.loads((place / "r.json").read_text())["streams"].values()
        (why,) = stream["errors"]
        found = playable(place / video)
        assert 0 < found <= stream["shown"] < 100
        ends = rf"the video ends after {found} of the (\d+) frames taken \(\d\.\d\d s\)"
        said = re.fullmatch(f"cannot write {video}: No space left on device: {ends}", why)
        assert said, why
        assert found <= int(said[1]) <= stream["shown"]
        assert f"annotated video, incomplete: {video}" in done.err.splitlines()
        done = watchline("run", "noise.mp4", *PROBE, "--jsonl", lines, "--report", "r.json")
        assert done.code == 1, done.err
        assert re.search(rf"^JSON lines, incomplete: {lines} \(at least \d+ of 100\)$", done.err, re.M), done.err
        assert (place / lines).read_bytes()[-1:] in (b"", b"\n")


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_c41_outputs_that_are_deleted_while_they_are_written_are_no_success(place: Path, suffix: str) -> None:
    (place / "out").mkdir()
    args = ("run", "synthetic:64x64@50", *PROBE, "-o", f"out/o{suffix}", "--jsonl", "out/o.jsonl", "--report", "r.json")
    with running(*args, "--max-frames", "150") as process:
        _until(process, lambda: (place / f"out/o{suffix}").exists() and (place / "out/o.jsonl").exists())
        shutil.rmtree(place / "out")
        _, done = ended(process, [])
    assert done.code == 1, done.err
    report = json.loads((place / "r.json").read_text())
    assert report["streams"]["synthetic-64x64@50"]["errors"] == [f"out/o{suffix} was removed while it was written"]
    assert report["errors"] == ["out/o.jsonl was removed while it was written"]
    assert "annotated video" not in done.err
    assert "JSON lines" not in done.err


# C43: the window.


def _until(process: subprocess.Popen[str], seen: Callable[[], bool]) -> None:
    """Until something is seen of a process that runs."""
    end_s = time.monotonic() + START_S
    while not seen():
        assert time.monotonic() < end_s
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            pytest.fail(f"it has ended: {process.returncode}, {process.communicate()}")


def _window_there() -> bool:
    with contextlib.suppress(IndexError):
        return bool(window_id("Watchline"))
    return False


@pytest.mark.parametrize("pace", [["--realtime"], []], ids=["paced", "as fast as it goes"])
def test_c43_a_window_shows_a_clip_to_its_end(place: Path, display: Environ, pace: list[str]) -> None:
    numbered(place / "num.mp4")
    began_s = time.monotonic()
    args = ("run", "num.mp4", *pace, "--model", "probe", "--budget-ms", "1000", "--show")
    done = finished(*args, "-o", "o.mp4", "--jsonl", "-", env=display)
    took_s = time.monotonic() - began_s
    assert done.code == 0, done.err
    assert took_s < 4 + START_S
    assert took_s > 3.9 or not pace
    assert len(done.lines) == 100
    assert frames_in(place / "o.mp4") == shown(done)
    if not pace:
        assert values(done.lines) == [(k, str(level(k))) for k in range(100)]


@pytest.mark.parametrize("flags", [["--show"], []], ids=["asked for", "by default"])
def test_c43_asking_for_the_display_does_not_make_it_go_away(place: Path, flags: list[str]) -> None:
    """Without clients an X server starts anew, as under xvfb-run, and may refuse Qt meanwhile, which aborts then: one start
    of 20. This one ends without clients, so that one is enough."""
    need("Xvfb")
    numbered(place / "num.mp4", frames=3)
    server, name = start_xvfb(place, "-terminate")
    try:
        done = finished("run", "num.mp4", "--model", "probe", *flags, env=without_display(DISPLAY=name))
        assert done.code == 0, done.err
        server.wait(START_S)  # it had a client
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("leave", [press_q, press_close], ids=["q", "close"])
@pytest.mark.parametrize("pace", [["--realtime"], []], ids=["live", "file"])
def test_c43_leaving_the_window_ends_the_run_within_a_second(
    place: Path, display: Environ, monkeypatch: pytest.MonkeyPatch, leave: Callable[[str], None], pace: list[str]
) -> None:
    numbered(place / "num.mp4", sound=True)
    monkeypatch.setenv("DISPLAY", display["DISPLAY"])
    args = ("run", "num.mp4", "--loop", *pace, "--model", "probe", "--show", "-o", "o.mp4", "--jsonl", "lines.jsonl")
    with running(*args, env=display) as process:
        _until(process, _window_there)
        _until(process, lambda: (place / "o.mp4").exists() and (place / "o.mp4").stat().st_size > 1000)
        leave("Watchline")
        took_s, done = ended(process, [])
    assert done.code == 0, done.err
    assert took_s <= 1
    accepted = sum(line["status"] == "ok" for line in read_lines(place / "lines.jsonl"))
    assert frames_in(place / "o.mp4") == accepted > 0


TWICE = """
from app.cli import main
for k in range(3):
    code = main(["run", "num.mp4", "--model", "probe", "--show", "-o", f"{k}.mp4"])
    assert code == 0, code
"""


def in_python(code: str, env: Environ) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own, in which this one's modules can be imported."""
    env = {**env, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


def test_c43_windows_one_after_the_other_in_one_process(place: Path, display: Environ) -> None:
    numbered(place / "num.mp4")
    done = in_python(TWICE, display)
    assert done.returncode == 0, done.stderr
    assert [frames_in(place / f"{k}.mp4") for k in range(3)] == [100, 100, 100]


BROKEN = """
import sys
from app.cli import main
from pipelines.render.overlay import Overlay
def broken(*_):
    raise KeyError("font")
Overlay.render = broken
sys.exit(main(["run", "synthetic:64x64@50", "--model", "probe", "--show", "--jsonl", "lines.jsonl", "--report", "r.json"]))
"""


def test_c43_a_window_that_cannot_draw_ends_the_run(place: Path, display: Environ) -> None:
    """An error in the main thread must not leave the cameras running behind a window that is gone."""
    done = in_python(BROKEN, display)
    assert done.returncode == 1, done.stderr
    assert "'font' (KeyError in the window)" in done.stderr
    assert "Traceback" not in done.stderr
    lines = read_lines(place / "lines.jsonl")
    assert lines
    assert json.loads((place / "r.json").read_text())["streams"]["synthetic-64x64@50"]["captured"] == len(lines)
