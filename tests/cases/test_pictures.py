"""C12, C18, C26, C27, C62, C64: pictures of every size, turn, range, matrix and format, interlaced or transparent ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from pipelines.frame import WHOLE_FRAME, Picture
from pipelines.predict.preprocess import InputSpec, RgbPreprocess
from pipelines.sinks.mosaic import Mosaic
from pipelines.sources.files.file import FileSource
from pipelines.sources.wrappers.interlace import Interlace
from tests.clips import numbered, write
from tests.command import PROBE, Done, watchline
from tests.rgb import SMOOTH, Rgb, corners, near, reference, rgb
from tests.sources.conftest import ffmpeg
from tests.sources.play import everything
from tests.system import need
from tests.turns import TURNS, quadrants, write_matrix

pytestmark = [pytest.mark.field, pytest.mark.timeout(120)]
SAMPLES = Path(__file__).parents[2] / "samples"


def at_model(picture: Picture, size: tuple[int, int] | None = None) -> Rgb:
    """The input of a model that takes the whole picture, in the picture's own size unless another is named."""
    width, height = size or picture.upright_size
    made = np.zeros((3, height, width), np.uint8)
    RgbPreprocess(InputSpec(height, width, max(height, width)), "squash")(picture, WHOLE_FRAME[0], made)
    return made.transpose(1, 2, 0)


def in_window(picture: Picture) -> Rgb:
    """The picture that the user sees."""
    mosaic = Mosaic()
    mosaic.resize(picture.upright_size)
    mosaic.show("a", picture)
    mosaic.draw()
    return mosaic.canvas[..., ::-1]


def pictures(path: Path) -> list[Picture]:
    return [capture.picture for capture in everything(FileSource(path))]


def annotated(source: Path, *flags: str) -> tuple[Done, Path]:
    """Run a file with the probe to its annotated video, which must hold every frame."""
    output = source.with_name("annotated.mp4")
    output.unlink(missing_ok=True)
    done = watchline("run", str(source), *PROBE, "-o", str(output), "--jsonl", "-", *flags)
    assert done.code == 0, done.err
    assert [line["frame"] for line in done.lines] == list(range(len(done.lines)))
    assert len(done.lines) == probe(output)["nb_read_frames"] == probe(source)["nb_read_frames"]
    return done, output


