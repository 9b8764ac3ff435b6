"""`watchline calibrate` and `--precision int8`: kept models, refusals, messages, and interruptions."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibrate import calibration
from app.calibrate.quantise import quantise
from app.calibrate.sampling import EvenSample, split
from pipelines.errors import Stopped, UsageError
from pipelines.frame import Picture, Region
from pipelines.tasks import classification
from samples import FOLDER
from tests.clips import grey, write
from tests.command import WATCHLINE, Done, environ, read_lines, running, watchline
from tests.predict.models.test_int8 import SIDE, depthwise
from tests.sockets import traffic

pytestmark = pytest.mark.timeout(90)
CLIP = FOLDER / "bigbuckbunny.mp4"
WORD = "has not been calibrated on this machine"
INT8_SUMS = {"avx512_vnni", "avx_vnni", "amx_int8"}
"""CPU features, each of which sums products of 8 bits without saturating."""


@pytest.fixture
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, in which nothing half-written is left."""
    folder = place / "cache"
    monkeypatch.setenv("WATCHLINE_CACHE", str(folder))
    yield folder
    assert not [str(p) for p in folder.rglob(".*")]


@pytest.fixture
def colours(place: Path) -> Path:
    """60 pictures of different colours, each plain."""
    rng = np.random.default_rng(1)
    planes = [tuple(np.full(p.shape, rng.integers(40, 215), np.uint8) for p in grey(0, (32, 32))) for _ in range(60)]
    return write(place / "colours.mp4", planes, size=(32, 32))  # type: ignore[arg-type]


def sensitive(path: Path) -> Path:
    """A model that fails in 8 bits: its classes differ by small remainders of large numbers."""
    large = np.array([[1000, 0, 1000]] * 3, np.float32) + np.diag([1, 0, -1]).astype(np.float32)
    return depthwise(path, last=np.concatenate([large, -large]))


