"""The end of a run: after bad input, with a dead source, by signals; and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import av
import numpy as np
import pytest

from app.run import run
from pipelines.predict.engines.engine import Slot
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.predictor import AsyncBatchPredictor
from pipelines.sinks.display import Display
from pipelines.sinks.window import Window, WindowEvent
from tests.clips import Planes, level, lumas, numbered, write
from tests.command import PROBE, WATCHLINE, Done, environ, finished, read_lines, running, values, watchline
from tests.servers.peers import HttpFiles, SilentPeer

SECRET = "geheim"
SLOW = ("--loop", "--max-batch", "4", "--probe-ms-per-frame", "10")
"""A file that does not end, at 100 frames/s."""


def all_files(place: Path) -> set[Path]:
    return set(place.rglob("*"))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of three frames."""
    return numbered(tmp_path_factory.mktemp("short") / "num.mp4", frames=3)


class TestBadInput:
    """Exit 2, one line with the given value and a remedy, no traceback, no output."""

    def refused(self, place: Path, *args: str) -> str:
        before = all_files(place)
        done = watchline("run", *args, *([] if "--model" in args else ["--model", "probe"]), "--no-show")
        assert done.code == 2, done.err
        (line,) = done.errors()
        assert "Traceback" not in done.err
        assert "\x1b" not in done.err
        assert all_files(place) == before
        assert done.out == ""
        return line

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["\x1bnope\n.mp4"], ["\\x1bnope\\n: no such file: '\\x1bnope\\n.mp4'"]),
            (["nope.mp4"], ["nope", "no such file: 'nope.mp4'", "give an existing file"]),
            (["text.mp4"], ["text", "no video that can be decoded"]),
            (["empty.mp4"], ["empty", "the file is empty"]),
            (["sound.m4a"], ["sound", "no video"]),
            (["text.jpg"], ["text", "text.jpg", "no picture that can be decoded"]),
            (["x" * 300], ["File name too long"]),
            (["num.mp4", "-o", "x" * 300 + ".mp4"], ["File name too long"]),
            (["num.mp4", "--jsonl", "x" * 300], ["File name too long"]),
            (["num.mp4", "--labels", "x" * 300], ["File name too long"]),
            (["num.mp4", "--config", "x" * 300], ["File name too long"]),
            (["num.mp4", "--model", "x" * 300 + ".onnx"], ["File name too long"]),
            (["987"], ["no camera at /dev/video987"]),
            (["num.mp4", "--model", "none.onnx"], ["no model file 'none.onnx'"]),
            (["num.mp4", "--model", "text.onnx"], ["text.onnx"]),
            (["num.mp4", "--model", "text.pt"], ["text.pt", "weights_only"]),
            pytest.param(
                ["num.mp4", "--model", "text.pt2"],
                ["text.pt2", "torch.export.save"],
            ),
            (["num.mp4", "--model", "resnet5O"], ["no model named 'resnet5O'", "Allowed: lite0", "Near:", "resnet50"]),
            (["num.mp4", "--model", "timm:resnet5O"], ["no model named 'timm:resnet5O'", "timm:resnet50"]),
            (["num.mp4", "--labels", "two.txt"], ["2 labels", "256 classes"]),
            (["num.mp4", "--labels", "nope.txt"], ["'nope.txt'", "No such file"]),
            (["num.mp4", "--labels", "bytes.txt"], ["'bytes.txt'", "UTF-8"]),
            (["num.mp4", "-o", "out.avi"], ["'.avi'", ".mp4"]),
            (["num.mp4", "-o", "nowhere/out.mp4"], ["nowhere/out.mp4"]),
            (["num.mp4", "-o", "num.mp4"], ["num.mp4", "one of the sources"]),
            (["num.mp4", "--engine", "foo"], ["'foo'", "openvino", "--help"]),
            (["num.mp4", "--max-batch", "many"], ["--max-batch", "'many'"]),
            (["num.mp4", "--nonsense"], ["--nonsense", "--help"]),
            (["num.mp4", "--topk", "0"], ["--topk", "got 0"]),
            ([], ["no source was given"]),
        ],
    )
    def test_it_is_one_line(self, place: Path, short: Path, args: list[str], words: list[str]) -> None:
        shutil.copy(short, place / "num.mp4")
        for name in ("text.mp4", "text.jpg", "text.onnx", "text.pt", "text.pt2"):
            (place / name).write_text("hello")
        (place / "empty.mp4").touch()
        (place / "two.txt").write_text("a\nb\n")
        (place / "bytes.txt").write_bytes(b"\xff\xfe")
        if "sound.m4a" in args:
            numbered(place / "with.mp4", frames=3, sound=True)
            subprocess.run(["ffmpeg", "-v", "error", "-i", "with.mp4", "-vn", "-c", "copy", "sound.m4a"], check=True)
        line = self.refused(place, *args)
        assert all(word in line for word in words), line

    @pytest.mark.usefixtures("first_use")
    def test_labels_that_do_not_match_the_default_model(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        (place / "two.txt").write_text("a\nb\n")
        line = self.refused(place, "num.mp4", "--model", "lite0", "--labels", "two.txt", "-o", "out.mp4")
        assert "2 labels" in line
        assert "1000 classes" in line

    def test_a_window_without_a_display(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        done = finished("run", "num.mp4", "--model", "probe", "--show", "-o", "out.mp4")
        assert done.code == 2
        (line,) = done.errors()
        assert "--show" in line
        assert not (place / "out.mp4").exists()

    def test_no_window_without_a_display_unless_asked(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        assert finished("run", "num.mp4", "--model", "probe").code == 0

    def test_an_error_in_the_predictor_ends_cameras_too(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A camera never ends by itself: nobody may watch a run in which nothing is predicted any more."""

        def broken(*_: object) -> None:
            raise ZeroDivisionError("device")

        monkeypatch.setattr(AsyncBatchPredictor, "_stage", broken)
        done = watchline("run", "synthetic:64x64@25", *PROBE, "--jsonl", "out.jsonl")
        assert done.code == 1
        assert "device (ZeroDivisionError in thread predict:cpu)" in done.err
        assert read_lines(place / "out.jsonl")[0]["status"] == "failed"

    def test_the_traceback_comes_with_verbose(self, place: Path) -> None:
        done = watchline("run", "nope.txt.mp4", "--config", "nope.yaml", "-v")
        assert done.code == 2
        assert "Traceback" in done.err


class TestDeadSources:
    def test_the_others_go_on(self, place: Path) -> None:
        numbered(place / "a.mp4", frames=30)
        (place / "text.mp4").write_text("hello")
        sources = ("nope.mp4", "a.mp4", "text.mp4", "http://127.0.0.1:1/gone.mp4")
        (place / "out").mkdir()
        done = watchline("run", *sources, *PROBE, "--no-reconnect", "--jsonl", "out.jsonl", "-o", "out")
        assert done.code == 1, done.err
        assert [p.name for p in (place / "out").iterdir()] == ["a.mp4"]
        assert len(list(lumas(place / "out/a.mp4"))) == 30
        assert values(read_lines(place / "out.jsonl"), "a") == [(k, str(level(k))) for k in range(30)]
        assert [k.split(":")[0] for k in done.errors() if not k.startswith(" ")] == ["nope", "text", "127.0.0.1-gone.mp4"]

    def test_nothing_could_start(self) -> None:
        done = watchline("run", "http://127.0.0.1:1/a.mp4", "rtsp://127.0.0.1:1/cam", *PROBE, "--no-reconnect")
        assert done.code == 2
        assert len([k for k in done.errors() if not k.startswith(" ")]) == 2

    @pytest.mark.parametrize(("status", "word"), [(401, "401"), (403, "403"), (404, "404")])
    def test_what_no_retry_can_mend_ends_it(self, place: Path, status: int, word: str) -> None:
        with HttpFiles(place, answers={"/a.mp4": status}) as files:
            done = watchline("run", files.url("a.mp4"), *PROBE)
        assert done.code == 2
        assert word in done.err

    def test_an_unknown_host(self) -> None:
        done = watchline("run", "rtsp://host.invalid/cam", *PROBE)
        assert done.code == 2
        assert "'host.invalid' is not known" in done.err


def noise(number: int) -> Planes:
    """A picture that no encoder makes small."""
    rng = np.random.default_rng(number)
    y, u, v = (rng.integers(16, 236, shape, dtype=np.uint8) for shape in ((120, 160), (60, 80), (60, 80)))
    return y, u, v


class TestNothingGood:
    def test_a_stream_of_which_every_frame_is_corrupt(self, place: Path) -> None:
        """A file that was there before the run is not named as its result."""
        numbered(place / "out.mp4", frames=3)
        before = (place / "out.mp4").read_bytes()
        numbered(place / "num.mkv", frames=20, size=(320, 240), gop=250)
        damaged(place / "num.mkv", place / "bad.mkv")
        done = watchline("run", "bad.mkv", *PROBE, "-o", "out.mp4", "--report", "r.json")
        (report,) = json.loads((place / "r.json").read_text())["streams"].values()
        assert report["shown"] == 0
        assert report["errors"] == [f"no frame of it could be shown: {report['captured']} corrupt"]
        assert done.code == 1
        assert "annotated video: " not in done.err
        assert "not written, as it was before: out.mp4" in done.errors()
        assert (place / "out.mp4").read_bytes() == before

    def test_a_model_whose_answers_are_no_numbers(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        nan = np.full((32, 256), np.nan, np.float32)
        monkeypatch.setattr(ProbeEngine, "wait", lambda self, slot, n: (nan[:n],))
        numbered(place / "num.mp4", frames=3)
        done = watchline("run", "num.mp4", *PROBE, "--jsonl", "-")
        assert done.code == 1
        assert [k["status"] for k in done.lines] == ["failed"] * 3
        assert done.errors()[:2] == [
            "num: frame 0 failed: the engine answered values that are not numbers",
            "num: no frame of it could be shown: 3 failed",
        ]

    def test_frames_that_were_skipped_on_purpose_are_no_failure(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=5)
        assert watchline("run", "num.mp4", *PROBE, "--stride", "9", "--jsonl", "-").code == 0


def damaged(source: Path, path: Path) -> None:
    """The same packets, the first of which, on which all others lean, has nothing good in its second half."""
    with av.open(str(source)) as old:
        data = bytes(next(old.demux(video=0)))
    half = data[len(data) // 2 :]
    whole = source.read_bytes()
    assert whole.count(half) == 1
    path.write_bytes(whole.replace(half, bytes(len(half))))


class TestOutputsThatFail:
    """One fault, said once and in the report; the others are finished, and the ledger holds."""

    def balanced(self, path: Path) -> dict[str, Any]:
        """The report; every frame of its streams is accounted for."""
        report: dict[str, Any] = json.loads(path.read_text())
        for s in report["streams"].values():
            assert s["captured"] == s["shown"] + sum(s["dropped"].values()) + s["failed"]
        return report

    def test_the_lines(self, place: Path) -> None:
        """/dev/full takes nothing."""
        numbered(place / "num.mp4", frames=50)
        done = watchline("run", "num.mp4", *PROBE, "-o", "out.mp4", "--jsonl", "/dev/full", "--report", "r.json")
        why = "cannot write JSON lines to /dev/full: No space left on device"
        assert (done.code, done.errors()) == (1, [why, "JSON lines, incomplete: /dev/full (at least 0 of 50)"])
        assert len(list(lumas(place / "out.mp4"))) == 50
        report = self.balanced(place / "r.json")
        assert report["errors"] == [why]
        assert report["streams"]["num"]["shown"] == 50

    def test_the_video(self, place: Path) -> None:
        """A limit of 100 kB stands for a full disk: the lines need less."""
        write(place / "num.mp4", (noise(k) for k in range(60)), size=(160, 120))
        command = [str(WATCHLINE), "run", "num.mp4", *PROBE, "-o", "out.mp4", "--jsonl", "out.jsonl", "--report", "r.json"]
        limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "-", *command]
        done = subprocess.run(limited, env=environ(), capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        assert done.stderr.count("cannot write out.mp4: File too large") == 1
        assert [k["frame"] for k in read_lines(place / "out.jsonl")] == list(range(60))
        stream = self.balanced(place / "r.json")["streams"]["num"]
        assert (stream["shown"], stream["failed"]) == (59, 1)
        (why,) = stream["errors"]
        assert why.startswith("cannot write out.mp4: File too large: the video ends after ")
        assert "annotated video, incomplete: out.mp4" in done.stderr.splitlines()
        assert "annotated video: " not in done.stderr

    def test_the_only_one(self, place: Path) -> None:
        """Nobody wants the rest: a file that never ends is over soon after its reader has gone."""
        numbered(place / "num.mp4")
        with running("run", "num.mp4", "synthetic:64x64@2", *PROBE, "--loop", "--jsonl", "-", cwd=place) as process:
            lines_of(process.stdout, 1)
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            said = process.stderr.read()
            assert process.wait(20) == 1
        assert said.count("cannot write JSON lines to standard output: Broken pipe") == 1
        assert re.search(r"^JSON lines, incomplete: standard output \(at least \d+ of \d+\)$", said, re.M)
        assert "Exception" not in said

    def test_the_report(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        done = watchline("run", "num.mp4", *PROBE, "--report", "/dev/full")
        assert (done.code, done.errors()) == (1, ["cannot write the report to '/dev/full': No space left on device"])
        assert "report: " not in done.err

    def test_standard_output(self, place: Path) -> None:
        """Of any command: one line, no traceback."""
        numbered(place / "num.mp4", frames=3)
        for command in (["doctor"], ["run", "num.mp4", *PROBE, "-q", "--report", "-"]):
            with Path("/dev/full").open("w") as full:
                done = subprocess.run([str(WATCHLINE), *command], stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 1
            assert done.stderr.count("standard output: No space left on device") == 1
            assert len(done.stderr.splitlines()) == 1

    def test_many_videos_are_named_and_the_rest_is_counted(self, place: Path) -> None:
        (place / "out").mkdir()
        (place / "in").mkdir()
        clip = numbered(place / "in/a.mp4", frames=2).read_bytes()
        for k in range(11):
            (place / f"in/b{k}.mp4").write_bytes(clip)
        done = watchline("run", "in", *PROBE, "-o", "out")
        assert done.code == 0
        assert done.err.count("annotated video: ") == 10
        assert "... and 2 more annotated videos" in done.errors()


SLIPS = (" rtsp://u:{}@h/c", "rtsp//u:{}@h/c", "rtsp:/u:{}@h/c", "u:{}@h")
FLAGS = ("-o", "--jsonl", "--report", "--config", "--labels", "--model", "--camera=", "--topk", "--fit")


class TestPasswords:
    """No output shows the password of an address, in any case of failure and with all messages."""

    SOURCES = (
        f"rtsp://user:{SECRET}@127.0.0.1:1/cam",
        f"rtsp://user:{SECRET}@host.invalid/cam",
        f"http://user:{SECRET}@127.0.0.1:1/cam.mp4?password={SECRET}&token={SECRET}",
        f"rtmp://user:{SECRET}@127.0.0.1:1/app/{SECRET[:0]}cam",
        f"foo://user:{SECRET}@127.0.0.1/cam",
        f"rtsp://user:{SECRET}@{SECRET}@127.0.0.1/cam",
        f"rtsp://127.0.0.1:1/user=a_password={SECRET}_channel=1.sdp",
        f"rtsp://127.0.0.1:1/admin:{SECRET}/s?{SECRET}",
        f"rtsp://admin:{SECRET}/stream1",
    )

    @pytest.mark.parametrize("source", SOURCES)
    @pytest.mark.parametrize("reconnect", [True, False])
    def test_never(self, place: Path, short: Path, source: str, reconnect: bool) -> None:
        outputs = ("--jsonl", "j.jsonl", "--report", "r.json", "-o", "v.mp4")
        again = "--reconnect" if reconnect else "--no-reconnect"
        limits = ("--open-timeout", "2", "--read-timeout", "2", "--max-frames", "5")
        shutil.copy(short, place / "num.mp4")
        with running("run", source, "num.mp4", *PROBE, "-v", again, *limits, *outputs[:4], cwd=place) as process:
            said = _say_until(process, "trying again" if reconnect else None)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate()
        written = "".join(p.read_text() for p in place.iterdir() if p.suffix in (".jsonl", ".json"))
        assert SECRET not in said + out + err + written
        assert "Traceback (most" not in said or "UsageError" in said

    @pytest.mark.parametrize(
        ("flag", "slip"), [*(("", slip) for slip in SLIPS), *((flag, SLIPS[k % len(SLIPS)]) for k, flag in enumerate(FLAGS))]
    )
    def test_wherever_it_lands(self, place: Path, short: Path, slip: str, flag: str) -> None:
        """Every slip as a source, and one of them behind each flag: which slips are hidden is a matter of test_redact."""
        source = slip.format(SECRET)
        where = [flag + source] if flag.endswith("=") else [*[flag] * bool(flag), source]
        shutil.copy(short, place / "num.mp4")
        done = watchline("run", "num.mp4", *PROBE, *where, "-v")
        assert done.code == 2
        assert done.err
        assert SECRET not in done.out + done.err

    def test_with_doctor(self) -> None:
        for source in (*self.SOURCES[:3], *self.SOURCES[-3:]):
            done = watchline("doctor", source)
            assert done.code == 1
            assert SECRET not in done.out + done.err

    def test_in_a_file_that_is_right(self, place: Path) -> None:
        """Nor when all is well: names, report and overlay know the host and the path only."""
        numbered(place / "num.mp4", frames=3)
        with HttpFiles(place, user="user", password=SECRET) as files:
            url = files.url("num.mp4", f"user:{SECRET}")
            done = watchline("run", url, *PROBE, "-v", "--jsonl", "-", "--report", "r.json")
        assert done.code == 0, done.err
        assert len(done.lines) == 3
        assert SECRET not in done.out + done.err + (place / "r.json").read_text()

    def test_given_apart_it_arrives_as_it_is(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        password = "p@s#s:w/%^!"
        monkeypatch.setenv("DOOR", password)
        numbered(place / "num.mp4", frames=3)
        with HttpFiles(place, user="user", password=password) as files:
            source = files.url("num.mp4")
            (place / "c.yaml").write_text(f"streams: {{door: {{source: '{source}', user: user, password: '${{DOOR}}'}}}}\n")
            done = watchline("run", "--config", "c.yaml", *PROBE, "--jsonl", "-")
        assert done.code == 0, done.err
        assert len(done.lines) == 3
        assert password not in done.out + done.err


@contextmanager
def _hanging(clip: Path) -> Iterator[subprocess.Popen[str]]:
    """A run with a working thread in a read that never ends."""
    pipe = clip.parent / "labels.txt"
    os.mkfifo(pipe)
    with running("run", "num.mp4", *PROBE, "--labels", "labels.txt", "-o", "out.mp4", cwd=clip.parent) as process:
        end: int | None = None
        while end is None:
            assert wait_a_little(process) is None
            try:
                end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # refused until somebody reads
            except OSError:
                continue
        try:
            yield process
        finally:
            os.close(end)


def _say_until(process: subprocess.Popen[str], word: str | None) -> str:
    """The text on standard error up to a word, or to the end."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if word is not None and word in line:
            break
    return said


def lines_of(stdout: IO[str] | None, count: int) -> list[str]:
    """Wait for so many lines: each is a frame that was shown."""
    assert stdout is not None
    # Byte by byte: `communicate` loses the lines that a buffered reader holds.
    read = b""
    while read.count(b"\n") < count:
        byte = os.read(stdout.fileno(), 1)
        assert byte, "the command ended before"
        read += byte
    return read.decode().splitlines(keepends=True)


class TestSignals:
    @pytest.fixture
    def clip(self, place: Path) -> Path:
        return numbered(place / "num.mp4", sound=True)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
    @pytest.mark.parametrize("source", ["num.mp4", "synthetic:64x64@50"])
    def test_ends_in_time_with_outputs_finished(self, clip: Path, number: signal.Signals, code: int, source: str) -> None:
        slow = SLOW if source == "num.mp4" else ()
        with running("run", source, *PROBE, *slow, "-o", "out.mp4", "--jsonl", "-", cwd=clip.parent) as process:
            lines = lines_of(process.stdout, 60)
            began_s = time.monotonic()
            process.send_signal(number)
            out, err = process.communicate()
            took_s = time.monotonic() - began_s
        assert process.returncode == code, err
        assert took_s < 3
        assert "Traceback" not in err
        done = Done(code, "".join(lines) + out, err)
        shown = [k["frame"] for k in done.lines if k["status"] == "ok"]
        assert len(list(lumas(clip.parent / "out.mp4"))) == len(shown)
        assert [k["frame"] for k in done.lines] == list(range(len(done.lines)))

    def test_the_file_of_lines_is_whole_too(self, clip: Path) -> None:
        args = ("run", "num.mp4", *PROBE, *SLOW, "-o", "out.mp4", "--jsonl", "out.jsonl", "--report", "r.json")
        with running(*args, cwd=clip.parent) as process:
            wait_for_size(clip.parent / "out.jsonl", 5000)
            process.send_signal(signal.SIGINT)
            process.communicate()
        assert process.returncode == 130
        lines = read_lines(clip.parent / "out.jsonl")
        shown = sum(k["status"] == "ok" for k in lines)
        assert len(list(lumas(clip.parent / "out.mp4"))) == shown
        assert (clip.parent / "r.json").stat().st_size > 0

    @pytest.mark.parametrize("rate", [25, 1])
    def test_kill(self, place: Path, rate: int) -> None:
        """Nobody can finish anything: the file plays but for its last 2 s, be it two frames. (Of more encoder threads than
        this machine may have cores for: tests/sinks/test_video.py.)"""
        numbered(place / "num.mp4", rate=rate, sound=rate > 1)
        with running("run", "num.mp4", *PROBE, *SLOW, "-o", "out.mp4", "--jsonl", "-", cwd=place) as process:
            lines_of(process.stdout, 200)
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert len(list(lumas(place / "out.mp4"))) >= 200 - 2 * rate

    def test_a_second_signal_ends_at_once(self, clip: Path) -> None:
        """Reading labels from a pipe that nobody fills cannot be interrupted: only the second signal, or the last resort
        after 2.5 s, ends that."""
        with _hanging(clip) as process:
            began_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert wait_a_little(process) is None
            process.send_signal(signal.SIGINT)
            process.communicate()
            took_s = time.monotonic() - began_s
        assert process.returncode == 130
        assert took_s < 1.5

    def test_the_last_resort(self, clip: Path) -> None:
        with _hanging(clip) as process:
            began_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
            took_s = time.monotonic() - began_s
        assert process.returncode == 143
        assert took_s < 3
        assert "still running after 2.5 s: run" in err

    @pytest.mark.parametrize("source", ["rtsp", "http", "tcp"])
    def test_while_a_source_says_nothing(self, place: Path, source: str) -> None:
        with SilentPeer() as peer, running("run", peer.url(source), *PROBE, cwd=place) as process:
            assert peer.accepted.wait(30)
            began_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.communicate()
            assert process.returncode == 143
            assert time.monotonic() - began_s < 3


class TestQuit:
    """q in the window, at any moment: 0, with a report."""

    def test_while_the_model_warms_up(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        warming, closed = threading.Event(), threading.Event()
        warm = ProbeEngine.open

        class Impatient(Window):
            def refresh(self, wait_s: float) -> WindowEvent:
                return "quit" if warming.wait(wait_s) else "nothing"

            def close(self) -> None:
                closed.set()

        def slow(self: ProbeEngine, max_batch: int, slots: int) -> list[Slot]:
            warming.set()
            assert closed.wait(30)
            return warm(self, max_batch, slots)

        monkeypatch.setattr(run, "Window", Impatient)
        monkeypatch.setattr(run, "open_display", lambda environ: Display((640, 480), None))
        monkeypatch.setattr(ProbeEngine, "open", slow)
        numbered(place / "num.mp4", frames=3)
        done = watchline("run", "num.mp4", "nope.mp4", "--model", "probe", "--show", "--report", "r.json", "--jsonl", "-")
        assert (done.code, done.out) == (1, "")  # for the file that is not there
        done = watchline("run", "num.mp4", "--model", "probe", "--show", "--report", "r.json", "--jsonl", "-")
        assert (done.code, done.errors()) == (0, [])
        report = json.loads((place / "r.json").read_text())
        assert (report["streams"]["num"]["captured"], report["streams"]["num"]["errors"]) == (0, [])


def wait_for_size(path: Path, size: int) -> None:
    """Until a file that another process writes has so many bytes."""
    nobody, end_s = threading.Event(), time.monotonic() + 30
    while not (path.exists() and path.stat().st_size >= size):
        assert time.monotonic() < end_s, f"{path} does not grow"
        nobody.wait(0.02)


def wait_a_little(process: subprocess.Popen[str]) -> int | None:
    """The exit code if the process ends now."""
    try:
        return process.wait(0.1)
    except subprocess.TimeoutExpired:
        return None


class TestNothingIsLeft:
    """Threads and children are looked for after every test (conftest.py); here file descriptors and shared memory."""

    @staticmethod
    def held() -> tuple[int, set[str]]:
        return len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))

    @pytest.mark.parametrize(
        "args",
        [
            ["num.mp4", "-o", "out.mp4", "--jsonl", "out.jsonl", "--report", "r.json"],
            ["nope.mp4"],
            ["text.mp4", "num.mp4"],
            ["rtsp://127.0.0.1:1/cam", "--no-reconnect"],
            ["http://127.0.0.1:1/a.mp4", "--no-reconnect"],
            ["synthetic:64x64@100", "--max-frames", "10"],
            ["num.mp4", "--labels", "text.mp4"],
            ["num.mp4", "-o", "out.mp4", "--jsonl", "/dev/full"],
        ],
    )
    def test_after(self, place: Path, args: list[str]) -> None:
        numbered(place / "num.mp4", frames=20, sound=True)
        (place / "text.mp4").write_text("hello")
        watchline("run", *args, *PROBE)  # libraries open some files once and keep them
        before = self.held()
        for _ in range(3):
            watchline("run", *args, *PROBE)
        assert self.held() == before
