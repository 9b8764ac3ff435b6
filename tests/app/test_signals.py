"""SIGINT and SIGTERM at any moment, from the program's first line to the interpreter's end: its code and a word."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clips import lumas, numbered
from tests.command import PROBE, environ, read_lines

AT = """
import os, signal, sys
from app.cli import main

number, moment, *sys.argv = sys.argv[1:]
number = int(number)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)

if moment == "exit":
    import atexit
    atexit.register(os.kill, os.getpid(), number)
elif moment == "report":
    from app.run import ending
    write = ending._write_report
    def noisy(*args, **named):
        os.kill(os.getpid(), number)
        return write(*args)
    ending._write_report = noisy
elif moment == "warm-up":
    import threading
    from app.run import job
    from pipelines.predict.engines.probe import ProbeEngine
    stopped, stop, warm = threading.Event(), job.Job.stop, ProbeEngine.open
    def stop_and_say(self):
        stop(self)
        stopped.set()
    def slow(self, *args):
        os.kill(os.getpid(), number)
        assert stopped.wait(30)
        return warm(self, *args)
    job.Job.stop, ProbeEngine.open = stop_and_say, slow
elif moment == "drawing":
    from pipelines.render.overlay import Overlay
    def broken(*args):
        os.kill(os.getpid(), number)
        raise ZeroDivisionError("the drawing broke")
    Overlay.render = broken
elif moment == "hanging":
    import threading
    from pipelines.render.overlay import Overlay
    from pipelines.sinks.video import VideoFile
    show, render, nobody, held = VideoFile.show, Overlay.render, threading.Event(), threading.Event()
    def hold(self, frame, picture):
        if frame.stream == "held":
            with self._lock:
                held.set()
                nobody.wait()
        show(self, frame, picture)
    def hang(self, frame, *args):
        if (frame.stream, frame.index) == ("hung", 100):
            assert held.wait(30)
            os.kill(os.getpid(), number)
            nobody.wait()
        return render(self, frame, *args)
    VideoFile.show, Overlay.render = hold, hang
elif moment == "lines":
    import threading
    from pipelines.sinks.line_output import LineOutput
    write = LineOutput.write
    def hang(self, lines):
        write(self, lines)
        os.kill(os.getpid(), number)
        threading.Event().wait()
    LineOutput.write = hang
elif moment == "table":
    from app.terminal.console import RunScreen
    def broken(self):
        raise ZeroDivisionError("the table broke")
    RunScreen.refresh = broken
elif moment == "twice":
    from app import build
    def noisy(*args, **named):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    build.make_model = noisy
else:
    sys.meta_path.insert(0, Finder())
sys.exit(main())
"""


def signalled(moment: str, number: int, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command; it gets the signal when it imports the module `moment`, or as the word says."""
    command = [sys.executable, "-c", AT, str(int(number)), moment, "watchline", *args]
    return subprocess.run(command, env=environ(), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("moment", ["app.flags", "argparse", "rich.console", "app.run.job"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_before_anything_began(place: Path, moment: str, number: signal.Signals, code: int) -> None:
    done = signalled(moment, number, "run", "synthetic:64x64@25", *PROBE, "--jsonl", "out.jsonl")
    assert done.returncode == code, done.stderr
    assert done.stderr == f"watchline: ended by {number.name}\n"
    assert not (place / "out.jsonl").exists()


@pytest.mark.parametrize("command", ["doctor", "bench", "demo"])
def test_other_commands(place: Path, command: str) -> None:
    modules = {"doctor": "app.commands.doctor", "bench": "app.bench", "demo": "app.run.run"}
    done = signalled(modules[command], signal.SIGINT, command)
    assert (done.returncode, done.stderr) == (130, "watchline: ended by SIGINT\n")


def test_when_all_is_done_and_python_ends(place: Path) -> None:
    numbered(place / "num.mp4", frames=5)
    done = signalled("exit", signal.SIGTERM, "run", "num.mp4", *PROBE, "-q", "--report", "r.json")
    assert (done.returncode, done.stderr) == (143, "watchline: ended by SIGTERM\n")
    assert (place / "r.json").stat().st_size > 0


def test_while_the_report_is_written(place: Path) -> None:
    numbered(place / "num.mp4", frames=5)
    done = signalled("report", signal.SIGINT, "run", "num.mp4", *PROBE, "-q", "--report", "r.json")
    assert (done.returncode, done.stderr) == (130, "")
    assert (place / "r.json").stat().st_size > 0


def test_a_fault_of_the_program_is_said_all_the_same(place: Path) -> None:
    numbered(place / "num.mp4", frames=5)
    done = signalled("drawing", signal.SIGTERM, "run", "num.mp4", *PROBE, "-o", "out.mp4", "--report", "/dev/full")
    assert done.returncode == 143
    assert "the drawing broke (ZeroDivisionError in thread lane:num)" in done.stderr
    assert "cannot write the report to '/dev/full'" in done.stderr


def test_an_output_that_a_hanging_thread_holds_keeps_no_other_from_being_finished(place: Path) -> None:
    (place / "out").mkdir()
    numbered(place / "held.mp4", frames=200)
    numbered(place / "hung.mp4", frames=200)
    args = ("run", "held.mp4", "hung.mp4", *PROBE, "-o", "out", "--jsonl", "out.jsonl")
    done = signalled("hanging", signal.SIGTERM, *args)
    assert done.returncode == 143, done.stderr
    assert "still running after 2.5 s" in done.stderr
    lines = read_lines(place / "out.jsonl")
    assert [k["frame"] for k in lines if k["stream"] == "hung"] == list(range(100))
    assert len(list(lumas(place / "out/hung.mp4"))) == 100


def test_lines_whose_disk_hangs_are_left_behind(place: Path) -> None:
    done = signalled("lines", signal.SIGTERM, "run", "synthetic:64x64@50", *PROBE, "-o", "out.mp4", "--jsonl", "out.jsonl")
    assert done.returncode == 143, done.stderr
    assert "still running after 2.5 s: consume:JSON lines" in done.stderr
    assert read_lines(place / "out.jsonl")
    assert list(lumas(place / "out.mp4"))


def test_a_fault_of_the_table_ends_the_run_in_order(place: Path) -> None:
    done = signalled("table", signal.SIGTERM, "run", "synthetic:64x64@50", *PROBE, "-o", "out.mp4", "--report", "r.json")
    assert done.returncode == 1, done.stderr
    assert "the table broke" in done.stderr
    (stream,) = json.loads((place / "r.json").read_text())["streams"].values()
    assert len(list(lumas(place / "out.mp4"))) == stream["shown"]


def test_while_the_model_warms_up(place: Path) -> None:
    args = ("run", "synthetic:64x64@25", "synthetic:32x32@25", *PROBE, "-q", "--report", "r.json")
    done = signalled("warm-up", signal.SIGINT, *args)
    assert (done.returncode, done.stderr) == (130, "")
    streams = json.loads((place / "r.json").read_text())["streams"]
    assert [s["captured"] for s in streams.values()] == [0, 0]


def test_twice_while_the_model_is_loaded(place: Path) -> None:
    done = signalled("twice", signal.SIGTERM, "run", "synthetic:64x64@25", *PROBE)
    assert done.returncode == 143
    assert "Traceback" not in done.stderr
