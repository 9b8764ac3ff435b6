"""File to labels: Watchline beside the naive loop, in turn on the same clip, so that the machine's moods hit both.

    python -m tests.benchmarks.throughput [CLIP] [--runs 5] [--repeat 4]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import av

from app.machine import machine
from samples import FOLDER


def main() -> None:
    """Print each run, the medians and their ratio."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("clip", nargs="?", default=str(FOLDER / "bigbuckbunny.mp4"))
    args.add_argument("--runs", type=int, default=5)
    args.add_argument("--repeat", type=int, default=4, help="the clip so many times over")
    given = args.parse_args()
    rates: dict[str, list[float]] = {"naive": [], "watchline": []}
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        repeated(Path(given.clip), clip, given.repeat)
        _watchline(clip, folder)  # the model's first use, and both programs' files in the page cache
        for _ in range(given.runs):
            rates["naive"].append(_naive(clip))
            rates["watchline"].append(_watchline(clip, folder))
            print({who: values[-1] for who, values in rates.items()}, flush=True)
    medians = {who: statistics.median(values) for who, values in rates.items()}
    ratios = [w / n for w, n in zip(rates["watchline"], rates["naive"], strict=True)]
    print(json.dumps({
        "frames_per_s": rates, "median": medians, "ratio": round(medians["watchline"] / medians["naive"], 2),
        "ratio_min": round(min(ratios), 2), "ratio_max": round(max(ratios), 2), "machine": machine(),
    }))  # fmt: skip


def repeated(source: Path, target: Path, times: int) -> None:
    """Copy the video packets of a clip `times` over into one file, without decoding."""
    with av.open(str(target), "w") as out:
        stream, shift = None, 0
        for _ in range(times):
            with av.open(str(source)) as clip:
                video = clip.streams.video[0]
                stream = stream or out.add_stream_from_template(video)
                end = 0
                for packet in clip.demux(video):
                    if packet.dts is None:
                        continue
                    end = max(end, (packet.pts or 0) + (packet.duration or 0))
                    packet.pts, packet.dts, packet.stream = (packet.pts or 0) + shift, packet.dts + shift, stream
                    out.mux(packet)
                shift += end


def _naive(clip: Path) -> float:
    return float(json.loads(_run("-m", "tests.benchmarks.naive", str(clip)))["fps"])


def _watchline(clip: Path, folder: str) -> float:
    report = Path(folder) / "report.json"
    lines = Path(folder) / "frames.jsonl"
    _run("-m", "app.cli", "run", str(clip), "--jsonl", str(lines), "--report", str(report), "-q")
    return float(json.loads(report.read_text())["throughput_fps"])


def _run(*args: str) -> str:
    done = subprocess.run([sys.executable, *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
