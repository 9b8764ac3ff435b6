"""The command line from end to end: every frame once, in order, with its own answer; the outputs and their places."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PIL import Image

from app.flags import EXIT_CODES, parser
from pipelines.render import fonts
from tests.clips import level, lumas, number_of, numbered
from tests.command import PROBE, finished, read_lines, values, watchline

HEAVY = {"av", "cv2", "numpy", "openvino", "PIL", "rich", "timm", "torch", "torchvision", "yaml"}


class TestEveryFrameItsOwnAnswer:
    @pytest.mark.parametrize("batch", [1, 7, 32])
    def test_one_stream(self, place: Path, batch: int) -> None:
        numbered(place / "num.mp4")
        done = watchline("run", "num.mp4", *PROBE, "--jsonl", "out.jsonl", "--max-batch", str(batch))
        assert done.code == 0, done.err
        lines = read_lines(place / "out.jsonl")
        assert values(lines) == [(k, str(level(k))) for k in range(100)]
        assert max(line["batch"]["size"] for line in lines) <= batch

    @pytest.mark.parametrize("batch", [1, 7, 32])
    def test_eight_streams(self, place: Path, batch: int) -> None:
        """Different lengths and offsets, so that a swapped stream shows."""
        lengths = {f"clip{k}": (20 + 13 * k, 11 * k) for k in range(8)}
        for name, (frames, first) in lengths.items():
            numbered(place / f"{name}.mp4", frames=frames, first=first)
        sources = [f"{name}.mp4" for name in lengths]
        done = watchline("run", *sources, *PROBE, "--jsonl", "out.jsonl", "--max-batch", str(batch))
        assert done.code == 0, done.err
        lines = read_lines(place / "out.jsonl")
        for name, (frames, first) in lengths.items():
            assert values(lines, name) == [(k, str(level(first + k))) for k in range(frames)], name
        assert len(lines) == sum(frames for frames, _ in lengths.values())

    def test_the_picture_that_is_written_is_the_frame_that_was_read(self, place: Path) -> None:
        """The overlay covers part of the picture; the lower right corner of a big one is free."""
        numbered(place / "num.mp4", size=(640, 480), sound=True)
        done = watchline("run", "num.mp4", *PROBE, "-o", "out.mp4", "--jsonl", "-")
        assert done.code == 0, done.err
        drawn = list(lumas(place / "out.mp4"))
        assert len(drawn) == len(done.lines) == 100
        # A constant panel moves the mean; the rest must rise with the frame number.
        assert all(b > a for a, b in itertools.pairwise(drawn))
        assert [number_of(v) for v in lumas(place / "num.mp4")] == list(range(100))


class TestSelection:
    def test_max_frames(self, place: Path) -> None:
        numbered(place / "num.mp4")
        done = watchline("run", "num.mp4", *PROBE, "--jsonl", "-", "--max-frames", "7")
        assert (done.code, values(done.lines)) == (0, [(k, str(level(k))) for k in range(7)])

    def test_stride(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=10)
        done = watchline("run", "num.mp4", *PROBE, "--jsonl", "-", "--stride", "3", "--report", "r.json")
        shown = [line for line in done.lines if line["status"] == "ok"]
        assert values(shown) == [(k, str(level(k))) for k in (0, 3, 6, 9)]
        assert {line["cause"] for line in done.lines if line["status"] == "dropped"} == {"skipped"}
        report = json.loads((place / "r.json").read_text())
        assert report["streams"]["num"]["dropped"]["skipped"] == 6
        assert report["goodput"] == 1.0

    def test_max_fps(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=50)
        done = watchline("run", "num.mp4", *PROBE, "--jsonl", "-", "--max-fps", "5")
        assert [line["frame"] for line in done.lines if line["status"] == "ok"] == list(range(0, 50, 5))

    def test_a_loop_numbers_on(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=10)
        done = watchline("run", "num.mp4", *PROBE, "--jsonl", "-", "--loop", "--max-frames", "25")
        assert values(done.lines) == [(k, str(level(k % 10))) for k in range(25)]

    def test_realtime_makes_a_file_live(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=10)
        done = watchline("run", "num.mp4", *PROBE, "--realtime", "--report", "-")
        report = json.loads(done.out)
        assert report["streams"]["num"]["live"]
        assert report["latency_ms"]["total"]["p99"] < 200  # a file's frames would wait for their batch

    def test_synthetic_is_live(self) -> None:
        done = watchline("run", "synthetic:64x64@100", *PROBE, "--max-frames", "20", "--jsonl", "-")
        assert done.code == 0
        assert [k["frame"] for k in done.lines] == list(range(20))
        assert all(k["labels"][0]["name"] == str(16 + k["frame"]) for k in done.lines if k["status"] == "ok")


class TestOutputs:
    def test_a_line_is_as_documented(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        line = watchline("run", "num.mp4", *PROBE, "--jsonl", "-", "--topk", "2").lines[2]
        assert (line["stream"], line["session"], line["frame"], line["pts_s"], line["status"]) == ("num", 0, 2, 0.08, "ok")
        assert line["labels"][0] == {"id": level(2), "name": str(level(2)), "p": 1.0}
        assert len(line["labels"]) == 2
        assert set(line["batch"]) == {"id", "size"}
        assert set(line["latency_ms"]) == {"decode", "queue", "preprocess", "infer", "render", "sink", "total"}
        assert line["shown_s"] >= line["arrived_s"]
        assert line["time"].endswith("Z")

    def test_the_report_balances(self, place: Path) -> None:
        numbered(place / "a.mp4", frames=30)
        numbered(place / "b.mp4", frames=40)
        assert watchline("run", "a.mp4", "b.mp4", *PROBE, "--report", "r.json").code == 0
        report = json.loads((place / "r.json").read_text())
        for name, frames in (("a", 30), ("b", 40)):
            s = report["streams"][name]
            assert s["captured"] == frames == s["shown"] + sum(s["dropped"].values()) + s["failed"]
        assert report["latency_ms"]["total"]["count"] == 70
        assert sum(int(size) * count for size, count in report["batch_sizes"].items()) == 70
        assert {"name", "precision", "device", "model", "profile_ms"} <= set(report["engine"])
        assert {"cpu", "cores", "gpu", "versions"} <= set(report["machine"])

    def test_labels_name_classes_exactly(self, place: Path) -> None:
        names = [f"class {k}" for k in range(256)]
        names[level(1)], names[level(2)], names[level(3)] = "", " ägyptische Mau ", "猫"
        (place / "labels.txt").write_text("\n".join(names), encoding="utf-8")
        numbered(place / "num.mp4", frames=4)
        done = watchline("run", "num.mp4", *PROBE, "--labels", "labels.txt", "--jsonl", "-")
        assert [name for _, name in values(done.lines)] == [f"class {level(0)}", "", " ägyptische Mau ", "猫"]

    def test_the_lines_of_pictures_name_their_files(self, place: Path) -> None:
        """One that cannot be read has no line: the numbers of the others tell nothing of a listing."""
        for name in ("a.png", "b.png", "sub/a.png"):
            (place / "p" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (64, 64), 100).save(place / "p" / name)
        (place / "p/aa.png").write_bytes(b"no picture")
        numbered(place / "num.mp4", frames=3)
        done = watchline("run", "p", *PROBE, "--jsonl", "-")
        assert (done.code, [k["file"] for k in done.lines]) == (1, ["a.png", "b.png"])
        done = watchline("run", "p/**/*.png", *PROBE, "--jsonl", "-")
        assert [k["file"] for k in done.lines] == ["a.png", "b.png", "sub/a.png"]
        assert watchline("run", "p/b.png", *PROBE, "--jsonl", "-").lines[0]["file"] == "b.png"
        assert "file" not in watchline("run", "num.mp4", *PROBE, "--jsonl", "-").lines[0]

    def test_no_lane_reads_a_font(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It takes seconds, in which a live frame would grow old."""
        readers: list[str] = []
        read = fonts._read_codes

        def noted(font: Path) -> fonts.Codes:
            readers.append(threading.current_thread().name)
            return read(font)

        monkeypatch.setattr(fonts, "_read_codes", noted)
        monkeypatch.setattr(fonts.INSTALLED, "_codes", {})
        monkeypatch.setattr(fonts.INSTALLED, "_found", {})
        numbered(place / "num.mp4", frames=6)
        names = [f"{name} {k}" for k in range(64) for name in ("قطة", "हिन्दी", "ไทย", "猫")]
        (place / "labels.txt").write_text("\n".join(names), encoding="utf-8")
        done = watchline("run", "num.mp4", *PROBE, "--realtime", "--labels", "labels.txt", "-o", "out.mp4")
        assert done.code == 0, done.err
        assert set(readers) <= {"run"}

    def test_several_videos_go_into_a_folder(self, place: Path) -> None:
        (place / "out").mkdir()
        for name in ("a", "b"):
            (place / name).mkdir()
            numbered(place / name / "x.mp4", frames=5)
        assert watchline("run", "a/x.mp4", "b/x.mp4", *PROBE, "-o", "out").code == 0
        assert sorted(p.name for p in (place / "out").iterdir()) == ["x-2.mp4", "x.mp4"]
        assert len(list(lumas(place / "out/x-2.mp4"))) == 5

    def test_quiet_says_nothing(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        done = watchline("run", "num.mp4", *PROBE, "-q", "-o", "out.mp4")
        assert (done.code, done.out, done.err) == (0, "", "")

    def test_standard_output_is_only_json(self, place: Path) -> None:
        numbered(place / "num.mp4", frames=3)
        done = finished("run", "num.mp4", *PROBE, "--jsonl", "-", "-v")
        assert len(done.lines) == 3
        assert "3 of 3 frames shown" in done.err


class TestHelp:
    @pytest.mark.parametrize("args", [["--help"], ["run", "--help"]])
    def test_nothing_heavy_is_imported(self, args: list[str]) -> None:
        code = f"""
import sys
from app.cli import main
try:
    main({args!r})
except SystemExit as end:
    assert end.code == 0
print("imported", *sorted(m for m in {sorted(HEAVY)!r} if m in sys.modules))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1].split() == ["imported"]

    def test_it_answers_in_time(self) -> None:
        """Under 0.4 s of CPU: the wall's time is the machine's other load."""
        before = os.times()
        assert finished("--help").code == 0
        after = os.times()
        used_s = after.children_user + after.children_system - before.children_user - before.children_system
        assert used_s < 0.4

    def test_exit_codes_are_in_it(self) -> None:
        assert EXIT_CODES in parser().format_help()
        for command in ("run", "demo", "doctor", "bench"):
            assert EXIT_CODES in watchline(command, "--help").out


def test_a_file_whose_name_looks_like_a_flag(place: Path) -> None:
    (place / "-dash.mp4").touch()
    done = watchline("run", "-dash.mp4")
    assert done.code == 2
    assert "the file -dash.mp4 is given as ./-dash.mp4" in done.err


def test_the_version_that_is_installed() -> None:
    done = watchline("--version")
    assert (done.code, done.out) == (0, f"watchline {importlib.metadata.version('watchline')}\n")


def test_doctor(place: Path) -> None:
    numbered(place / "num.mp4", frames=3)
    done = watchline("doctor", "num.mp4", "synthetic:64x64@25")
    assert done.code == 0
    assert "num.mp4: 64x64" in done.out
    assert "protocols  rtsp, rtsps, http, https, tcp, udp, rtmp" in done.out
    assert {"cpu", "gpu", "engines", "decoders", "display", "memory"} <= {line.split()[0] for line in done.out.splitlines()}


def test_doctor_reaches_all_that_a_list_names(place: Path) -> None:
    numbered(place / "num.mp4", frames=3)
    (place / "all.streams").write_text("num.mp4\nnope.mp4\nsynthetic:64x64@25\n")
    done = watchline("doctor", "all.streams")
    assert done.code == 1
    lines = [line.split(maxsplit=1)[1] for line in done.out.splitlines() if line.startswith("source")]
    assert [line.split(":")[0] for line in lines] == ["num.mp4", "cannot read 'nope.mp4'", "synthetic"]


def test_doctor_says_what_does_not_answer() -> None:
    done = watchline("doctor", "nope.mp4", "synthetic:64x64@25")
    assert done.code == 1
    assert "cannot read 'nope.mp4': No such file" in done.out
    refused = watchline("doctor", "rtsp://127.0.0.1:1/cam").out.splitlines()[-1]
    assert refused.count("rtsp://127.0.0.1:1/cam") == 1
    assert "64x64, 25 fps" in done.out
