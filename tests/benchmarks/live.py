"""Cameras: the promises about live streams, measured with a real RTSP server on this machine, the server included.

    python -m tests.benchmarks.live [one|password|company|slow|many ...] [--seconds 30]

one       one 720p 25 fps camera, default model: goodput after the first 2 s, p99
password  the same behind user and password
company   two cameras and a file, without and with a dead fourth source and a fifth that freezes half-way
slow      a model of 200 ms a batch: the age of shown frames stays flat
many      48 synthetic 25 fps streams on a device of 8 ms a batch + 0.5 ms a frame
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samples import FOLDER
from tests.benchmarks.clip import repeated
from tests.servers import Play, RtspServer

CLIP = FOLDER / "bigbuckbunny.mp4"
SETTLE_S = 2.0
Line = dict[str, Any]


def main() -> None:
    """Run the scenarios and print a line for each stream."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("scenarios", nargs="*", default=["one", "password", "company", "slow", "many"])
    args.add_argument("--seconds", type=int, default=30)
    given = args.parse_args()
    for name in given.scenarios:
        print(f"== {name}")
        globals()[f"_{name}"](given.seconds)


def _one(seconds: int) -> None:
    with RtspServer({"cam": Play(CLIP)}) as server:
        _show(_watch([server.url("cam")], seconds))


def _password(seconds: int) -> None:
    with RtspServer({"cam": Play(CLIP)}, user="viewer", password="p@s#s:w/%^!") as server:
        _show(_watch([server.url("cam")], seconds))


def _company(seconds: int) -> None:
    """The file is long enough to run beside the cameras all the time."""
    with tempfile.TemporaryDirectory() as folder, RtspServer({"a": Play(CLIP), "b": Play(CLIP)}) as server:
        film = Path(folder) / "film.mp4"
        repeated(CLIP, film, seconds // 5)
        good = [server.url("a"), server.url("b"), str(film)]
        print("-- without the bad two")
        _show(_watch(good, seconds))
        with RtspServer({"frozen": Play(CLIP)}) as other:
            timer = threading.Timer(seconds / 2, other.freeze)
            timer.start()
            print("-- with a dead one and one that freezes half-way")
            _show(_watch([*good, "rtsp://127.0.0.1:9/dead", other.url("frozen")], seconds))
            timer.cancel()
            timer.join()
            other.thaw()


def _slow(seconds: int) -> None:
    lines = _watch(["synthetic:320x240@25"], 2 * seconds, "--model", "probe", "--probe-ms-per-batch", "200")
    _show(lines)
    shown = [line for line in lines if line["status"] == "ok"]
    for name, part in (("first 10 s", shown[:15]), ("last 10 s", shown[-15:])):
        print(f"   age of shown frames, {name}: {max(line['latency_ms']['total'] for line in part):.0f} ms at most")


def _many(seconds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "many.txt"
        names.write_text("synthetic:64x64@25\n" * 48)
        shape = ["--model", "probe", "--probe-ms-per-batch", "8", "--probe-ms-per-frame", "0.5"]
        lines = _watch([str(names)], seconds, *shape)
    for line in lines:
        line["stream"] = "all 48"
    _show(lines)


def _watch(sources: Sequence[str], seconds: int, *flags: str) -> list[Line]:
    """Run for so many seconds, then stop as Ctrl-C does; returns the JSON lines. The ledger of every stream must add up."""
    with tempfile.TemporaryDirectory() as folder:
        out, report = Path(folder) / "frames.jsonl", Path(folder) / "report.json"
        args = [*sources, "--jsonl", str(out), "--report", str(report), "-q", *flags]
        run = subprocess.Popen([sys.executable, "-m", "app.cli", "run", *args])
        try:
            run.wait(seconds + 5)  # 5 s to get ready
        except subprocess.TimeoutExpired:
            run.send_signal(2)
            run.wait(10)
        figures = json.loads(report.read_text())
        for name, s in figures["streams"].items():
            ends = s["shown"] + s["failed"] + sum(s["dropped"].values())
            assert s["captured"] == ends, f"{name}: {s['captured']} captured, {ends} accounted for"
        return [json.loads(text) for text in out.read_text().splitlines()]


def _show(lines: Sequence[Line]) -> None:
    by_stream: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_stream[line["stream"]].append(line)
    for name, all_lines in by_stream.items():
        start_s = min(line["arrived_s"] for line in all_lines)
        settled = [k for k in all_lines if k["arrived_s"] > start_s + SETTLE_S]
        counted = [k for k in settled if k.get("cause") not in ("corrupt", "shutdown")]
        shown = sorted(k["latency_ms"]["total"] for k in counted if k["status"] == "ok")
        causes = dict(Counter(k.get("cause", k["status"]) for k in counted if k["status"] != "ok"))
        if not shown:
            print(f"{name}: nothing shown, {causes}")
            continue
        good = sum(ms <= 50 for ms in shown) / len(counted)
        sizes = [k["batch"]["size"] for k in counted if k["status"] == "ok"]
        print(
            f"{name}: {len(counted)} frames, goodput {good:.4f}, p50 {shown[len(shown) // 2]:.1f} ms, "
            f"p99 {shown[int(0.99 * (len(shown) - 1))]:.1f} ms, max {shown[-1]:.1f} ms, "
            f"mean batch {len(sizes) / sum(1 / n for n in sizes):.1f}, not shown {causes}",
            flush=True,
        )


if __name__ == "__main__":
    main()