@pytest.fixture
def nncf_works_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later calibrations of the test get the result of the first: the child process with NNCF takes seconds."""
    made = place / "made"

    def quantised(exact: Path, frames: Any, batch: int | None, model: Path, keep_on: Callable[[], bool]) -> None:
        if made.exists():
            shutil.copytree(made, model.parent, dirs_exist_ok=True)
        else:
            quantise(exact, frames, batch, model, keep_on)
            shutil.copytree(model.parent, made)

    monkeypatch.setattr(calibration, "quantise", quantised)


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/int8-*"))


# Frames.


class Number:
    """A preprocess that sees the number of the picture."""

    shape: tuple[int, ...] = (2,)

    def __call__(self, picture: Picture, region: Region, out: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        out[:] = picture.y[0, 0], picture.u[0, 0]

    def box(self, picture: Picture, region: Region) -> None:
        """All of it."""


@pytest.mark.parametrize("frames", [5, 24, 25, 1000])
def test_frames_are_taken_from_all_over_a_stream(frames: int) -> None:
    spread = EvenSample(Number(), 12)
    for k in range(frames):
        high, low = (np.full((2, 2), part, np.uint8) for part in divmod(k, 256))
        spread.offer(Picture(high, low, low))
    taken = [256 * int(high) + int(low) for high, low in spread.taken()]
    assert len(taken) == min(frames, 12)
    assert taken == sorted(set(taken))
    assert taken[0] == 0
    assert taken[-1] >= 0.85 * (frames - 1)
    assert max(np.diff(taken)) <= max(frames / 6, 2)


def test_what_calibrates_is_not_compared_and_no_picture_counts_twice() -> None:
    rows = [np.full((3, 2, 2), k, np.uint8) for k in range(30)]
    made = split([rows[:20], rows[10:], [], rows])
    both = [{int(f[0, 0, 0]) for f in part} for part in (made.calibrating, made.comparing)]
    assert both[0] | both[1] == set(range(30))
    assert not both[0] & both[1]
    assert (len(made.calibrating), len(made.comparing), made.sources) == (10, 20, 2)
    assert split([rows[:1]]).calibrating.shape[0] == 0


# Messages before any calibration.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--model", "probe"], ["--precision int8 is for networks"]),
        (["--engine", "torch"], ["--engine torch", "OpenVINO"]),
        (["--device", "cuda"], ["--device cuda", "OpenVINO"]),
        (["--model", "m.onnx"], [WORD, "run: watchline calibrate --model m.onnx SOURCE..."]),
    ],
)
def test_what_cannot_be_is_one_line(place: Path, cache: Path, args: list[str], words: list[str]) -> None:
    depthwise(place / "m.onnx")
    done = watchline("run", "synthetic:64x64@25", "--no-show", "--precision", "int8", *args)
    assert done.code == 2
    (line,) = done.errors()
    assert all(word in line for word in words), line


@pytest.mark.parametrize("command", [("run", "--no-show", "--precision", "int8"), ("calibrate",)])
def test_without_nncf(colours: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    depthwise(Path("m.onnx"))
    done = watchline(*command, str(colours), "--model", "m.onnx")
    assert done.code == 2
    assert [line for line in done.errors() if WORD not in line] == [
        "watchline: --precision int8 needs NNCF to calibrate a model; run: pip install 'watchline[int8]'"
    ]


def test_too_few_frames(place: Path, cache: Path) -> None:
    """60 equal frames are one."""
    write(place / "still.mp4", [grey(90, (32, 32))] * 60, size=(32, 32))
    depthwise(place / "m.onnx")
    done = watchline("calibrate", "still.mp4", "--model", "m.onnx")
    assert done.code == 2
    assert "gave 1 different frames; calibrating needs 12" in done.err
    assert kept(cache) == []


def test_nothing_to_calibrate_from(place: Path, cache: Path) -> None:
    assert watchline("calibrate").code == 2
    done = watchline("calibrate", "nope.mp4")
    assert done.code == 2
    assert "no such file: 'nope.mp4'" in done.err


def test_a_dead_camera_is_said_with_its_own_error(place: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.calibrate.sampling.READ_S", 2.0)
    depthwise(place / "m.onnx")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = watchline("calibrate", f"rtsp://127.0.0.1:{port}/x", "--model", "m.onnx")
    assert done.code == 2
    assert re.search(r"gave 0 different frames \(.*Connection refused.*\); calibrating needs 12", done.err), done.err


# Calibrating.


def test_calibrate_keeps_model_and_record_and_a_run_uses_them(colours: Path, cache: Path) -> None:
    depthwise(Path("m.onnx"))
    done = watchline("calibrate", "colours.mp4", "--model", "m.onnx")
    assert done.code == 0, done.err
    (folder,) = kept(cache)
    record = json.loads((folder / "record.json").read_text())
    assert record["passed"]
    assert record["calibrated_on"] + record["frames"] == 60
    assert record["sure_frames"] > 10
    assert record["sure_agreement"] >= classification.SURE_AGREEMENT
    assert record["cosine"] >= classification.MEAN_COSINE
    assert record["ms_a_frame"]["int8"].keys() == {"1", "8", "16"}
    assert record["size_mb"]["int8"] > 0
    assert record["machine"]["nncf"]
    assert str(folder) in done.out
    assert f"{record['cosine']:.4f} in the mean" in done.out

    labels = {}
    for precision in ("fp32", "int8"):
        which = ("--model", "m.onnx", "--precision", precision)
        run = watchline("run", "synthetic:64x64@50", "--max-frames", "5", *which, "--jsonl", "-")
        assert run.code == 0, run.err
        assert f"openvino {precision} on the CPU" in run.err
        labels[precision] = [line["labels"][0]["id"] for line in run.lines if line["status"] == "ok"]
    assert labels["int8"] == labels["fp32"]
    assert f"mean cosine {record['cosine']:.4f}" in run.err
    before = (folder / "model.bin").stat().st_mtime_ns
    depthwise(Path("m.onnx"), last=np.full((6, 3), 0.5, np.float32))
    done = watchline("run", "synthetic:64x64@50", "--model", "m.onnx", "--precision", "int8", "--no-show")
    assert (done.code, WORD in done.err) == (2, True), "other weights found the old model"
    assert (folder / "model.bin").stat().st_mtime_ns == before


@pytest.mark.usefixtures("nncf_works_once")
def test_a_model_that_8_bits_ruin_is_refused_unless_forced(colours: Path, cache: Path) -> None:
    sensitive(Path("m.onnx"))
    run = watchline("run", "colours.mp4", "--model", "m.onnx", "--precision", "int8", "--no-show")
    assert run.code == 2
    assert "--precision int8 is refused for the model 'm.onnx'" in run.err
    assert "calibrate --model m.onnx SOURCE... --force" in run.err
    assert kept(cache) == []
    done = watchline("calibrate", "colours.mp4", "--model", "m.onnx")
    assert done.code == 1
    assert re.search(r"refused: .*agrees with fp32 in [\d.]+ %.*mean cosine [01]\.\d+ \(the gate: 98 %", done.err)
    assert "cosine of logits" in done.out
    assert kept(cache) == []
    done = watchline("calibrate", "colours.mp4", "--model", "m.onnx", "--force")
    assert done.code == 0, done.err
    (folder,) = kept(cache)
    assert not json.loads((folder / "record.json").read_text())["passed"]
    run = watchline("run", "colours.mp4", "--model", "m.onnx", "--precision", "int8", "--no-show")
    assert run.code == 0
    assert "below the gate, kept by --force" in run.err
    # One that passed is not given up for one that does not.
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(record | {"passed": True}))
    done = watchline("calibrate", "colours.mp4", "--model", "m.onnx", "--force")
    assert done.code == 1
    assert f"the earlier int8 form, which passed, stays; to be rid of it, remove {folder}" in done.err
    assert json.loads((folder / "record.json").read_text())["passed"]


@pytest.mark.usefixtures("first_use")
def test_where_fp32_is_sure_of_no_frame_all_are_judged(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip of 2x2 pixels, and the default model."""
    cache = place / "cache"
    shutil.copytree(os.environ["WATCHLINE_CACHE"], cache)
    monkeypatch.setenv("WATCHLINE_CACHE", str(cache))
    rng = np.random.default_rng(1)
    planes = [tuple(np.full(p.shape, rng.integers(40, 215), np.uint8) for p in grey(0, (2, 2))) for _ in range(60)]
    write(place / "tiny.mp4", planes, size=(2, 2))  # type: ignore[arg-type]
    done = watchline("calibrate", "tiny.mp4")
    assert "at least 90 %: fp32 is sure of no frame" in done.out
    assert "of 0 frames" not in done.out
    assert (done.code == 0) == (len(kept(cache)) == 1)
    if done.code:
        assert "the gate: 90 % of all frames" in done.err


