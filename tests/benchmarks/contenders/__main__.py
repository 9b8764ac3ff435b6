"""Watchline and the usual alternatives: same clip, same model, same machine, in turn.

    python -m tests.benchmarks.contenders [CLIP] [--frames 1320] [--runs 5] [--only NAME ...] [--folder build/contenders]

Writes result.json, table.md and picture.png into the folder. The peers' environments are made at the first call (12 GB).
In each round every program runs once; ratios are taken within a round. int8 is calibrated on the clip first, as a user would.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import av

from app.machine.machine import machine
from samples import FOLDER
from tests.benchmarks import environment
from tests.benchmarks.clip import repeated
from tests.benchmarks.contenders.programs import PEERS, Program, Run, peer, watchline
from tests.benchmarks.contenders.quality import ssim

LABELS, ANNOTATED = "file to labels", "file to annotated video"
TASKS: dict[str, dict[str, Program]] = {
    LABELS: {
        "Watchline int8": watchline("--precision", "int8"),
        "Watchline auto": watchline(),
        "Watchline fp32": watchline("--precision", "fp32"),
        "OpenVINO": peer("openvino", "plain"),
        "naive": peer("naive", "plain"),
        "Roboflow": peer("roboflow", "roboflow"),
    },
    ANNOTATED: {
        "Watchline int8, video": watchline("--precision", "int8", annotated=True),
        "Watchline auto, video": watchline(annotated=True),
        "naive, video": peer("naive-annotate", "plain"),
    },
}
BARS = (
    ("Watchline int8", "naive", 6.0),
    ("Watchline int8", "OpenVINO", 1.35),
    ("Watchline auto", "OpenVINO", 1.0),
    ("Watchline fp32", "Roboflow", 4.0),
    ("Watchline int8, video", "naive, video", 2.7),
)
"""Two programs, and the required ratio of their rates."""


def main() -> None:
    """Run all programs and write the results."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("clip", nargs="?", default=str(FOLDER / "bigbuckbunny.mp4"))
    args.add_argument("--frames", type=int, default=1320, help="the clip is repeated to at least so many")
    args.add_argument("--runs", type=int, default=5)
    everything = [name for rows in TASKS.values() for name in rows]
    args.add_argument("--only", nargs="+", choices=everything, default=everything, metavar="NAME")
    args.add_argument("--folder", default="build/contenders")
    given = args.parse_args()
    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        clip = Path(place) / "clip.mp4"
        repeated(Path(given.clip), clip, -(-given.frames // _frames(Path(given.clip))))
        if any("int8" in name for name in given.only):
            subprocess.run([sys.executable, "-m", "app.cli", "calibrate", str(given.clip), "-q"], check=True)
        result = compared(clip, given.runs, given.only)
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    (folder / "table.md").write_text(table(result))
    print(table(result))
    plot = [str(environment.interpreter("plain")), str(PEERS.with_name("plot.py")), str(folder / "result.json")]
    subprocess.run([*plot, str(folder / "picture.png")], check=True)


def _frames(clip: Path) -> int:
    with av.open(str(clip)) as container:
        return sum(1 for packet in container.demux(video=0) if packet.size)


def compared(clip: Path, runs: int, only: list[str]) -> dict[str, Any]:
    """Rounds of all programs in turn; the first round only makes their files and caches warm."""
    chosen = {name: (task, run) for task, rows in TASKS.items() for name, run in rows.items() if name in only}
    found: dict[str, list[Run]] = {name: [] for name in chosen}
    videos: dict[str, Any] = {}
    for k in range(runs + 1):
        for name, (task, run) in chosen.items():
            with tempfile.TemporaryDirectory() as folder:
                one = run(clip, Path(folder))
                annotated = Path(folder) / "annotated.mp4"
                if k == 0 and task == ANNOTATED:
                    videos[name] = {"bytes": annotated.stat().st_size, "ssim": ssim(clip, annotated)}
            if k:
                found[name].append(one)
                print(f"{k}/{runs} {name}: {one.fps:.1f} frames/s, {one.cpu_ms:.2f} ms CPU a frame", flush=True)
    tasks: dict[str, dict[str, Any]] = {}
    for name, (task, _) in chosen.items():
        tasks.setdefault(task, {})[name] = _summary(found[name]) | videos.get(name, {})
    return {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "frames": found[next(iter(found))][0].frames,
        "runs": runs,
        "tasks": tasks,
        "ratios": _ratios(found),
    }


def _summary(runs: list[Run]) -> dict[str, Any]:
    rates = [run.fps for run in runs]
    shares = [run.share for run in runs if run.share is not None]
    return {
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "fps": rates,
        "cpu_ms": statistics.median(run.cpu_ms for run in runs),
        "versions": runs[0].versions,
        **({"share_of_limit": statistics.median(shares)} if shares else {}),
    }


def _ratios(found: dict[str, list[Run]]) -> list[dict[str, Any]]:
    ratios = []
    for one, other, bar in BARS:
        if one in found and other in found:
            rounds = [a.fps / b.fps for a, b in zip(found[one], found[other], strict=True)]
            spread = {"median": statistics.median(rounds), "min": min(rounds), "max": max(rounds)}
            ratios.append({"one": one, "other": other, "bar": bar, **spread})
    return ratios


def table(result: dict[str, Any]) -> str:
    """Two tables in Markdown: the programs, and the ratios beside their bars."""
    lines = ["| program | frames/s (slowest to fastest) | CPU ms a frame | of its limit | bytes | SSIM clean, whole |"]
    lines += ["|---|---|---|---|---|---|"]
    for rows in result["tasks"].values():
        for name, row in rows.items():
            share = f"{row['share_of_limit']:.2f}" if "share_of_limit" in row else ""
            quality = f"{row['bytes']} | {row['ssim']['clean']:.4f}, {row['ssim']['whole']:.4f}" if "bytes" in row else " | "
            rate = f"{row['median']:.0f} ({row['min']:.0f} to {row['max']:.0f})"
            lines.append(f"| {name} | {rate} | {row['cpu_ms']:.1f} | {share} | {quality} |")
    lines += ["", "| ratio | median (rounds) | bar |", "|---|---|---|"]
    for r in result["ratios"]:
        lines.append(f"| {r['one']} / {r['other']} | {r['median']:.2f} ({r['min']:.2f} to {r['max']:.2f}) | {r['bar']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
