"""Pictures of every pixel format, range, matrix and turn, against what the ffmpeg command line makes of the same file."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
from av.video.reformatter import VideoReformatter
from PIL import Image

from pipelines.frame import Picture
from pipelines.planes import SCALER_SPACES, color_range, yuv_frame
from pipelines.sources.file import FileSource
from pipelines.sources.images import ImagesSource
from pipelines.sources.pixels import EXACT
from tests.sources.conftest import ffmpeg
from tests.sources.play import everything
from tests.system import need

Rgb = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 160, 96
SMOOTH = f"gradients=s={WIDTH}x{HEIGHT}:d=0.2:c0=red:c1=blue:c2=green:c3=white:n=4:seed=7:x0=10:y0=5:x1=150:y1=90"
"""Colours without edges: chroma that is halved and doubled again stays what it was."""


def _rgb(picture: Picture) -> Rgb:
    """The picture upright, as the model would see it, exactly converted."""
    converted = VideoReformatter().reformat(
        yuv_frame(picture), format="rgb24", interpolation=EXACT, threads=1,
        src_colorspace=SCALER_SPACES[picture.matrix], src_color_range=color_range(picture.full_range),
        dst_color_range=color_range(True),
    )  # fmt: skip
    flat = converted.to_ndarray()
    turned = np.rot90(flat, -picture.rotation // 90)
    return turned[:, ::-1] if picture.mirrored else turned


def _reference(path: Path, *options: str) -> Rgb:
    """The first frame as the ffmpeg command line gives it: turned, with the scaler's exact flags."""
    need("ffmpeg")
    probe = ["-sws_flags", "bicubic+accurate_rnd+full_chroma_int+full_chroma_inp"]
    done = subprocess.run(
        ["ffmpeg", "-v", "error", "-i", str(path), *options, "-frames:v", "1", *probe, "-f", "image2pipe", "-c:v", "ppm",
         "-pix_fmt", "rgb24", "-"],
        capture_output=True, check=True, timeout=30, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    magic, width, height, _most = done.stdout.split(maxsplit=4)[:4]
    assert magic == b"P6"
    shape = int(height), int(width), 3
    return np.frombuffer(done.stdout[-shape[0] * shape[1] * 3 :], np.uint8).reshape(shape)


def _near(found: Rgb, wanted: Rgb, mean: float = 2, most: float = 12) -> None:
    assert found.shape == wanted.shape
    apart = np.abs(found.astype(int) - wanted)
    assert apart.mean() < mean, f"mean difference {apart.mean():.2f}, at most {apart.max()}"
    assert apart.max() < most, f"at most {apart.max()}, mean {apart.mean():.2f}"


def _first(path: Path) -> Picture:
    return everything(FileSource(path))[0].picture


FORMATS = [
    "yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p12le", "gray", "gray10le", "gbrp",
    "gbrp10le", "rgb24", "rgb48le", "bgr0", "nv12", "yuyv422", "uyvy422",
]  # fmt: skip
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
    _near(_rgb(picture), _reference(clip))


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
    _near(_rgb(picture), _reference(clip))


def test_an_animation(tmp_path: Path) -> None:
    """As a film all its frames and times; as a picture the first."""
    shades = [
        Image.new("RGB", (WIDTH, HEIGHT), (40 * k, 48, 32)).convert("P", palette=Image.Palette.ADAPTIVE) for k in range(5)
    ]
    gif = tmp_path / "clip.gif"
    shades[0].save(gif, save_all=True, append_images=shades[1:], duration=100)
    captures = everything(FileSource(gif))
    assert [c.pts_s for c in captures] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    for k, capture in enumerate(captures):
        assert np.abs(_rgb(capture.picture).astype(int) - (40 * k, 48, 32)).max() <= 4
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
        "-f", "lavfi", "-i", "color=c=0xC03020:s=64x64:r=25:d=0.2", "-vf",
        f"format=gbrp,scale=out_range={span}:out_color_matrix={scaler},format=yuv420p", "-color_range", span,
        "-colorspace", tag, "-c:v", "libx264", "-qp", "1", clip,
    )  # fmt: skip
    picture = _first(clip)
    assert (picture.full_range, picture.matrix) == (full, matrix)
    assert np.abs(_rgb(picture).astype(int) - (192, 48, 32)).max() <= 3


