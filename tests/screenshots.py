"""Makes the README's pictures: docs/window.png and docs/frame.jpg.

    python -m tests.screenshots              (needs Xvfb, xdotool and ffmpeg; takes about half a minute)

The window is the real one: `watchline run --show` on a screen of Xvfb, which keeps its pixels in a file.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import av
import cv2
import numpy as np
from PIL import Image

from samples import FOLDER as SAMPLES
from tests.command import WATCHLINE
from tests.display import Environ, start_xvfb, without_display
from tests.sinks.window_scenarios import screenshot

DOCS = Path(__file__).parents[1] / "docs"
FRAME_AT_S = 2.4
"""Media time of the annotated frame: the middle of the first shot."""
CUTS = {"squirrel": "0", "orange": "4", "home": "8", "baboon": "20.8"}
"""Shots of the sample that become clips of their own, and their starts in seconds. Each begins with a keyframe."""
CUT_S = "4"
WARM_UP_S = 14.0
"""Time for loading the model and for a few seconds of every clip."""
OPENED_S = 60.0
"""Limit for the window to open."""


def annotated_frame(place: Path) -> None:
    """Write docs/frame.jpg: one frame of the annotated sample, at its own size."""
    video = place / "annotated.mp4"
    watched = ("run", str(SAMPLES / "sample.mp4"), "--no-show", "--max-frames", "75", "-o", str(video))
    subprocess.run([str(WATCHLINE), *watched], check=True)
    with av.open(str(video)) as container:
        frame = next(f for f in container.decode(video=0) if f.time is not None and f.time >= FRAME_AT_S)
    cv2.imwrite(str(DOCS / "frame.jpg"), frame.to_ndarray(format="bgr24"), [cv2.IMWRITE_JPEG_QUALITY, 88])


def window(place: Path) -> None:
    """Write docs/window.png: the window with four streams."""
    clips = [_cut(place, name) for name in CUTS]
    server, display = start_xvfb(place)
    environ = without_display(DISPLAY=display)
    os.environ["XVFB_SCREEN"] = str(place / "Xvfb_screen0")
    command = [str(WATCHLINE), "run", *clips, "--show", "--realtime", "--loop"]
    try:
        process = subprocess.Popen(command, env=environ)
        try:
            x, y, w, h = _geometry(environ)
            time.sleep(WARM_UP_S)
            _save(screenshot()[y : y + h, x : x + w])
        finally:
            process.terminate()
            process.wait()
    finally:
        server.terminate()
        server.wait()


def _save(pixels: np.ndarray) -> None:
    """Write docs/window.png in 256 colours: 0.3 MB instead of 1 MB. pixels: (h, w, 3) uint8 BGR."""
    picture = Image.fromarray(np.ascontiguousarray(pixels[..., ::-1]))
    palette = picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=4)
    picture.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(DOCS / "window.png", optimize=True)


def _cut(place: Path, name: str) -> str:
    path = str(place / f"{name}.mp4")
    cut = ("-ss", CUTS[name], "-t", CUT_S, "-i", str(SAMPLES / "sample.mp4"), "-c", "copy", "-an", path)
    subprocess.run(["ffmpeg", "-v", "error", *cut], check=True)
    return path


def _geometry(environ: Environ) -> tuple[int, int, int, int]:
    """The window's x, y, width and height on the screen, as soon as it is there."""
    end = time.monotonic() + OPENED_S
    find = ["xdotool", "search", "--onlyvisible", "--name", "Watchline", "getwindowgeometry", "--shell"]
    while True:
        said = subprocess.run(find, env=environ, capture_output=True, text=True).stdout
        facts = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        if "WIDTH" in facts:
            return int(facts["X"]), int(facts["Y"]), int(facts["WIDTH"]), int(facts["HEIGHT"])
        if time.monotonic() > end:
            raise TimeoutError(f"no window within {OPENED_S:g} s")
        time.sleep(0.1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        annotated_frame(Path(folder))
        window(Path(folder))


if __name__ == "__main__":
    main()
