"""Pictures of every pixel format, range, matrix and rotation, compared with the output of the ffmpeg command line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from pipelines.frame import Picture
from pipelines.sources.files.file import FileSource
from pipelines.sources.files.images import ImagesSource
from tests.rgb import HEIGHT, SMOOTH, WIDTH, corners, near, reference, rgb
from tests.sources.conftest import ffmpeg
from tests.sources.play import everything
from tests.turns import TURNS, quadrants, write_matrix


def _first(path: Path) -> Picture:
    return everything(FileSource(path))[0].picture


FORMATS = [
    "yuv420p",
    "yuv422p",
    "yuv444p",
    "yuv420p10le",
    "yuv422p10le",
    "yuv444p12le",
    "gray",
    "gray10le",
    "gbrp",
    "gbrp10le",
    "rgb24",
    "rgb48le",
    "bgr0",
    "nv12",
    "yuyv422",
    "uyvy422",
]
PACKED = ("nv12", "yuyv422", "uyvy422", "rgb24", "rgb48le")


@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_pixel_formats(pix_fmt: str, tmp_path: Path) -> None:
    clip = tmp_path / ("clip.nut" if pix_fmt in PACKED else "clip.mkv")
    codec = ["-c:v", "rawvideo" if pix_fmt in PACKED else "utvideo" if pix_fmt == "gbrp" else "ffv1"]
    ffmpeg("-f", "lavfi", "-i", SMOOTH, *codec, "-pix_fmt", pix_fmt, "-strict", -1, clip)
    with av.open(str(clip)) as container:
        assert next(container.decode(video=0)).format.name == pix_fmt
    picture = _first(clip)
    assert (picture.y.dtype, picture.y.shape, picture.u.shape) == (np.uint8, (96, 160), (48, 80))
    near(rgb(picture), reference(clip))


FILMS = [
    ("png", "mov", "rgb24"),
    ("png", "mov", "rgba"),
    ("qtrle", "mov", "argb"),
    ("mjpeg", "avi", "yuvj420p"),
    ("mjpeg", "avi", "yuvj422p"),
]


@pytest.mark.parametrize(("codec", "suffix", "pix_fmt"), FILMS)
def test_pixel_formats_of_films_of_pictures(codec: str, suffix: str, pix_fmt: str, tmp_path: Path) -> None:
    clip = tmp_path / f"clip.{suffix}"
    ffmpeg("-f", "lavfi", "-i", SMOOTH, "-c:v", codec, "-q:v", 2, "-pix_fmt", pix_fmt, clip)
    picture = _first(clip)
    assert picture.full_range
    near(rgb(picture), reference(clip))


def test_an_animation(tmp_path: Path) -> None:
    """Read as a video, it has all frames and times; read as a picture, the first frame."""
    shades = [
        Image.new("RGB", (WIDTH, HEIGHT), (40 * k, 48, 32)).convert("P", palette=Image.Palette.ADAPTIVE) for k in range(5)
    ]
    gif = tmp_path / "clip.gif"
    shades[0].save(gif, save_all=True, append_images=shades[1:], duration=100)
    captures = everything(FileSource(gif))
    assert [c.pts_s for c in captures] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    for k, capture in enumerate(captures):
        assert np.abs(rgb(capture.picture).astype(int) - (40 * k, 48, 32)).max() <= 4
    assert len(everything(ImagesSource([gif]))) == 1


@pytest.mark.parametrize(
    ("full", "matrix"),
    [(f, m) for f in (True, False) for m in ("bt709", "bt601", "bt2020")],
)
def test_range_and_matrix_as_they_are_tagged(full: bool, matrix: str, tmp_path: Path) -> None:
    """Case C26: (192, 48, 32) on every pixel."""
    clip = tmp_path / "tagged.mp4"
    tag = {"bt601": "smpte170m", "bt2020": "bt2020nc"}.get(matrix, matrix)
    scaler = {"bt601": "smpte170m", "bt2020": "bt2020"}.get(matrix, matrix)
    span = "pc" if full else "tv"
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "color=c=0xC03020:s=64x64:r=25:d=0.2",
        "-vf",
        f"format=gbrp,scale=out_range={span}:out_color_matrix={scaler},format=yuv420p",
        "-color_range",
        span,
        "-colorspace",
        tag,
        "-c:v",
        "libx264",
        "-qp",
        "1",
        clip,
    )
    picture = _first(clip)
    assert (picture.full_range, picture.matrix) == (full, matrix)
    assert np.abs(rgb(picture).astype(int) - (192, 48, 32)).max() <= 3


def test_without_tags_it_is_what_the_command_line_takes_it_for(tmp_path: Path) -> None:
    clip = tmp_path / "plain.mp4"
    ffmpeg("-f", "lavfi", "-i", SMOOTH, "-c:v", "libx264", "-qp", 1, "-pix_fmt", "yuv420p", clip)
    picture = _first(clip)
    assert (picture.full_range, picture.matrix) == (False, "bt601")
    near(rgb(picture), reference(clip), 1, 4)


def test_planes_of_yuv420p_are_the_decoder_s_own(tmp_path: Path) -> None:
    clip = tmp_path / "plain.mkv"
    ffmpeg("-f", "lavfi", "-i", SMOOTH, "-c:v", "ffv1", "-pix_fmt", "yuv420p", clip)
    picture = _first(clip)
    with av.open(str(clip)) as container:
        frame = next(container.decode(video=0))
        wanted = [np.frombuffer(p, np.uint8).reshape(-1, p.line_size)[: p.height, : p.width] for p in frame.planes]
    for plane, same in zip((picture.y, picture.u, picture.v), wanted, strict=True):
        assert np.array_equal(plane, same)
        assert not plane.flags.owndata


def test_sample_aspect(tmp_path: Path) -> None:
    clip = tmp_path / "wide.mkv"
    ffmpeg("-f", "lavfi", "-i", SMOOTH, "-vf", "setsar=16/11", "-c:v", "ffv1", clip)
    assert _first(clip).sample_aspect == Fraction(16, 11)
    ffmpeg("-f", "lavfi", "-i", SMOOTH, "-vf", "setsar=0", "-c:v", "ffv1", clip)
    assert _first(clip).sample_aspect == 1


# Rotations.


@pytest.mark.parametrize("turn", TURNS)
def test_turns_of_a_film(turn: str, tmp_path: Path) -> None:
    """Case C18, and the four mirrored rotations."""
    quadrants().save(tmp_path / "q.png")
    clip = tmp_path / "turned.mp4"
    ffmpeg("-loop", 1, "-i", tmp_path / "q.png", "-frames:v", 3, "-c:v", "libx264", "-qp", 4, "-pix_fmt", "yuv420p", clip)
    write_matrix(clip, *TURNS[turn])
    picture = _first(clip)
    wanted = reference(clip)
    found = rgb(picture)
    assert found.shape == wanted.shape
    assert np.abs(corners(found) - corners(wanted)).max() <= 5
    assert picture.upright_size == (wanted.shape[1], wanted.shape[0])
    distinct = {tuple(c) for c in corners(found)}
    assert len(distinct) == 4


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_orientations_of_a_photo(orientation: int, suffix: str, tmp_path: Path) -> None:
    """The picture is upright for every EXIF orientation."""
    upright = quadrants()
    ways = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the Pillow operation from the upright picture to the stored one
    stored = upright.transpose(Image.Transpose(ways[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"photo.{suffix}"
    stored.save(path, exif=exif, quality=95, subsampling=0)
    picture = everything(ImagesSource([path]))[0].picture
    found = corners(rgb(picture))
    assert picture.upright_size == (WIDTH, HEIGHT)
    assert np.abs(found - corners(np.asarray(upright))).max() <= 6


@pytest.mark.parametrize("mode", ["L", "RGB", "P", "1", "RGBA", "LA", "I;16", "CMYK"])
def test_modes_of_a_photo(mode: str, tmp_path: Path) -> None:
    """The colours are those of the opaque picture in RGB."""
    grey = mode in ("L", "1", "LA", "I;16")
    if mode == "I;16":
        ramp = np.linspace(0, 65535, WIDTH)[None].repeat(HEIGHT, 0).astype(np.uint16)
        image, wanted = Image.fromarray(ramp), np.repeat((ramp >> 8).astype(np.uint8)[..., None], 3, 2)
    else:
        shade = Image.new("RGB", (WIDTH, HEIGHT), (90, 90, 90) if grey else (192, 48, 32))
        image = shade.convert(mode, palette=Image.Palette.ADAPTIVE)
        wanted = np.asarray(image.convert("RGB"))
    path = tmp_path / ("photo.jpg" if mode == "CMYK" else "photo.png")
    image.save(path, **({"quality": 98} if mode == "CMYK" else {}))
    near(rgb(everything(ImagesSource([path]))[0].picture), wanted, 2, 12)
