"""Picture -> model input, exactly as the model was trained: one pass from the decoder's planes to RGB at model size.

The reference is timm's eval transform (short side resized with an antialiasing kernel, centre crop) on RGB made with
exact chroma. Scaling the whole picture and then cropping would touch five times the needed pixels, so only a window of the
source is scaled. Its edges lie, within a few hundredths of a pixel, on the grid of the full resize. If it begins between two
samples that share their chroma, the scaler gets that position (windows that begin on even samples alone had to be a fifth
larger to meet the grid). The kernel is nearly Pillow's, the cubic with a = -0.5; FFmpeg's scaler takes this parameter only
through its filter (PyAV's reformatter offers just -0.6). Measured on every fourth frame of
bigbuckbunny.mp4, default model in fp32: mean cosine of the logits, largest difference of any probability:

    a          -0.43    -0.47    -0.50    -0.60    (whole picture scaled, -0.50: 0.9994  0.032)
    cosine     0.9992   0.9993   0.9994   0.9992
    largest    0.033    0.027    0.031    0.038    (a window 0.07 pixels off the grid, -0.50: 0.060)

-0.47 is used: the only one below 0.03, and as near as any other on bikes.mp4 (0.9986).

A region's box is a part of the upright picture; it is resized like a picture of its own.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import av
import av.filter
import cv2
import numpy as np
import numpy.typing as npt

from pipelines.choices import Fit
from pipelines.frame import WHOLE_FRAME, Box, Picture, Plane, Region, upright
from pipelines.media.colour import COEFFICIENTS
from pipelines.media.planes import plane_array, yuv_frame

InputArray = npt.NDArray[np.uint8]
"""One picture or more as the model sees them: (3, H, W) or (n, 3, H, W), RGB."""
FLAGS = "accurate_rnd+full_chroma_int+full_chroma_inp"
KERNELS = {"bicubic": "flags=bicubic+" + FLAGS + ":param0=0:param1=0.47", "bilinear": "flags=bilinear+" + FLAGS}
MARGIN = range(2, 65)
"""Output pixels that are scaled beyond the crop and thrown away: the range in which an edge on the grid is searched. Two cover
the kernel's reach over the window's edge."""
OFF_GRID = 800
"""Price of an edge off the grid, in further scaled pixels for a whole pixel: 8 for a hundredth."""
ALL: Box = (0.0, 0.0, 1.0, 1.0)
GEOMETRIES = 64
"""Scalers that each thread keeps: one for each geometry seen lately."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The model's training input: the short side of a picture resized to `resize` pixels, `width` x `height` pixels cut from
    its middle; RGB / 255, minus mean, over std."""

    height: int = 224
    width: int = 224
    resize: int = 256
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


class Preprocess(Protocol):
    """Makes a region of a picture the model's input. Any thread; several at once."""

    shape: tuple[int, ...]
    """Shape of one input, uint8."""

    def __call__(self, picture: Picture, region: Region, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` (`shape`, uint8), one row of a staging slot."""

    def box(self, picture: Picture, region: Region) -> Box | None:
        """The part of the upright picture that the model sees; None: all of it."""


class ProbePreprocess:
    """The rounded mean of the region's luma: the code value, no range expansion. Input of the probe engine."""

    shape: tuple[int, ...] = (1,)

    def __call__(self, picture: Picture, region: Region, out: npt.NDArray[np.uint8]) -> None:
        luma = picture.y
        if region.box is not None:
            (left, right), (top, bottom) = part_of(picture.upright_size, region.box)
            luma = np.ascontiguousarray(upright(luma, picture)[top:bottom, left:right])  # OpenCV reads no turned rows
        out[0] = round(cv2.mean(luma)[0])

    def box(self, picture: Picture, region: Region) -> Box | None:
        return region.box


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a partial resize.

    Samples start:stop of the source are scaled to `size` pixels; pixels skip:skip+keep of these are used.
    """

    start: int
    stop: int
    size: int
    skip: int
    keep: int

    def moved(self, samples: int) -> Axis:
        """The same part of an axis that begins `samples` samples earlier."""
        return Axis(self.start + samples, self.stop + samples, self.size, self.skip, self.keep)

    def reversed(self, length: int) -> Axis:
        """The same part if the axis of `length` samples is read backwards."""
        return Axis(length - self.stop, length - self.start, self.size, self.size - self.skip - self.keep, self.keep)


def crop_axis(length: int, resized: int, keep: int) -> Axis:
    """The part of an axis of `length` samples, resized to `resized` pixels, that holds the middle `keep` of them.

    :raises ValueError: if `keep` is more than `resized`.
    """
    if keep > resized:
        raise ValueError(f"cannot keep {keep} of {resized} pixels")
    scale = length / resized
    left = round((resized - keep) / 2)  # torchvision's CenterCrop rounds like this
    starts = [(left - m, round((left - m) * scale)) for m in MARGIN if left - m > 0] + [(0, 0)]
    stops = [(left + keep + m, round((left + keep + m) * scale)) for m in MARGIN if left + keep + m < resized]
    # If one sample becomes dozens of pixels, none of these may be near the grid: the next samples outside are.
    before = math.floor((left - MARGIN.start) * scale)
    after = math.ceil((left + keep + MARGIN.start) * scale)
    starts += [(round(before / scale), before)] if before >= 0 else []
    stops += [(round((after + k) / scale), after + k) for k in (0, 1) if after + k <= length]

    def cost(edge: tuple[int, int]) -> float:
        return OFF_GRID * abs(edge[1] / scale - edge[0]) + abs(edge[0] - (left + keep / 2))

    first, start = min(starts, key=cost)
    # Only planes of an even size are taken without a copy.
    even = [e for e in (*stops, (resized, length)) if e[1] > start and (e[1] - start) % 2 == 0]
    last, stop = min(even, key=cost, default=(resized, length))
    return Axis(start, stop, last - first, left - first, keep)


@dataclass(frozen=True, slots=True)
class FitGeometry:
    """How one kind of picture becomes the model's input. x, y: axes in stored orientation. at: (row, column) of the result in
    the model's square, upright. box: the part of the upright picture that the model sees, as fractions; None: all of it."""

    x: Axis
    y: Axis
    at: tuple[int, int]
    box: Box | None


class RgbPreprocess:
    """RGB uint8 (3, H, W) of the spec's size, normalised later inside the engine. fit: for regions that name none."""

    def __init__(self, spec: InputSpec, fit: Fit) -> None:
        self.shape: tuple[int, ...] = (3, spec.height, spec.width)
        self._spec = spec
        self._fit = fit
        self._fill = [round(255 * m) for m in spec.mean]
        self._local = threading.local()

    def __call__(self, picture: Picture, region: Region, out: npt.NDArray[np.uint8]) -> None:
        geometry, scaler = self._for(picture, region)
        planes = scaler(picture)
        row, column = geometry.at
        h, w = upright(planes[0], picture).shape
        if (h, w) != out.shape[1:]:
            for channel, value in zip(out, self._fill, strict=True):
                channel.fill(value)
        for channel, plane in zip(out, planes, strict=True):
            channel[row : row + h, column : column + w] = upright(plane, picture)

    def box(self, picture: Picture, region: Region) -> Box | None:
        return geometry_of(picture, self._spec, self._fit, region).box

    def _for(self, picture: Picture, region: Region) -> tuple[FitGeometry, Scaler]:
        known = self._scalers()
        kind = (picture.y.shape, picture.rotation, picture.mirrored, picture.sample_aspect, picture.matrix, picture.full_range)
        key = (*kind, region.box, region.fit)
        if key not in known:
            if len(known) == GEOMETRIES:
                known.popitem(last=False)
            geometry = geometry_of(picture, self._spec, self._fit, region)
            known[key] = geometry, Scaler(picture, geometry, KERNELS[self._spec.interpolation])
        known.move_to_end(key)
        return known[key]

    def _scalers(self) -> OrderedDict[tuple[Any, ...], tuple[FitGeometry, Scaler]]:
        """The scalers of the calling thread, the one used last at the end: a filter graph belongs to one thread."""
        if not hasattr(self._local, "scalers"):
            self._local.scalers = OrderedDict()
        scalers: OrderedDict[tuple[Any, ...], tuple[FitGeometry, Scaler]] = self._local.scalers
        return scalers


class Scaler:
    """FFmpeg's scaler for one kind of picture, as a filter graph of one filter. Thread: the one that made it."""

    def __init__(self, picture: Picture, geometry: FitGeometry, kernel: str) -> None:
        self._geometry = g = geometry
        self._graph = av.filter.Graph()
        self._graph.threads = 1
        matrix = COEFFICIENTS[picture.matrix].filter_name
        drawn_from = self._graph.add(
            "buffer",
            f"video_size={g.x.stop - g.x.start}x{g.y.stop - g.y.start}:pix_fmt=yuv420p:time_base=1/1"
            f":colorspace={matrix}:range={'pc' if picture.full_range else 'tv'}",
        )
        siting = f"in_h_chr_pos={_siting(g.x.start)}:in_v_chr_pos={_siting(g.y.start)}"
        scale = self._graph.add("scale", f"{g.x.size}:{g.y.size}:out_range=pc:{siting}:{kernel}")
        to_rgb = self._graph.add("format", "pix_fmts=gbrp")
        self._out = self._graph.add("buffersink")
        for a, b in ((drawn_from, scale), (scale, to_rgb), (to_rgb, self._out)):
            a.link_to(b)
        self._graph.configure()
        self._in = drawn_from

    def __call__(self, picture: Picture) -> tuple[Plane, Plane, Plane]:
        """R, G and B of the needed part, in stored orientation: views of the scaled frame."""
        g = self._geometry
        window = yuv_frame(picture, g.x.start, g.x.stop, g.y.start, g.y.stop)
        window.pts = 0
        self._in.push(window)
        scaled = self._out.pull()
        assert isinstance(scaled, av.VideoFrame)
        g_, b_, r_ = (plane_array(p) for p in scaled.planes)
        part = np.s_[g.y.skip : g.y.skip + g.y.keep, g.x.skip : g.x.skip + g.x.keep]
        return r_[part], g_[part], b_[part]


def _siting(start: int) -> int:
    """The position of a window's first chroma sample, in 256ths of a luma sample: in the middle of the two that share it."""
    return -128 if start % 2 else 128


def part_of(size: tuple[int, int], box: Box) -> tuple[tuple[int, int], tuple[int, int]]:
    """The samples of an upright picture of (width, height) in a box, at least one: (first column, end), (first row, end)."""
    (w, h), (x0, y0, x1, y1) = size, box
    return _samples(x0, x1, w), _samples(y0, y1, h)


def _samples(first: float, last: float, length: int) -> tuple[int, int]:
    start = min(round(first * length), length - 1)
    return start, max(round(last * length), start + 1)


def geometry_of(picture: Picture, spec: InputSpec, fit: Fit, region: Region = WHOLE_FRAME[0]) -> FitGeometry:
    """How a region of `picture` becomes the model's square. fit: the model's own. Any thread."""
    size, aspect = picture.upright_size, picture.upright_aspect
    fit = region.fit or (fit if region.box is None else "squash")
    return _geometry(size, aspect, picture.rotation, picture.mirrored, spec, fit, region.box)


@functools.lru_cache(maxsize=GEOMETRIES)
def _geometry(
    size: tuple[int, int], aspect: Fraction, rotation: int, mirrored: bool, spec: InputSpec, fit: Fit, box: Box | None
) -> FitGeometry:
    (left, right), (top, bottom) = part_of(size, box or ALL)
    w, h = right - left, bottom - top
    x, y, at, seen = _fitted(w, h, max(1, round(w * aspect)), spec, fit)
    x, y = x.moved(left), y.moved(top)
    if box is not None:
        x0, y0, x1, y1 = seen or ALL
        seen = (left + x0 * w) / size[0], (top + y0 * h) / size[1], (left + x1 * w) / size[0], (top + y1 * h) / size[1]
    return FitGeometry(*_stored(size, rotation, mirrored, x, y), at, seen)


def _fitted(w: int, h: int, shown_w: int, spec: InputSpec, fit: Fit) -> tuple[Axis, Axis, tuple[int, int], Box | None]:
    """Both axes of a part of w x h samples that is shown_w x h pixels, its place in the square, and the share of it that is
    seen (None: all)."""
    if fit == "crop":
        resized_w, resized_h = _short_side(shown_w, h, spec)
        x, y = crop_axis(w, resized_w, spec.width), crop_axis(h, resized_h, spec.height)
        left, top = round((resized_w - spec.width) / 2), round((resized_h - spec.height) / 2)
        box = (left / resized_w, top / resized_h, (left + spec.width) / resized_w, (top + spec.height) / resized_h)
        return x, y, (0, 0), box
    inner_w, inner_h = spec.width, spec.height
    if fit == "pad":
        scale = min(Fraction(spec.width, shown_w), Fraction(spec.height, h))
        inner_w, inner_h = max(1, round(shown_w * scale)), max(1, round(h * scale))
    at = (spec.height - inner_h) // 2, (spec.width - inner_w) // 2
    return Axis(0, w, inner_w, 0, inner_w), Axis(0, h, inner_h, 0, inner_h), at, None


def _short_side(w: int, h: int, spec: InputSpec) -> tuple[int, int]:
    """Size after the short side became `spec.resize`, rounded as torchvision's Resize does."""
    short = max(spec.resize, spec.width if w <= h else spec.height)
    if w <= h:
        return short, max(int(short * h / w), spec.height)
    return max(int(short * w / h), spec.width), short


def _stored(size: tuple[int, int], rotation: int, mirrored: bool, x: Axis, y: Axis) -> tuple[Axis, Axis]:
    """Undo the turn: the axes of the upright picture as axes of the stored planes."""
    w, h = size
    if mirrored:
        x = x.reversed(w)
    if rotation in (180, 270):
        y = y.reversed(h)
    if rotation in (90, 180):
        x = x.reversed(w)
    return (y, x) if rotation in (90, 270) else (x, y)


def resize_of(size: int, crop_pct: float) -> int:
    """timm's short side for an input of `size`."""
    return math.floor(size / crop_pct)