def second_start(*args: str) -> Done:
    """The command in a process of its own. At its end it prints the heavy modules that it has imported."""
    code = """
import sys
from app.cli import main
code = main(sys.argv[1:])
print(*sorted({"torch", "torchvision", "timm", "nncf", "sklearn", "scipy"} & sys.modules.keys()), file=sys.stderr)
sys.exit(code)
"""
    command = [sys.executable, "-W", "error", "-c", code, *args]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, timeout=60)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("first_use")
def test_the_default_model_and_its_second_start_without_torch(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and its child process open no connection during a calibration; the new model has the labels of fp32."""
    shutil.copytree(os.environ["WATCHLINE_CACHE"], place / "cache")
    monkeypatch.setenv("WATCHLINE_CACHE", str(place / "cache"))
    command = ["run", str(CLIP), "--precision", "int8", "--no-show"]
    seen = traffic([str(WATCHLINE), *command], cwd=place, env=environ())
    assert (seen.sockets, seen.addresses) == (0, set())
    assert WORD in seen.err
    if not INT8_SUMS & set(Path("/proc/cpuinfo").read_text().split()):
        # Sums saturate on such a CPU, and the gate notices it.
        assert seen.code == 2, seen.err
        assert re.search(r"--precision int8 is refused for the model 'lite0': on 88 frames .* mean cosine 0\.[0-8]", seen.err)
        return
    assert seen.code == 0, seen.err
    assert re.search(r"calibrated in [\d.]+ s: on 88 frames .* 100 % of the \d\d sure ones, mean cosine 0\.99", seen.err)

    for precision in ("fp32", "int8"):
        done = second_start("run", str(CLIP), "--precision", precision, "--jsonl", f"{precision}-2.jsonl", "-q")
        assert (done.code, done.err) == (0, "\n"), done.err
    exact, other = (read_lines(place / f"{p}-2.jsonl") for p in ("fp32", "int8"))
    pairs = [(a["labels"][0], b["labels"][0]) for a, b in zip(exact, other, strict=True)]
    same = [a["id"] == b["id"] for a, b in pairs if a["p"] > classification.SURE_P]
    assert len(same) > 50
    assert sum(same) >= classification.SURE_AGREEMENT * len(same)
    blobs = {p.parent.parent.name[:5] for p in (place / "cache").rglob("*.blob")}
    assert "int8-" in blobs, "what was compiled of the int8 model does not lie beside it"
    assert len(blobs) == 2


# Broken off.


def child_of(pid: int) -> int:
    """The process that runs NNCF for another one."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"app.calibrate.quantise" in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except (OSError, IndexError):
            continue
    return 0


def gone(fd: int) -> bool:
    """Whether the process of a pidfd ends within 3 s."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(3000))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_while_nncf_works(colours: Path, cache: Path, how: signal.Signals) -> None:
    """Within 3 s, the child too, and nothing half-written is left or taken for a model."""
    depthwise(Path("m.onnx"))
    with running("calibrate", "colours.mp4", "--model", "m.onnx") as process:
        assert process.stderr is not None
        assert "calibrating on 20 frames" in process.stderr.readline()
        while not (child := child_of(process.pid)):
            assert process.poll() is None
        child_fd = os.pidfd_open(child)
        process.send_signal(how)
        out, err = process.communicate(timeout=3)
        try:
            assert gone(child_fd)
        finally:
            os.close(child_fd)
    assert kept(cache) == []
    if how != signal.SIGKILL:
        assert (process.returncode, out, err) == (128 + how, "", "")
        return
    (left,) = cache.glob("*/.int8-*")
    os.utime(left, (0, 0))
    assert watchline("calibrate", "colours.mp4", "--model", "m.onnx").code == 0
    assert len(kept(cache)) == 1


def test_a_child_that_fails_is_one_line_and_a_stop_ends_it(place: Path) -> None:
    frames = np.zeros((2, 3, SIDE, SIDE), np.uint8)
    with pytest.raises(Stopped):
        quantise(place / "none.xml", frames, None, place / "out.xml", lambda: False)
    with pytest.raises(UsageError, match=r"NNCF cannot make an int8 model of this one \(.*none\.xml.*\)") as caught:
        quantise(place / "none.xml", frames, None, place / "out.xml", lambda: True)
    assert "\n" not in str(caught.value)
    assert list(place.iterdir()) == []
