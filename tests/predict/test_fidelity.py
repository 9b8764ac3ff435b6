"""The default model is the reference's, and its input is that of timm's transform."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import av
import numpy as np
import pytest
import torch
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from PIL import Image

from pipelines.choices import Fit
from pipelines.frame import WHOLE_FRAME, Picture, Region, upright
from pipelines.media.colour import scaler_code
from pipelines.media.pixels import Pixels
from pipelines.media.planes import yuv_frame
from pipelines.predict.engines.torch import HostDevice, TorchEngine
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models.catalog import find
from pipelines.predict.preprocess import (
    GEOMETRIES,
    KERNELS,
    Axis,
    FitGeometry,
    InputSpec,
    ProbePreprocess,
    RgbPreprocess,
    Scaler,
    crop_axis,
    geometry_of,
)
from pipelines.tasks.classification import softmax
from samples import FOLDER

pytestmark = pytest.mark.timeout(120)
EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP
STILLS = {p.name: p for folder in (FOLDER / "photos", Path(__file__).parents[1] / "data/photos") for p in folder.glob("*.jpg")}
REFERENCE = json.loads((FOLDER / "reference.json").read_text())


@pytest.fixture(scope="module")
def network() -> LoadedModel:
    return find("lite0").load()


@pytest.fixture(scope="module")
def transform(network: LoadedModel) -> Any:
    import timm

    return timm.data.create_transform(**timm.data.resolve_data_config({}, model=network.module), is_training=False)


def _engine_p(network: LoadedModel, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    engine = TorchEngine(network, device=HostDevice(), precision="fp32", threads=2)
    (slot,) = engine.open(1, 1)
    slot.input[0] = pixels
    engine.start(slot, 1)
    return softmax(engine.wait(slot, 1)[0])[0]


def test_the_reference_has_seven_stills_and_they_are_here() -> None:
    assert len(REFERENCE) == 7
    assert set(STILLS) == set(REFERENCE)


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_timms_transform_and_the_torch_engine_give_the_references_probabilities(
    name: str, network: LoadedModel, transform: Any
) -> None:
    normal = transform(Image.open(STILLS[name]).convert("RGB"))
    pixels = ((normal * 0.5 + 0.5) * 255).round().clamp(0, 255).to(torch.uint8).numpy()
    p = _engine_p(network, pixels)
    for label in REFERENCE[name]:
        assert p[label["id"]] == pytest.approx(label["p"], abs=0.001)
        assert network.names is not None
        assert network.names[label["id"]] == label["name"]


def _pictures(clip: Path, every: int) -> Iterator[Picture]:
    pixels = Pixels()
    with av.open(str(clip)) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index % every == 0:
                yield pixels.picture(frame, None)


def _reference_rgb(picture: Picture) -> Image.Image:
    space = scaler_code(picture.matrix)
    rgb = VideoReformatter().reformat(
        yuv_frame(picture),
        format="rgb24",
        interpolation=EXACT,
        threads=1,
        src_colorspace=space,
        dst_colorspace=space,
        src_color_range=ColorRange.JPEG if picture.full_range else ColorRange.MPEG,
        dst_color_range=ColorRange.JPEG,
    )
    return Image.fromarray(rgb.to_ndarray())


def test_on_a_decoded_clip_the_models_input_is_as_good_as_the_references(network: LoadedModel, transform: Any) -> None:
    preprocess = RgbPreprocess(network.input, "crop")
    cosines, differences = [], []
    for picture in _pictures(FOLDER / "bigbuckbunny.mp4", 12):
        ours = np.zeros(preprocess.shape, np.uint8)
        preprocess(picture, WHOLE_FRAME[0], ours)
        both = torch.stack([transform(_reference_rgb(picture)), (torch.from_numpy(ours).float() / 255 - 0.5) / 0.5])
        with torch.inference_mode():
            theirs, mine = network.module(both)
        cosines.append(float(torch.cosine_similarity(theirs, mine, 0)))
        differences.append(float((theirs.softmax(0) - mine.softmax(0)).abs().max()))
    assert len(cosines) == 11
    assert np.mean(cosines) >= 0.998
    assert max(differences) <= 0.03


# FitGeometry.

SPEC = InputSpec(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("length", "resized"), [(1280, 455), (720, 256), (1920, 455), (1080, 256), (640, 602), (64, 256), (1, 256)]
)
def test_the_window_of_an_axis_lies_on_the_grid_of_the_full_resize(length: int, resized: int) -> None:
    axis = crop_axis(length, resized, 224)
    scale = length / resized
    left = round((resized - 224) / 2)
    assert (axis.stop - axis.start) % 2 == 0 or axis.stop == length
    assert 0 <= axis.start < axis.stop <= length
    assert axis.keep == 224
    assert axis.skip + axis.keep <= axis.size
    assert axis.start / scale == pytest.approx(left - axis.skip, abs=0.05)
    assert axis.stop / scale == pytest.approx(left - axis.skip + axis.size, abs=0.05)


def _ramp(width: int, height: int, **how: Any) -> Picture:
    """Brighter to the right and below, with colour that changes too."""
    y = np.add.outer(np.linspace(20, 100, height), np.linspace(0, 120, width)).astype(np.uint8)
    cw, ch = (width + 1) // 2, (height + 1) // 2
    u = np.add.outer(np.linspace(90, 120, ch), np.linspace(0, 40, cw)).astype(np.uint8)
    return Picture(y, u, np.ascontiguousarray(255 - u), **how)


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_picture_that_says_how_it_is_turned_looks_like_the_turned_picture(fit: Any, rotation: int, mirrored: bool) -> None:
    declared = _ramp(320, 180, rotation=rotation, mirrored=mirrored)
    turned = Picture(*(np.ascontiguousarray(p) for p in declared.upright()))
    a, b = (np.zeros((3, 224, 224), np.uint8) for _ in range(2))
    preprocess = RgbPreprocess(SPEC, fit)
    preprocess(declared, WHOLE_FRAME[0], a)
    preprocess(turned, WHOLE_FRAME[0], b)
    # The chroma's siting turns with the picture: a quarter of a sample, seen where colours change.
    assert np.abs(a.astype(int) - b).mean() < 1.0
    assert a[0, 112, 60] != a[0, 112, -60] or a[0, 60, 112] != a[0, -60, 112]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_part_that_is_scaled_is_the_same_however_the_planes_lie(rotation: int, mirrored: bool) -> None:
    """720p is cut a pixel nearer to the right (116 of 455 - 224 pixels on the left): a turn that is forgotten shows."""
    size = (720, 1280) if rotation in (0, 180) else (1280, 720)  # rows and columns as they are stored
    chroma = np.full((size[0] // 2, size[1] // 2), 128, np.uint8)
    how: Any = {"rotation": rotation, "mirrored": mirrored}
    stored = Picture(np.zeros(size, np.uint8), chroma, chroma, **how)
    turned = Picture(*(np.ascontiguousarray(p) for p in stored.upright()))
    seen = []
    for one in (stored, turned):
        g = geometry_of(one, SPEC, "crop")
        window, kept = np.zeros((one.height, one.width), np.uint8), np.zeros((g.y.size, g.x.size), np.uint8)
        window[g.y.start : g.y.stop, g.x.start : g.x.stop] = 1
        kept[g.y.skip : g.y.skip + g.y.keep, g.x.skip : g.x.skip + g.x.keep] = 1
        seen.append([np.ascontiguousarray(upright(plane, one)) for plane in (window, kept)])
    assert not np.array_equal(seen[1][1], seen[1][1][:, ::-1])
    for ours, theirs in zip(*seen, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 5), (321, 241), (16, 2000), (3000, 4), (64, 64), (1079, 1), (1, 3000)])
@pytest.mark.parametrize("rotation", [0, 90])
def test_any_size_is_taken(fit: Any, size: tuple[int, int], rotation: Any) -> None:
    """Grey of one luma is grey everywhere, but for the border of `pad`."""
    w, h = size
    chroma = np.full(((h + 1) // 2, (w + 1) // 2), 128, np.uint8)
    grey = Picture(np.full((h, w), 100, np.uint8), chroma, chroma, full_range=True, rotation=rotation)
    out = np.zeros((3, 224, 224), np.uint8)
    RgbPreprocess(SPEC, fit)(grey, WHOLE_FRAME[0], out)
    seen = out[:, 111, 111] if fit == "pad" else out
    assert np.abs(seen.astype(int) - 100).max() <= 1


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (720, 1280), (854, 480)])
def test_a_window_shows_what_the_whole_scaled_picture_shows_there(width: int, height: int) -> None:
    """In colour, too: where the window begins between samples that share their chroma, half a sample off would be seen."""
    ramp = _ramp(width, height)
    waves = (110 + 60 * np.sin(np.arange(ramp.u.size).reshape(ramp.u.shape) * 2 * np.pi / 16.2)).astype(np.uint8)
    picture = Picture(ramp.y, waves, np.ascontiguousarray(waves[::-1]))
    g = geometry_of(picture, SPEC, "crop")
    assert {g.x.start % 2, g.y.start % 2} == {0, 1}, "one axis at least begins on an odd sample"
    resized = [max(int(n * 256 / min(width, height)), 256) for n in (width, height)]
    whole = [Axis(0, n, r, round((r - 224) / 2), 224) for n, r in zip((width, height), resized, strict=True)]
    kernel = KERNELS["bicubic"]
    ours = Scaler(picture, g, kernel)(picture)
    for mine, theirs in zip(ours, Scaler(picture, FitGeometry(whole[0], whole[1], (0, 0), None), kernel)(picture), strict=True):
        assert np.abs(mine.astype(int) - theirs).mean() < 0.7


@pytest.mark.parametrize("length", [1079, 4000])
def test_one_sample_that_becomes_hundreds_of_pixels_is_cut_before_it_is_scaled(length: int) -> None:
    """A strip one sample high: all of it at model height would be millions of pixels a frame."""
    axis = crop_axis(length, 256 * length, 224)
    assert axis.size <= 224 + 2 * 2 * 256
    assert axis.start * 256 <= round((256 * length - 224) / 2)
    assert axis.stop * 256 >= round((256 * length - 224) / 2) + 224
    assert axis.start * 256 == round((256 * length - 224) / 2) - axis.skip


def test_an_axis_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot keep 225 of 224"):
        crop_axis(100, 224, 225)


def test_scalers_are_kept_for_the_geometries_seen_lately_only() -> None:
    preprocess = RgbPreprocess(InputSpec(8, 8, 9), "squash")
    out = np.zeros(preprocess.shape, np.uint8)
    for height in range(2, 2 * GEOMETRIES):
        preprocess(_ramp(16, height), WHOLE_FRAME[0], out)
        preprocess(_ramp(16, 1), WHOLE_FRAME[0], out)
    assert len(preprocess._scalers()) == GEOMETRIES
    assert sum(key[0] == (1, 16) for key in preprocess._scalers()) == 1, "what is used again and again is kept"


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize(
    ("matrix", "kr", "kb"), [("bt601", 0.299, 0.114), ("bt709", 0.2126, 0.0722), ("bt2020", 0.2627, 0.0593)]
)
def test_a_colour_is_the_same_in_every_range_and_matrix(full_range: bool, matrix: Any, kr: float, kb: float) -> None:
    """ITU-R BT.601/709/2020: Y = kr R + kg G + kb B, Cb = (B - Y) / 2(1 - kb), Cr = (R - Y) / 2(1 - kr)."""
    r, g, b = 192 / 255, 48 / 255, 32 / 255
    luma = kr * r + (1 - kr - kb) * g + kb * b
    cb, cr = (b - luma) / (2 * (1 - kb)), (r - luma) / (2 * (1 - kr))
    scale_y, offset, scale_c = (255, 0, 255) if full_range else (219, 16, 224)
    planes = [round(offset + scale_y * luma), round(128 + scale_c * cb), round(128 + scale_c * cr)]
    y, u, v = (np.full(s, p, np.uint8) for s, p in zip(((90, 120), (45, 60), (45, 60)), planes, strict=True))
    out = np.zeros((3, 224, 224), np.uint8)
    RgbPreprocess(SPEC, "crop")(Picture(y, u, v, matrix=matrix, full_range=full_range), WHOLE_FRAME[0], out)
    for channel, wanted in zip(out, (192, 48, 32), strict=True):
        assert np.abs(channel.astype(int) - wanted).max() <= 3


def test_the_box_is_the_part_that_the_model_sees() -> None:
    left, top, right, bottom = geometry_of(_ramp(1280, 720), SPEC, "crop").box or (0, 0, 0, 0)
    assert (right - left) * 1280 == pytest.approx((bottom - top) * 720, rel=0.01)
    assert (top, bottom) == pytest.approx((16 / 256, 240 / 256))
    assert left == pytest.approx(1 - right, abs=0.01)
    assert geometry_of(_ramp(1280, 720), SPEC, "squash").box is None


def test_samples_that_are_not_square_are_seen_as_they_are_shown() -> None:
    wide = _ramp(360, 576, sample_aspect=Fraction(2))
    left, _, right, _ = geometry_of(wide, SPEC, "crop").box or (0, 0, 0, 0)
    assert (right - left) * 720 == pytest.approx(224 / 256 * 576, rel=0.01)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_samples_that_are_not_square_are_turned_with_the_picture(rotation: Any) -> None:
    """180 wide samples, each twice as wide as high, are as good as 360 square ones."""
    square = _ramp(360, 240, rotation=rotation)
    wide = Picture(
        square.y[:, ::2].copy(), square.u[:, ::2].copy(), square.v[:, ::2].copy(), rotation=rotation, sample_aspect=Fraction(2)
    )
    a, b = (np.zeros((3, 224, 224), np.uint8) for _ in range(2))
    preprocess = RgbPreprocess(SPEC, "crop")
    preprocess(square, WHOLE_FRAME[0], a)
    preprocess(wide, WHOLE_FRAME[0], b)
    assert np.abs(a.astype(int) - b).mean() < 2
    assert geometry_of(wide, SPEC, "crop").box == geometry_of(square, SPEC, "crop").box


def test_pad_keeps_the_aspect_and_fills_with_the_models_mean() -> None:
    out = np.zeros((3, 224, 224), np.uint8)
    RgbPreprocess(SPEC, "pad")(_ramp(320, 160), WHOLE_FRAME[0], out)
    assert (out[:, :56] == 128).all()
    assert (out[:, -56:] == 128).all()
    assert not (out[:, 60:160] == 128).all()


# Regions.

DOOR = Region("door", (0.1, 0.25, 0.6, 0.75))


def _cut(picture: Picture, box: tuple[float, float, float, float]) -> Picture:
    """The part of a picture as one of its own, upright."""
    w, h = picture.upright_size
    x0, y0, x1, y1 = (round(v * n) for v, n in zip(box, (w, h, w, h), strict=True))
    y, u, v = picture.upright()
    luma = np.ascontiguousarray(y[y0:y1, x0:x1])
    chroma = (np.ascontiguousarray(p[y0 // 2 : (y1 + 1) // 2, x0 // 2 : (x1 + 1) // 2]) for p in (u, v))
    return Picture(luma, *chroma, sample_aspect=picture.upright_aspect)


@pytest.mark.parametrize("fit", [None, *get_args(Fit)])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("aspect", [Fraction(1), Fraction(3, 2)])
def test_a_region_looks_like_a_picture_of_that_part(fit: Any, rotation: int, mirrored: bool, aspect: Fraction) -> None:
    """A box is resized by its own fit, "squash" unless it names another; the fit of the model does not count."""
    picture = _ramp(320, 240, rotation=rotation, mirrored=mirrored, sample_aspect=aspect)
    a, b = (np.zeros((3, 224, 224), np.uint8) for _ in range(2))
    RgbPreprocess(SPEC, "crop")(picture, replace(DOOR, fit=fit), a)
    RgbPreprocess(SPEC, fit or "squash")(_cut(picture, DOOR.box or (0, 0, 1, 1)), WHOLE_FRAME[0], b)
    assert np.abs(a.astype(int) - b).mean() < 1.0
    assert a[0, 112, 60] != a[0, 112, -60]


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (321, 241), (64, 64), (1079, 3)])
@pytest.mark.parametrize("box", [(0.0, 0.0, 0.01, 0.01), (0.33, 0.1, 0.34, 0.9), (0.5, 0.5, 1.0, 1.0), (0.99, 0.99, 1.0, 1.0)])
@pytest.mark.parametrize("fit", get_args(Fit))
@pytest.mark.parametrize("rotation", [0, 90])
def test_any_region_of_any_size_is_taken(size: tuple[int, int], box: Any, fit: Any, rotation: Any) -> None:
    w, h = size
    chroma = np.full(((h + 1) // 2, (w + 1) // 2), 128, np.uint8)
    grey = Picture(np.full((h, w), 100, np.uint8), chroma, chroma, full_range=True, rotation=rotation)
    out = np.zeros((3, 224, 224), np.uint8)
    RgbPreprocess(SPEC, "crop")(grey, Region("part", box, fit), out)
    seen = out[:, 111, 111] if fit == "pad" else out
    assert np.abs(seen.astype(int) - 100).max() <= 1


def test_the_box_of_a_region_is_the_part_of_it_that_the_model_sees() -> None:
    preprocess, picture = RgbPreprocess(SPEC, "crop"), _ramp(1280, 720)
    assert preprocess.box(picture, DOOR) == pytest.approx(DOOR.box)
    left, top, right, bottom = preprocess.box(picture, replace(DOOR, fit="crop")) or (0, 0, 0, 0)
    assert (left + right) / 2 == pytest.approx(0.35, abs=0.01)
    assert (top + bottom) / 2 == pytest.approx(0.5, abs=0.01)
    assert (right - left) * 1280 == pytest.approx((bottom - top) * 720, rel=0.01)
    assert ProbePreprocess().box(picture, DOOR) == DOOR.box


@pytest.mark.parametrize(("rotation", "mirrored", "luma"), [(0, False, 10), (180, False, 40), (0, True, 20), (90, False, 30)])
def test_the_probe_sees_the_upright_region(rotation: Any, mirrored: bool, luma: int) -> None:
    quarters = np.array([[10, 20], [30, 40]], np.uint8).repeat(4, 0).repeat(4, 1)
    picture = Picture(quarters, quarters[::2, ::2], quarters[::2, ::2], rotation=rotation, mirrored=mirrored)
    out = np.zeros(1, np.uint8)
    ProbePreprocess()(picture, Region("corner", (0.0, 0.0, 0.5, 0.5)), out)
    assert out[0] == luma


def test_each_thread_has_scalers_of_its_own() -> None:
    preprocess, picture = RgbPreprocess(SPEC, "crop"), _ramp(320, 240)
    wanted = np.zeros((3, 224, 224), np.uint8)
    preprocess(picture, WHOLE_FRAME[0], wanted)

    def other(_: int) -> bool:
        out = np.zeros_like(wanted)
        for _ in range(20):
            preprocess(picture, WHOLE_FRAME[0], out)
        return bool((out == wanted).all())

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(other, range(8)))
