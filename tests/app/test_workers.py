"""`watchline run --workers N`: the streams on worker processes, each with its share of the cores."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app import build
from app.config import Settings
from pipelines.cores import cores, quota, share
from pipelines.errors import UsageError
from pipelines.predict.models import autoselect, builder
from pipelines.predict.predictor import PredictorEvents
from tests.clips import level, numbered
from tests.command import PROBE, WATCHLINE, Demo, environ, finished, read_lines, running, values, watchline

pytestmark = pytest.mark.timeout(120)
WAIT_S = 20
ROOT = Path(__file__).parents[2]
V1 = "cpu.cfs_"


def workers_of(pid: int) -> list[int]:
    """Processes that a process has started, the oldest first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return sorted(found)


def until_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor, "rb"):
        assert select.select([descriptor], [], [], WAIT_S)[0], f"{pid} still runs"


def until_lines(process: subprocess.Popen[str], count: int) -> None:
    """Until so many lines have come from its standard output."""
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline()


# Results.


def test_a_file_is_whole_and_in_order(place: Path) -> None:
    clip = numbered(place / "clip.mp4", frames=200, step=1)
    done = watchline("run", str(clip), *PROBE, "--workers", "2", "--jsonl", "-", "--report", "report.json")
    assert done.code == 0
    assert values(done.lines) == [(k, str(level(k, 1))) for k in range(200)]
    engine = json.loads(Path("report.json").read_text())["engine"]
    assert engine["workers"] == [{"device": "cpu", "restarts": 0}] * 2
    assert "workers: 2" in engine["why"]


def test_cameras_share_the_workers(place: Path) -> None:
    cameras = ["synthetic:64x64@50"] * 3
    done = watchline("run", *cameras, *PROBE, "--workers", "2", "--max-frames", "20", "--jsonl", "-", "--budget-ms", "1000")
    assert done.code == 0
    names = {line["stream"] for line in done.lines}
    assert len(names) == 3
    for name in names:
        assert [frame for frame, _ in values([k for k in done.lines if k["status"] == "ok"], name)][-1] >= 18


