"""Containers and pictures with broken bytes: no signal, no hang, no error but the documented ones, bounded memory."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from tests.clips import numbered
from tests.command import environ

ROOT = Path(__file__).parents[2]
HANG_S = 20.0
"""For one input, on a busy machine; good ones take 20 ms."""
PEAK_MB = 1200.0


@pytest.fixture(scope="module")
def goods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small good files of every kind."""
    folder = tmp_path_factory.mktemp("goods")
    for suffix in ("mp4", "ts", "mkv", "mov", "flv"):
        numbered(folder / f"good.{suffix}", frames=8, gop=4, sound=True)
    numbered(folder / "good_b.mp4", frames=8, b_frames=2, codec="libx265")
    numbered(folder / "good.avi", frames=8, codec="mpeg4")
    numbered(folder / "good_mjpeg.avi", frames=8, codec="mjpeg")
    numbered(folder / "good.h264", frames=8, gop=4)
    numbered(folder / "good.webm", frames=8, codec="libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"})
    picture = Image.effect_noise((64, 48), 60).convert("RGB")
    for suffix in ("jpg", "png", "webp", "gif", "bmp", "tif", "ppm"):
        picture.save(folder / f"good.{suffix}")
    picture.save(folder / "good_progressive.jpg", progressive=True)
    picture.save(folder / "good_film.gif", save_all=True, append_images=[picture.rotate(90), picture.rotate(180)])
    return folder


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """How a process full of inputs ended. `last`: the input that it was at."""

    code: int | None
    last: str
    said: str
    peak_mb: float


def fuzz(folder: Path, seed: int, seconds: float) -> Fuzzed:
    """Read broken files for so long; code None: one of them took longer than HANG_S."""
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cases.fuzz", str(folder), str(seed), str(seconds)],
            cwd=ROOT,
            env=environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        assert process.stdout is not None
        with process, process.stdout as out:
            last, rest, peak_mb, code = "", "", 0.0, None
            while select.select([out], [], [], HANG_S)[0]:
                part = os.read(out.fileno(), 1 << 16).decode()
                if not part:
                    code = process.wait()
                    break
                *lines, rest = (rest + part).split("\n")
                last, peak_mb = lines[-1] if lines else last, max(peak_mb, _peak_mb(process.pid))
            process.kill()
        said.seek(0)
        return Fuzzed(code, last, said.read()[-3000:], peak_mb)


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0  # it has just ended


def check(goods: Path, seed: int, seconds: float) -> None:
    began_s = time.monotonic()
    ended = fuzz(goods, seed, seconds)
    if ended.code != 0:
        how = "hangs at" if ended.code is None else f"ended by {ended.code} at"
        pytest.fail(f"seed {seed}: {how} {ended.last}, kept in {goods}: {ended.said}", pytrace=False)
    assert ended.last.startswith("done ")
    assert int(ended.last.split()[1]) > 5 * (time.monotonic() - began_s), "too few to prove anything"
    assert ended.peak_mb < PEAK_MB


@pytest.mark.field
@pytest.mark.timeout(120)
def test_hostile_broken_bytes(goods: Path) -> None:
    check(goods, 1, 20.0)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(10, 14))
def test_hostile_many_broken_bytes(seed: int, goods: Path) -> None:
    check(goods, seed, 75.0)