def test_without_tags_it_is_what_the_command_line_takes_it_for(tmp_path: Path) -> None:
    clip = tmp_path / "plain.mp4"
    ffmpeg("-f", "lavfi", "-i", SMOOTH, "-c:v", "libx264", "-qp", 1, "-pix_fmt", "yuv420p", clip)
    picture = _first(clip)
    assert (picture.full_range, picture.matrix) == (False, "bt601")
    _near(_rgb(picture), _reference(clip), 1, 4)


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


# Turns. Four quadrants of different colours show each of the eight.


def _quadrants() -> Image.Image:
    image = Image.new("RGB", (WIDTH, HEIGHT))
    for k, colour in enumerate(((220, 40, 40), (40, 60, 220), (60, 200, 60), (230, 220, 40))):
        x, y = k % 2 * WIDTH // 2, k // 2 * HEIGHT // 2
        image.paste(colour, (x, y, x + WIDTH // 2, y + HEIGHT // 2))
    return image


def _corners(rgb: Rgb) -> npt.NDArray[np.int64]:
    height, width = rgb.shape[:2]
    places = [(y, x) for y in (height // 4, 3 * height // 4) for x in (width // 4, 3 * width // 4)]
    return np.array([rgb[y - 4 : y + 4, x - 4 : x + 4].reshape(-1, 3).mean(0).round() for y, x in places], int)


def _matrix(clip: Path, a: int, b: int, c: int, d: int) -> None:
    """Write a display matrix (16.16 fixed point) into the track header of an mp4."""
    data = bytearray(clip.read_bytes())
    at = data.index(b"tkhd")
    place = at + 4 + 40
    for k, value in enumerate((a, b, 0, c, d)):
        data[place + 4 * k : place + 4 * k + 4] = (value << 16 & 0xFFFFFFFF).to_bytes(4, "big")
    clip.write_bytes(bytes(data))


TURNS = {
    "as it is": (1, 0, 0, 1), "90": (0, 1, -1, 0), "180": (-1, 0, 0, -1), "270": (0, -1, 1, 0),
    "mirrored": (-1, 0, 0, 1), "upside down": (1, 0, 0, -1), "transposed": (0, 1, 1, 0), "anti-transposed": (0, -1, -1, 0),
}  # fmt: skip


@pytest.mark.parametrize("turn", TURNS)
def test_turns_of_a_film(turn: str, tmp_path: Path) -> None:
    """Case C18, and the four mirrored ones."""
    _quadrants().save(tmp_path / "q.png")
    clip = tmp_path / "turned.mp4"
    ffmpeg("-loop", 1, "-i", tmp_path / "q.png", "-frames:v", 3, "-c:v", "libx264", "-qp", 4, "-pix_fmt", "yuv420p", clip)
    _matrix(clip, *TURNS[turn])
    picture = _first(clip)
    wanted = _reference(clip)
    found = _rgb(picture)
    assert found.shape == wanted.shape
    assert np.abs(_corners(found) - _corners(wanted)).max() <= 5
    assert picture.upright_size == (wanted.shape[1], wanted.shape[0])
    distinct = {tuple(c) for c in _corners(found)}
    assert len(distinct) == 4


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_orientations_of_a_photo(orientation: int, suffix: str, tmp_path: Path) -> None:
    """Whatever EXIF says, the picture comes out upright."""
    upright = _quadrants()
    ways = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # how Pillow must turn the upright one for it to be stored so
    stored = upright.transpose(Image.Transpose(ways[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"photo.{suffix}"
    stored.save(path, exif=exif, quality=95, subsampling=0)
    picture = everything(ImagesSource([path]))[0].picture
    found = _corners(_rgb(picture))
    assert picture.upright_size == (WIDTH, HEIGHT)
    assert np.abs(found - _corners(np.asarray(upright))).max() <= 6


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
    _near(_rgb(everything(ImagesSource([path]))[0].picture), wanted, 2, 12)