@pytest.mark.parametrize("command", [[str(WATCHLINE)], [sys.executable, "-m", "app.cli"]], ids=["console script", "module"])
def test_c07_it_starts_however_it_is_called(place: Path, command: list[str]) -> None:
    """`tests/app` itself imports it and calls `main`, above."""
    clip = numbered(place / "clip.mp4", frames=4)
    args = [*command, "run", str(clip), *PROBE, "--workers", "2", "--jsonl", "-"]
    done = subprocess.run(args, env=environ(PYTHONPATH=str(ROOT)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert values([json.loads(k) for k in done.stdout.splitlines()]) == [(k, str(level(k))) for k in range(4)]


def test_labels_are_those_of_a_run_without_workers(demo: Demo, place: Path) -> None:
    from samples import FOLDER

    clip = str(FOLDER / "sample.mp4")
    done = finished("run", clip, "--no-show", "--workers", "1", "--max-frames", "12", "--jsonl", "-", "--max-batch", "4")
    assert done.code == 0, done.err
    expected = read_lines(demo.folder / "runs/demo/frames.jsonl")[:12]
    assert values(done.lines) == values(expected)
    assert [k["labels"][0]["p"] for k in done.lines] == pytest.approx([k["labels"][0]["p"] for k in expected], abs=0.02)


# Processes that die.


def test_c33_a_worker_killed_costs_no_frame_of_a_file(place: Path) -> None:
    clip = numbered(place / "clip.mp4", frames=220, step=1)
    slow = ("--probe-ms-per-frame", "5", "--max-batch", "4")
    with running("run", str(clip), *PROBE, *slow, "--workers", "2", "--jsonl", "-", "--report", "report.json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(20)]
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        lines += [json.loads(line) for line in process.stdout]
        err = " ".join(process.stderr.read().split())
        assert process.wait(WAIT_S) == 0, err
    assert values(lines) == [(k, str(level(k, 1))) for k in range(220)]
    assert re.search(r"worker [01]: its worker was ended by SIGKILL; another is started", err)
    workers = json.loads(Path("report.json").read_text())["engine"]["workers"]
    assert sorted(w["restarts"] for w in workers) == [0, 1]


def test_c33_a_run_whose_last_worker_is_not_replaced_says_why_in_its_report(place: Path) -> None:
    clip = numbered(place / "clip.mp4", frames=50)
    slow = ("--probe-ms-per-frame", "5", "--max-batch", "4")
    outputs = ("--jsonl", "-", "--report", "report.json")
    with running("run", str(clip), *PROBE, *slow, "--loop", "--workers", "1", *outputs) as process:
        killed: set[int] = set()
        while len(killed) < 6:
            until_lines(process, 1)
            for worker in set(workers_of(process.pid)) - killed:
                os.kill(worker, signal.SIGKILL)
                until_gone(worker)
                killed.add(worker)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1, err
    (error,) = json.loads(Path("report.json").read_text())["errors"]
    assert "5 were replaced within 60 s, no further one is started" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_c33_no_worker_outlives_the_run(place: Path, number: signal.Signals) -> None:
    """As from a terminal: the signal goes to the workers, too, which leave it to the run."""
    shared = set(os.listdir("/dev/shm"))
    clip = numbered(place / "clip.mp4", frames=50)
    slow = ("--probe-ms-per-frame", "5", "--max-batch", "4")
    with running("run", str(clip), *PROBE, *slow, "--loop", "--workers", "2", "--jsonl", "-") as process:
        until_lines(process, 10)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)
        process.communicate(timeout=WAIT_S)
        for worker in workers:
            until_gone(worker)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert set(os.listdir("/dev/shm")) <= shared


# Threads (C48).


def test_c48_threads_are_shared_out_and_what_was_asked_for_wins(monkeypatch: pytest.MonkeyPatch, demo: Demo) -> None:
    monkeypatch.setattr(builder, "share", lambda workers: 8 // workers)

    def threads(**settings: int) -> set[int]:
        pool = build.make_pool(Settings(**settings), 3, PredictorEvents()).predictor
        made = [pool._supervisor._make(k, PredictorEvents())[0]._engine for k in range(3)]  # type: ignore[union-attr, attr-defined]
        return {engine._threads for engine in made}

    assert threads() == {2}
    assert threads(threads=5) == {5}


def test_c48_cores_are_those_that_may_be_used() -> None:
    code = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from pipelines.cores import cores, share
print(cores(), share(2))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000", "a/cpu.max": "max 100000"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000", "cpu.max": "max 100000"}, 0.5),
        ("0::/of/the/host\n", {"cpu.max": "300000 100000"}, 3.0),
        ("4:cpu,cpuacct:/a\n0::/\n", {f"cpu,cpuacct/a/{V1}quota_us": "250000", f"cpu,cpuacct/a/{V1}period_us": "100000"}, 2.5),
        ("4:cpu:/\n", {f"cpu/{V1}quota_us": "-1", f"cpu/{V1}period_us": "100000"}, None),
        ("0::/\n", {}, None),
        ("", {}, None),
    ],
)
def test_c48_a_containers_quota_counts(tmp_path: Path, groups: str, files: dict[str, str], limit: float | None) -> None:
    (tmp_path / "groups").write_text(groups)
    for name, content in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    assert quota(tmp_path / "groups", tmp_path / "mount") == limit


def test_c48_the_quota_is_a_limit_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, count in ((1.9, 1), (0.3, 1), (1000.0, len(os.sched_getaffinity(0)))):
        monkeypatch.setattr("pipelines.cores.quota", lambda limit=limit: limit)
        assert cores() == count


def test_c48_shares_are_never_less_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.cores.cores", lambda: 5)
    assert [share(n) for n in (1, 2, 3, 5, 8)] == [5, 2, 1, 1, 1]


# Refusals.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--workers", "0"], "--workers must be more than 0, got 0"),
        (["--workers", "65"], "--workers must be at most 64, got 65"),
        (["--threads", "0"], "--threads must be more than 0, got 0"),
        (["--workers", "two"], "invalid int value: 'two'"),
        (["--workers", "2", "--device", "cuda:0"], "the probe has no use for a GPU"),
        (["--workers", "2", "--labels", "two.txt"], "2 labels were given, the model has 256 classes"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_read(place: Path, args: list[str], words: str) -> None:
    (place / "two.txt").write_text("one\ntwo\n")
    done = watchline("run", "synthetic:64x64@25", *PROBE, *args)
    assert done.code == 2
    assert words in " ".join(done.err.split())


def test_each_worker_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(autoselect, "_has_nvidia", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert autoselect.devices("auto", 2) == autoselect.devices("cuda", 2) == ("cuda:0", "cuda:1")
    assert autoselect.devices("cuda:1", 1) == ("cuda:1",)
    assert autoselect.devices("cpu", 3) == ("cpu",) * 3
    with pytest.raises(UsageError, match=r"`workers` 3.*there are 2; use `workers` 2"):
        autoselect.devices("auto", 3)
    with pytest.raises(UsageError, match="names one GPU"):
        autoselect.devices("cuda:0", 2)
