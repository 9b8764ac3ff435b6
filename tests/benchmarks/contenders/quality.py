"""How well an annotated video kept its source's pictures: SSIM of luma over the part without labels."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CLEAN = "crop=iw/5:ih:iw*4/5:0"
"""The right fifth: on a wide picture, all programs that are compared draw to the left of it."""


def ssim(source: Path, annotated: Path) -> dict[str, float]:
    """Mean SSIM of luma by FFmpeg's filter: of the part without labels, and of whole pictures (labels count as damage).

    :raises ValueError: if FFmpeg says nothing.
    """
    return {"clean": _ssim(source, annotated, CLEAN), "whole": _ssim(source, annotated, "null")}


def _ssim(source: Path, annotated: Path, part: str) -> float:
    graph = f"[0:v]{part},settb=AVTB,setpts=N[a];[1:v]{part},settb=AVTB,setpts=N[b];[a][b]ssim"
    inputs = ["-i", str(annotated), "-i", str(source)]
    command = ["ffmpeg", "-nostdin", "-hide_banner", *inputs, "-lavfi", graph, "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"SSIM Y:([0-9.]+)", done.stderr)
    if found is None:
        raise ValueError(f"no SSIM in: {done.stderr[-500:]}")
    return float(found[1])
