"""Pictures as RGB, as the program sees them and as the ffmpeg command line does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from pipelines.frame import Picture
from pipelines.media.colour import scaler_code
from pipelines.media.pixels import EXACT
from pipelines.media.planes import color_range, yuv_frame
from tests.system import need

Rgb = npt.NDArray[np.uint8]
"""(height, width, 3)"""
WIDTH, HEIGHT = 160, 96
SMOOTH = f"gradients=s={WIDTH}x{HEIGHT}:d=0.2:c0=red:c1=blue:c2=green:c3=white:n=4:seed=7:x0=10:y0=5:x1=150:y1=90"
"""A film for ffmpeg's lavfi: colours without edges. Chroma that is halved and doubled again stays the same."""


def rgb(picture: Picture) -> Rgb:
    """The picture upright, exactly converted."""
    converted = VideoReformatter().reformat(
        yuv_frame(picture),
        format="rgb24",
        interpolation=EXACT,
        threads=1,
        src_colorspace=scaler_code(picture.matrix),
        src_color_range=color_range(picture.full_range),
        dst_color_range=color_range(True),
    )
    flat = converted.to_ndarray()
    turned = np.rot90(flat, -picture.rotation // 90)
    return turned[:, ::-1] if picture.mirrored else turned


def reference(path: Path, *options: str) -> Rgb:
    """The first frame as the ffmpeg command line gives it: turned, with the scaler's exact flags."""
    need("ffmpeg")
    probe = ["-sws_flags", "bicubic+accurate_rnd+full_chroma_int+full_chroma_inp"]
    done = subprocess.run(
        [
            "ffmpeg",
            "-v",
            "error",
            "-i",
            str(path),
            *options,
            "-frames:v",
            "1",
            *probe,
            "-f",
            "image2pipe",
            "-c:v",
            "ppm",
            "-pix_fmt",
            "rgb24",
            "-",
        ],
        capture_output=True,
        check=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )
    magic, width, height, _most = done.stdout.split(maxsplit=4)[:4]
    assert magic == b"P6"
    shape = int(height), int(width), 3
    return np.frombuffer(done.stdout[-shape[0] * shape[1] * 3 :], np.uint8).reshape(shape)


def near(found: Rgb, wanted: Rgb, mean: float = 2, most: float = 12) -> None:
    """Fail if the pictures are further apart than so many levels in the mean, or anywhere."""
    assert found.shape == wanted.shape
    apart = np.abs(found.astype(int) - wanted)
    assert apart.mean() < mean, f"mean difference {apart.mean():.2f}, at most {apart.max()}"
    assert apart.max() < most, f"at most {apart.max()}, mean {apart.mean():.2f}"


def corners(picture: Rgb) -> npt.NDArray[np.int64]:
    """Mean colours in the middle of the four quadrants: top left, top right, bottom left, bottom right."""
    height, width = picture.shape[:2]
    places = [(y, x) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)]
    return np.array([picture[y - 4 : y + 4, x - 4 : x + 4].reshape(-1, 3).mean(0).round() for y, x in places], int)