def probe(path: Path) -> dict[str, Any]:
    """ffprobe's facts of the video stream; its numbers as numbers."""
    need("ffprobe")
    said = subprocess.run(
        ["ffprobe", "-v", "error", "-count_frames", "-select_streams", "v:0", "-show_streams", "-of", "json", str(path)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    (stream,) = json.loads(said.stdout)["streams"]
    return {k: int(v) if str(v).isdigit() else v for k, v in stream.items()}


# C12: sizes.

SIZES = [
    ("odd.mkv", (321, 241), ["-c:v", "ffv1", "-pix_fmt", "yuv444p"], 100),
    ("odd.avi", (321, 241), ["-c:v", "mjpeg", "-pix_fmt", "yuvj420p"], 10),
    ("odd.mp4", (321, 241), ["-c:v", "libx264", "-pix_fmt", "yuv444p"], 10),
    ("m4.avi", (321, 241), ["-c:v", "mpeg4", "-pix_fmt", "yuv420p"], 10),
    ("vp9.webm", (321, 241), ["-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p", "-cpu-used", "8"], 10),
    ("av1.mp4", (321, 241), ["-c:v", "libaom-av1", "-pix_fmt", "yuv420p", "-cpu-used", "8"], 10),
    ("wide.mkv", (320, 241), ["-c:v", "ffv1", "-pix_fmt", "yuv420p"], 10),
    ("high.mkv", (321, 240), ["-c:v", "ffv1", "-pix_fmt", "yuv420p"], 10),
    ("dot.mkv", (1, 1), ["-c:v", "ffv1", "-pix_fmt", "yuv444p"], 100),
    ("four.mkv", (2, 2), ["-c:v", "ffv1", "-pix_fmt", "yuv444p"], 100),
    ("line.mkv", (3, 1), ["-c:v", "ffv1", "-pix_fmt", "yuv444p"], 10),
    ("hd.mp4", (1920, 1080), ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"], 5),
    ("hd.ts", (1920, 1080), ["-c:v", "mpeg2video", "-pix_fmt", "yuv420p"], 5),
]


@pytest.mark.parametrize(("name", "size", "codec", "frames"), SIZES, ids=[s[0] for s in SIZES])
def test_c12_a_video_of_any_size_is_padded_to_even_sides_and_never_scaled(
    name: str, size: tuple[int, int], codec: list[str], frames: int, tmp_path: Path
) -> None:
    """testsrc2 itself makes even sizes only."""
    width, height = size
    whole = f"testsrc2=s={width + 15}x{height + 15}:r=25,format=yuv444p,crop={width}:{height}:0:0"
    clip = tmp_path / name
    ffmpeg("-f", "lavfi", "-i", whole, "-frames:v", frames, *codec, clip)
    assert (probe(clip)["width"], probe(clip)["height"]) == size
    done, output = annotated(clip)
    assert len(done.lines) == frames
    found = probe(output)
    assert (found["width"], found["height"]) == (width + width % 2, height + height % 2)
    read, written = (pictures(path)[0].y.astype(int) for path in (clip, output))
    # The overlay and the codec touch the smaller part: scaled by one pixel, the edges of the pattern would be apart.
    assert np.median(np.abs(written[:height, :width] - read)) <= 4
    if min(size) > 100:
        assert (np.abs(written[:height, :width] - read) <= 24).mean() > 0.6
    assert np.abs(written[height:] - written[height - 1]).max(initial=0) <= 24
    assert np.abs(written[:, width:] - written[:, width - 1 : width]).max(initial=0) <= 24


# C18: turns.

SMALL = (80, 48)
"""Too small to be drawn on."""


@pytest.fixture
def turned(tmp_path: Path) -> Path:
    """Four quadrants, not turned yet."""
    quadrants(*SMALL).save(tmp_path / "q.png")
    clip = tmp_path / "turned.mp4"
    ffmpeg("-loop", 1, "-i", tmp_path / "q.png", "-frames:v", 30, "-c:v", "libx264", "-qp", 4, "-pix_fmt", "yuv420p", clip)
    return clip


@pytest.mark.parametrize("turn", TURNS)
def test_c18_model_window_and_output_see_what_the_command_line_sees(turn: str, turned: Path) -> None:
    write_matrix(turned, *TURNS[turn])
    _turned_as(reference(turned), turned)


def test_c18_a_turn_in_matroska(tmp_path: Path) -> None:
    """FFmpeg's command line writes none there before version 6."""
    y = np.full((48, 80), 60, np.uint8)
    y[:, :40] = 200
    grey = np.full((24, 40), 128, np.uint8)
    clip = write(tmp_path / "turned.mkv", [(y, grey, grey)] * 5, size=SMALL, rotation=90)
    (picture, *_) = pictures(clip)
    assert picture.upright_size == (48, 80)
    assert at_model(picture)[:, :, 0].mean(1)[[20, 60]] == pytest.approx([214, 51], abs=5)
    assert probe(annotated(clip)[1])["height"] == 80


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_c18_a_turn_in_the_stream_holds_for_all_its_pictures(turn: int, turned: Path) -> None:
    """A camera that hangs in a corridor says so in the stream, and with key pictures only."""
    clip = turned.with_name("sei.mp4")
    ffmpeg("-i", turned, "-c", "copy", "-bsf:v", f"h264_metadata=display_orientation=insert:rotate={turn}", clip)
    said = subprocess.run(
        ["ffprobe", "-v", "error", "-show_frames", "-of", "json", str(clip)], capture_output=True, check=True, timeout=60
    )
    frames = json.loads(said.stdout)["frames"]
    assert ["rotation" in json.dumps(frame) for frame in frames] == [True] + 29 * [False]
    upright = np.asarray(quadrants(*SMALL))
    _turned_as(np.rot90(upright, turn // 90), clip)


def test_c18_a_turn_in_the_stream_ends_with_the_next_key_picture_without_one(turned: Path) -> None:
    clip, both = turned.with_suffix(".ts"), turned.with_name("both.ts")
    ffmpeg("-i", turned, "-c", "copy", "-bsf:v", "h264_mp4toannexb,h264_metadata=display_orientation=insert:rotate=90", clip)
    ffmpeg("-i", turned, "-c", "copy", turned.with_name("plain.ts"))
    both.write_bytes(clip.read_bytes() + turned.with_name("plain.ts").read_bytes())
    assert [picture.rotation for picture in pictures(both)] == 30 * [270] + 30 * [0]


def _turned_as(wanted: Rgb, clip: Path) -> None:
    """Every picture is upright at the model, in the window and in the output, which is not to be turned once more."""
    colours = corners(wanted)
    assert len({tuple(colour) for colour in colours}) == 4
    for picture in pictures(clip):
        assert picture.upright_size == (wanted.shape[1], wanted.shape[0])
        assert np.abs(corners(at_model(picture)) - colours).max() <= 5
        assert np.abs(corners(in_window(picture)) - colours).max() <= 5
    _, output = annotated(clip)
    found = probe(output)
    assert (found["height"], found["width"]) == wanted.shape[:2]
    assert "rotation" not in json.dumps(found)
    for picture in pictures(output):
        assert np.abs(corners(rgb(picture)) - colours).max() <= 5


# C26: range and matrix.

RED = (192, 48, 32)
CODECS = {
    "libx264": ("h264.mp4", ["-qp", "1"]),
    "libx265": ("hevc.mp4", ["-x265-params", "log-level=none:qp=1", "-preset", "ultrafast"]),
    "libvpx-vp9": ("vp9.webm", ["-lossless", "1", "-cpu-used", "8"]),
    "libaom-av1": ("av1.mkv", ["-crf", "1", "-cpu-used", "8"]),
    "ffv1": ("ffv1.mkv", []),
}
TAGS = {
    "bt709": ("bt709", "bt709"),
    "bt601": ("smpte170m", "smpte170m"),
    "bt470bg": ("bt470bg", "bt470"),
    "bt2020": ("bt2020nc", "bt2020"),
    "smpte240m": ("smpte240m", "smpte240m"),
    "fcc": ("fcc", "fcc"),
}
"""The stream's tag, and the scaler's name, of each matrix."""
COLOURS = [(codec, full, "bt709") for codec in CODECS for full in (True, False)]
COLOURS += [("libx264", full, matrix) for matrix in TAGS if matrix != "bt709" for full in (True, False)]


def one_colour(folder: Path, codec: str, *, full: bool | None, matrix: str) -> Path:
    """A clip of (192, 48, 32) alone. full: None: it is of the small range, and nothing is tagged."""
    name, options = CODECS[codec]
    tag, scaler = TAGS[matrix]
    span = "pc" if full else "tv"
    tags = [] if full is None else ["-color_range", span, "-colorspace", tag]
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "color=c=0xC03020:s=64x64:r=25:d=0.2",
        "-vf",
        f"format=gbrp,scale=out_range={span}:out_color_matrix={scaler},format=yuv420p",
        *tags,
        "-c:v",
        codec,
        *options,
        folder / name,
    )
    return folder / name


@pytest.mark.parametrize(("codec", "full", "matrix"), COLOURS)
def test_c26_tagged_colours_are_exact_at_the_model_and_kept_in_the_output(
    codec: str, full: bool, matrix: str, tmp_path: Path
) -> None:
    clip = one_colour(tmp_path, codec, full=full, matrix=matrix)
    (picture, *_) = pictures(clip)
    for found in (at_model(picture), at_model(picture, (224, 224)), in_window(picture)):
        assert np.abs(found.astype(int) - RED).max() <= 3
    _, output = annotated(clip)
    assert probe(output)["color_range"] == ("pc" if full else "tv")
    for found in (rgb(pictures(output)[0]), reference(output)):
        assert np.abs(found.astype(int) - RED).max() <= 6


@pytest.mark.parametrize("matrix", ["bt601", "bt709"])
def test_c26_untagged_colours_are_what_the_command_line_takes_them_for(matrix: str, tmp_path: Path) -> None:
    clip = one_colour(tmp_path, "libx264", full=None, matrix=matrix)
    assert {"color_range", "color_space"}.isdisjoint(probe(clip))
    (picture, *_) = pictures(clip)
    for found in (at_model(picture), at_model(picture, (64, 64)), in_window(picture)):
        assert np.abs(found.astype(int) - reference(clip)).max() <= 3
    _, output = annotated(clip)
    # It is tagged now with the assumed colours.
    assert np.abs(reference(output).astype(int) - reference(clip)).max() <= 6


@pytest.mark.parametrize("matrix", ["bt709", "bt601"])
def test_c26_outside_of_the_drawing_the_output_is_the_input(matrix: str, tmp_path: Path) -> None:
    """On a picture that is drawn on: the middle of its left half stays free."""
    clip = tmp_path / "large.mp4"
    scale = f"format=gbrp,scale=out_range=pc:out_color_matrix={TAGS[matrix][1]},format=yuv420p"
    tags = ["-color_range", "pc", "-colorspace", TAGS[matrix][0]]
    ffmpeg("-f", "lavfi", "-i", "color=c=0xC03020:s=640x360:r=25:d=0.2", "-vf", scale, *tags, "-c:v", "libx264", "-qp", 1, clip)
    _, output = annotated(clip)
    found = reference(output).astype(int)
    assert np.abs(found[120:200, 20:300] - RED).max() <= 6
    assert np.abs(found - RED).max() > 60, "nothing was drawn"


# C27: pixel formats.

FORMATS = [
    *(
        (f"{f}.mkv", "ffv1", f)
        for f in (
            "yuv420p10le",
            "yuv422p",
            "yuv422p10le",
            "yuv444p",
            "yuv444p12le",
            "yuv411p",
            "gray",
            "gray10le",
            "gray16le",
            "gbrp",
            "gbrp10le",
            "rgb48le",
            "bgr0",
        )
    ),
    ("hevc10.mp4", "libx265", "yuv420p10le"),
    ("hevc422.mkv", "libx265", "yuv422p10le"),
    ("hevc12.mp4", "libx265", "yuv420p12le"),
    ("hevcrgb.mkv", "libx265", "gbrp"),
    ("hevcgray.mkv", "libx265", "gray"),
    ("high10.mp4", "libx264", "yuv420p10le"),
    ("high444.mp4", "libx264", "yuv444p"),
    ("rgb.mp4", "libx264rgb", "rgb24"),
    ("vp9.webm", "libvpx-vp9", "yuv420p10le"),
    ("vp9444.webm", "libvpx-vp9", "yuv444p"),
    ("av1.mp4", "libaom-av1", "yuv420p10le"),
    ("prores.mov", "prores_ks", "yuv422p10le"),
    ("mjpeg.avi", "mjpeg", "yuvj444p"),
    ("huff.avi", "huffyuv", "yuv422p"),
    ("raw.avi", "rawvideo", "yuyv422"),
    ("raw.nut", "rawvideo", "nv12"),
    ("bgr.avi", "rawvideo", "bgr24"),
    ("palette.avi", "rawvideo", "pal8"),
    ("mono.nut", "rawvideo", "monow"),
    ("rgb15.nut", "rawvideo", "rgb555le"),
    ("rgb16.nut", "rawvideo", "rgb565le"),
]
BEST = {
    "libx265": ["-x265-params", "log-level=none:qp=4", "-preset", "ultrafast"],
    "libx264": ["-qp", "4"],
    "libx264rgb": ["-qp", "4"],
    "libvpx-vp9": ["-crf", "4", "-b:v", "0", "-cpu-used", "8"],
    "libaom-av1": ["-crf", "4", "-cpu-used", "8"],
    "mjpeg": ["-q:v", "2"],
    "prores_ks": ["-qscale:v", "2"],
}


@pytest.mark.parametrize(("name", "codec", "pix_fmt"), FORMATS, ids=[f[0] for f in FORMATS])
def test_c27_every_pixel_format_reaches_the_model_as_the_command_line_shows_it(
    name: str, codec: str, pix_fmt: str, tmp_path: Path
) -> None:
    """With the scaler's exact flags on both sides: by default the command line takes each chroma sample for four pixels,
    and is 130 levels off at an edge of plain yuv420p. Colours without edges, since edges at half the resolution are
    another question (below)."""
    clip = tmp_path / name
    ffmpeg("-f", "lavfi", "-i", SMOOTH.replace("d=0.2", "d=1"), "-c:v", codec, *BEST.get(codec, []), "-pix_fmt", pix_fmt, clip)
    found = pictures(clip)
    assert len(found) == 25
    for picture in found:
        assert (picture.y.dtype, picture.y.shape, picture.u.shape) == (np.uint8, (96, 160), (48, 80))
    if pix_fmt in ("pal8", "monow"):  # dithered: every pixel is an edge
        near(at_model(found[0]), reference(clip, "-vf", "format=yuv420p"), 2, 24)
        return
    if pix_fmt in ("rgb555le", "rgb565le"):  # dithered, too; the command line's yuv420p makes white of them 248
        near(at_model(found[0]), reference(clip), 3, 24)
        return
    near(at_model(found[0]), reference(clip))
    _, output = annotated(clip)
    assert probe(output)["pix_fmt"] in ("yuv420p", "yuvj420p")
    near(rgb(pictures(output)[0])[40:60, :], reference(clip)[40:60, :], 4, 40)


@pytest.mark.parametrize(
    "pix_fmt", ["yuv420p", "yuv420p10le", "yuv422p", "yuv422p10le", "yuv444p", "gray", "gray10le", "gbrp", "rgb48le"]
)
def test_c27_hard_edges_are_those_of_the_picture_at_half_the_resolution_of_colour(pix_fmt: str, tmp_path: Path) -> None:
    clip = tmp_path / "clip.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=1", "-c:v", "ffv1", "-pix_fmt", pix_fmt, clip)
    found = pictures(clip)
    assert len(found) == 25
    near(rgb(found[0]), reference(clip, "-vf", "format=yuv420p"))


def test_c27_the_label_is_that_of_the_8_bit_clip(place: Path) -> None:
    formats = ["yuv420p", "yuv420p10le", "yuv422p", "yuv422p10le", "yuv444p", "gbrp", "rgb48le", "gray", "gray10le"]
    for pix_fmt in formats:
        ffmpeg(
            "-loop",
            1,
            "-i",
            SAMPLES / "photos/squirrel_cls.jpg",
            "-frames:v",
            3,
            "-vf",
            "scale=320:240",
            "-c:v",
            "ffv1",
            "-pix_fmt",
            pix_fmt,
            f"{pix_fmt}.mkv",
        )
    done = watchline("run", *(f"{f}.mkv" for f in formats), "--engine", "torch", "--no-show", "--jsonl", "-")
    assert done.code == 0, done.err
    best = {(line["stream"], line["labels"][0]["name"]) for line in done.lines}
    assert len(done.lines) == 3 * len(formats)
    assert {name for stream, name in best if not stream.startswith("gray")} == {"fox squirrel"}
    assert len({name for stream, name in best if stream.startswith("gray")}) == 1


# C62: interlaced.

INTERLACED = [
    ("mpeg2.mpg", ["-flags", "+ilme+ildct", "-c:v", "mpeg2video", "-b:v", "4M"]),
    ("mpeg4.avi", ["-flags", "+ilme+ildct", "-c:v", "mpeg4", "-q:v", "2"]),
    ("h264.mp4", ["-c:v", "libx264", "-x264-params", "tff=1"]),
    ("bottom.ts", ["-c:v", "libx264", "-x264-params", "bff=1"]),
    ("prores.mov", ["-flags", "+ildct", "-c:v", "prores_ks", "-pix_fmt", "yuv422p10le"]),
]


def interlaced(folder: Path, name: str, codec: list[str]) -> Path:
    """50 pictures of 2 s, each of two moments."""
    weave = "tinterlace=interleave_bottom,setfield=bff" if "bottom" in name else "tinterlace=interleave_top,setfield=tff"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:r=50:d=2", "-vf", weave, *codec, folder / name)
    return folder / name


def combs(luma: npt.NDArray[np.uint8]) -> float:
    """How far odd lines are from the mean of the even ones around them, squared."""
    y = luma.astype(float)
    return float(((y[1:-1:2] - (y[:-2:2] + y[2::2]) / 2) ** 2).mean())


def lumas(path: Path, *options: str) -> npt.NDArray[np.uint8]:
    """The luma planes as the ffmpeg command line decodes them."""
    need("ffmpeg")
    command = ["ffmpeg", "-v", "error", "-i", str(path), *options, "-f", "rawvideo", "-pix_fmt", "yuv420p", "-"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, 360, 320)[:, :240]


@pytest.mark.parametrize(("name", "codec"), INTERLACED, ids=[i[0] for i in INTERLACED])
def test_c62_interlaced_pictures_are_flagged_and_mended_if_asked_to(name: str, codec: list[str], place: Path) -> None:
    clip = interlaced(place, name, codec)
    wanted = lumas(clip)
    for flags in ([], ["--deinterlace"]):
        done, _ = annotated(clip, "--report", "r.json", *flags)
        report = json.loads((place / "r.json").read_text())["streams"][clip.stem]
        assert (len(done.lines), report["interlaced"]) == (50, 50)
        assert any("interlaced" in line and ("--deinterlace" in line) == (not flags) for line in done.err.splitlines())
        for line, luma in zip(done.lines, wanted, strict=True):
            assert abs(int(line["labels"][0]["name"]) - luma.mean()) <= 10
    found = [capture.picture for capture in everything(Interlace(FileSource(clip), deinterlace=True))]
    yadif = lumas(clip, "-vf", "yadif=deint=interlaced")
    assert np.mean([combs(picture.y) for picture in found]) <= np.mean([combs(luma) for luma in yadif])
    assert np.mean([combs(luma) for luma in wanted]) > 50, "the fixture has no combs"
    for picture, luma in zip(found, wanted, strict=True):
        assert np.abs(picture.y[::2].astype(int) - luma[::2]).mean() <= 1
        assert abs(picture.y.mean() - luma.mean()) <= 10


def test_c62_progressive_pictures_stay_as_they_are(place: Path) -> None:
    clip = numbered(place / "num.mp4", frames=20, size=(64, 64))
    done, _ = annotated(clip, "--report", "r.json", "--deinterlace")
    assert json.loads((place / "r.json").read_text())["streams"]["num"]["interlaced"] == 0
    assert "interlaced" not in done.err
    plain, same = (everything(source) for source in (FileSource(clip), Interlace(FileSource(clip), deinterlace=True)))
    assert all(np.array_equal(a.picture.y, b.picture.y) for a, b in zip(plain, same, strict=True))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (5, 4), (6, 4)])
def test_c62_any_number_of_lines_can_be_mended(shape: tuple[int, int]) -> None:
    from pipelines.sources.wrappers.interlace import deinterlaced

    half = (shape[0] + 1) // 2, (shape[1] + 1) // 2
    rows = np.arange(0, 10 * shape[0], 10, dtype=np.uint8)[:, None].repeat(shape[1], 1)
    rows[1::2] = 255
    made = deinterlaced(Picture(rows, np.zeros(half, np.uint8), np.zeros(half, np.uint8))).y
    wanted = [10 * k if k % 2 == 0 or k < shape[0] - 1 else 10 * (k - 1) for k in range(shape[0])]
    assert made[:, 0].tolist() == wanted


# C64: transparency, animations, modes that change.

HALF = (
    "color=black:s=160x120:r=10:d=2.5,format=rgba,"
    "geq=r='if(lt(X,80),32,192)':g='if(lt(X,80),192,48)':b='if(lt(X,80),64,32)':a='if(lt(X,80),0,255)'"
)
"""Green that nobody is to see on the left, (192, 48, 32) on the right."""
TRANSPARENT = [
    ("a.mov", ["-c:v", "png", "-pix_fmt", "rgba"]),
    ("a.webm", ["-c:v", "libvpx-vp9", "-pix_fmt", "yuva420p", "-crf", "4", "-b:v", "0", "-cpu-used", "8"]),
    ("vp8.webm", ["-c:v", "libvpx", "-auto-alt-ref", "0", "-pix_fmt", "yuva420p", "-crf", "4", "-b:v", "2M"]),
    ("b.mov", ["-c:v", "qtrle", "-pix_fmt", "argb"]),
    ("prores.mov", ["-c:v", "prores_ks", "-pix_fmt", "yuva444p10le", "-alpha_bits", "16"]),
    ("ffv1.mkv", ["-c:v", "ffv1", "-pix_fmt", "bgra"]),
    ("raw.nut", ["-c:v", "rawvideo", "-pix_fmt", "ya8"]),
    ("apng.png", ["-f", "apng", "-plays", "0"]),
    ("c.gif", ["-vf", "split[a][b];[a]palettegen=reserve_transparent=1[p];[b][p]paletteuse"]),
]


@pytest.mark.parametrize(("name", "codec"), TRANSPARENT, ids=[t[0] for t in TRANSPARENT])
def test_c64_transparent_is_white_and_every_frame_counts(name: str, codec: list[str], place: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", HALF, *codec, name)
    captures = everything(FileSource(Path(name)))
    grey = name == "raw.nut"
    for capture in captures:
        seen = at_model(capture.picture)
        assert seen.shape == (120, 160, 3)
        assert np.abs(seen[8:-8, 8:72].astype(int) - 255).max() <= 3
        if not grey:
            assert np.abs(seen[8:-8, 88:-8].astype(int) - RED).max() <= 6
    said = subprocess.run(
        ["ffprobe", "-v", "error", "-show_entries", "frame=pts_time", "-of", "csv=p=0", name],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    times = [float(line.split(",")[0]) for line in said.stdout.split()]
    assert len(captures) == len(times) >= 25
    assert [c.pts_s for c in captures] == pytest.approx([t - times[0] for t in times], abs=2e-3)
    done, _ = annotated(Path(name))
    assert [line["pts_s"] for line in done.lines] == pytest.approx([t - times[0] for t in times], abs=2e-3)


def test_c64_half_transparent_is_mixed_with_white(tmp_path: Path) -> None:
    path = tmp_path / "half.mov"
    ffmpeg("-f", "lavfi", "-i", HALF.replace(",0,255)'", ",64,128)'"), "-frames:v", 1, "-c:v", "png", "-pix_fmt", "rgba", path)
    (picture,) = pictures(path)
    near(at_model(picture)[:, 4:72], np.full((120, 68, 3), (199, 239, 207), np.uint8), 2, 4)
    near(at_model(picture)[:, 84:], np.full((120, 76, 3), (223, 151, 143), np.uint8), 2, 4)


def test_c64_an_animation_changes_its_mode_from_frame_to_frame(place: Path) -> None:
    """Pillow reads the first frame in one mode and the rest in another; the delays are those of the file."""
    shades = [Image.new("RGB", (64, 64), (40 * k, 48, 32)) for k in range(5)]
    shades[0].save("c.gif", save_all=True, append_images=shades[1:], duration=[100, 200, 100, 300, 100])
    with Image.open("c.gif") as image:
        modes = []
        for k in range(len(shades)):
            image.seek(k)
            modes.append(image.mode)
    assert modes == ["P", *4 * ["RGB"]]
    done, _ = annotated(Path("c.gif"))
    assert [line["pts_s"] for line in done.lines] == pytest.approx([0, 0.1, 0.3, 0.4, 0.7])
    for k, picture in enumerate(pictures(Path("c.gif"))):
        assert np.abs(at_model(picture).astype(int) - (40 * k, 48, 32)).max() <= 4


def test_c64_still_pictures_stay_one_stream_beside_animations(place: Path) -> None:
    Path("mix").mkdir()
    shades = [Image.new("RGB", (64, 64), (40 * k, 48, 32)) for k in range(5)]
    shades[0].save("mix/still.gif")
    shades[1].save("mix/still.png")
    shades[2].convert("RGBA").save("mix/still.webp")
    for name in ("moves.gif", "moves.png"):
        shades[0].save(f"mix/{name}", save_all=True, append_images=shades[1:], duration=100)
    Path("mix/broken.gif").write_bytes(Path("mix/moves.gif").read_bytes()[:20])
    done = watchline("run", "mix", *PROBE, "--jsonl", "-")
    assert done.code == 1
    assert "broken.gif" in done.err
    frames = sorted((line["stream"], line["frame"]) for line in done.lines)
    assert frames == [(s, k) for s, count in (("mix", 3), ("moves", 5), ("moves-2", 5)) for k in range(count)]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_c64_a_still_picture_is_laid_on_white(mode: str, place: Path) -> None:
    image = Image.new("RGBA", (64, 64), (10, 200, 30, 0))
    image.paste((90, 90, 90, 255), (32, 0, 64, 64))
    image.convert(mode).save("still.png")
    done = watchline("run", "still.png", *PROBE, "--jsonl", "-")
    assert done.code == 0, done.err
    assert int(done.lines[0]["labels"][0]["name"]) == pytest.approx((255 + 90) / 2, abs=1)
