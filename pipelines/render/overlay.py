"""What the model said, drawn on a copy of the frame's own planes: a header, a panel of labels, the model's region."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from pipelines.frame import WHOLE, Frame, Picture, Prediction
from pipelines.render.canvas import RGB, YUV, Canvas, Rect, Shade, copy_upright, make_shade, rounded, to_yuv
from pipelines.render.layout import (
    HeaderLayout,
    Layout,
    MarkLayout,
    Row,
    header_layout,
    mark_layout,
    panel_layout,
)
from pipelines.render.plane_pool import PlanePool
from pipelines.render.text import TextPainter, ascent
from pipelines.tasks.classification import Classification, Label

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class OverlayStyle:
    """How the overlay looks. Colours are R'G'B', 0-255."""

    topk: int = 5
    """Labels at most; a small picture shows fewer."""
    scale: float = 1.0
    """Size of everything; 1 suits a short side of 720 at an arm's length."""
    opacity: float = 0.8
    """Of the surfaces, 0-1: at 0.8 white text on them has a contrast of 10:1 over pure white."""
    surface: RGB = (13, 18, 26)
    text: RGB = (250, 252, 255)
    muted: RGB = (196, 204, 214)
    accent: RGB = (52, 211, 153)
    quiet: RGB = (148, 160, 176)
    header: bool = True
    panel: bool = True
    marks: bool = True

    def __post_init__(self) -> None:
        """:raises ValueError: if a value is out of range."""
        if not 0 <= self.opacity <= 1:
            raise ValueError(f"opacity must be from 0 to 1, got {self.opacity}")
        if not 0.25 <= self.scale <= 4:
            raise ValueError(f"scale must be from 0.25 to 4, got {self.scale}")
        if self.topk < 1:
            raise ValueError(f"topk must be at least 1, got {self.topk}")


class Overlay:
    """Draws the frames of one stream. Thread: one, that which draws: the stream's lane, or the screen's where nobody else
    looks at pictures. The constructor may run in another.

    At 1280x720 a frame takes 0.6 to 0.9 ms of one core, the copy included; at 3840x2160 4 ms, half of it the copy.
    """

    def __init__(
        self,
        style: OverlayStyle | None = None,
        *,
        wall_clock: bool = False,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        """wall_clock: a live stream: show when the frame arrived, local time, and its age.

        clock: the clock of `Trace`; utc: seconds since 1970.
        """
        self._style = style or OverlayStyle()
        self._wall_clock = wall_clock
        self._clock = clock
        self._utc = utc
        self._pool = PlanePool()
        self._painter = TextPainter()

    def prepare(self) -> None:
        """Do now what would delay the first frame: OpenCV's font takes 30 ms for its first use in a thread.

        Thread: that which draws, before its first frame. Fonts are the process's affair: see `text.find_fonts`.
        """
        self._painter.number_width("0", 16, 400)

    def render(self, frame: Frame, prediction: Prediction, box: Box | None = None) -> Picture:
        """A new picture, upright and of even size, with what is known of the frame drawn on it.

        box: the region that the model saw, (x0, y0, x1, y1) as fractions of the upright picture. An odd picture gets
        one more column or row, which repeats the edge. The planes belong to a pool: they live as long as the picture
        or any view of them does.
        """
        picture = frame.picture
        width, height = picture.upright_size
        planes = self._pool.lease(width + width % 2, height + height % 2)
        copy_upright(picture, planes)
        brush = _Brush(Canvas(planes), self._painter, self._style, _palette(self._style, picture))
        self._draw(brush, frame, prediction, box)
        return Picture(*planes, matrix=picture.matrix, full_range=picture.full_range, sample_aspect=picture.upright_aspect)

    def _draw(self, brush: _Brush, frame: Frame, prediction: Prediction, box: Box | None) -> None:
        style, (width, height) = self._style, frame.picture.upright_size
        taken: list[Rect] = []
        answer = prediction.answers.get(WHOLE)
        labels = answer.labels[: style.topk] if isinstance(answer, Classification) else ()
        panel = _panel_layout(width, height, len(labels), style.scale)
        if style.panel and panel:
            _draw_panel(brush, panel, labels)
            taken.append(panel.panel)
        header = _header_layout(width, height, style.scale)
        if style.header and header:
            taken.append(_draw_header(brush, header, frame.stream, self._facts(frame)))
        marks = mark_layout(width, height, style.scale)
        if style.marks and marks and box and all(map(math.isfinite, box)):
            _draw_marks(brush, _corners(marks, box, width, height), taken)

    def _facts(self, frame: Frame) -> list[str]:
        """The numbers of the header: when, and how old (live) or which (file)."""
        if self._wall_clock:
            age_s = self._clock() - frame.trace.arrived_s
            arrived = time.strftime("%H:%M:%S", time.localtime(self._utc() - age_s))
            return [arrived, f"{age_s * 1000:.0f} ms"]
        media = [] if frame.pts_s is None or not math.isfinite(frame.pts_s) else [media_time(frame.pts_s)]
        return [*media, f"#{frame.index}"]


def media_time(seconds: float) -> str:
    """H:MM:SS.mmm"""
    ms = round(abs(seconds) * 1000)
    sign = "-" if seconds < 0 and ms else ""
    return f"{sign}{ms // 3_600_000}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"


def percent(p: float) -> str:
    """A probability for people: "<1%" rather than "0%", and a dash for what is no number."""
    if not math.isfinite(p):
        return "-"
    return "<1%" if 0 < p < 0.01 else f"{100 * min(max(p, 0.0), 1.0):.0f}%"


@dataclass(frozen=True, slots=True)
class _Palette:
    """The style's colours as code values of one matrix and range."""

    surface: YUV
    text: YUV
    muted: YUV
    accent: YUV
    quiet: YUV


def _palette(style: OverlayStyle, picture: Picture) -> _Palette:
    colours = (style.surface, style.text, style.muted, style.accent, style.quiet)
    return _Palette(*(to_yuv(c, picture.matrix, picture.full_range) for c in colours))


@dataclass(frozen=True, slots=True)
class _Brush:
    """What every drawing function needs."""

    canvas: Canvas
    painter: TextPainter
    style: OverlayStyle
    palette: _Palette


_panel_layout = lru_cache(maxsize=64)(panel_layout)
_header_layout = lru_cache(maxsize=64)(header_layout)

_TRACK = 24
"""Luma of a bar's track above the panel."""
_CHROMA_OPACITY = 0.92
"""Higher than the luma's: text on the panel is white, and colour that shone through would fringe it."""


def _make_surface(width: int, height: int, radius: int, colour: YUV, opacity: float) -> Shade:
    chroma = _CHROMA_OPACITY if opacity > 0.5 else opacity
    return make_shade(rounded(width, height, radius), colour, opacity, chroma)


_surface = lru_cache(maxsize=32)(_make_surface)


@lru_cache(maxsize=8)
def _panel_surface(layout: Layout, colour: YUV, opacity: float) -> Shade:
    """The panel with the tracks of its bars, which never change."""
    shade = _make_surface(layout.panel.w, layout.panel.h, layout.radius, colour, opacity)
    add = shade.add_y.copy()
    for row in layout.rows:
        x, y = row.bar.x - layout.panel.x, row.bar.y - layout.panel.y
        add[y : y + row.bar.h, x : x + row.bar.w] += _TRACK
    return Shade(shade.keep_y, add, shade.keep_c, shade.add_u, shade.add_v)


def _draw_panel(brush: _Brush, layout: Layout, labels: tuple[Label, ...]) -> None:
    surface = _panel_surface(layout, brush.palette.surface, brush.style.opacity)
    brush.canvas.shade(surface, layout.panel.x, layout.panel.y)
    for index, (row, label) in enumerate(zip(layout.rows, labels, strict=False)):
        _draw_row(brush, row, label, first=index == 0)


def _draw_row(brush: _Brush, row: Row, label: Label, *, first: bool) -> None:
    palette, bar = brush.palette, row.bar
    ink = palette.text[0] if first else palette.muted[0]
    number = percent(label.p)
    number_w = brush.painter.number_width(number, row.size, row.weight)
    widest = brush.painter.number_width("100%", row.size, row.weight)
    name = brush.painter.mask(label.name or f"#{label.id}", row.size, row.weight, max_width=bar.w - widest - row.size // 2)
    brush.canvas.stamp(name, bar.x, row.baseline - ascent(row.size), ink)
    brush.canvas.number(number, bar.right - number_w, row.baseline, ink, row.size, row.weight)
    length = bar.w * min(max(label.p, 0.0), 1.0) if math.isfinite(label.p) else 0
    brush.canvas.fill(Rect(bar.x, bar.y, round(length), bar.h), palette.accent if first else palette.quiet)


def _draw_header(brush: _Brush, layout: HeaderLayout, stream: str, facts: list[str]) -> Rect:
    """Name and as many facts as fit; returns the box that was drawn."""
    size, palette = layout.size, brush.palette
    room = layout.max_w - 2 * layout.pad
    widths = [brush.painter.number_width(fact, size, 400) for fact in facts]
    while widths and sum(widths) + layout.gap * len(widths) + 3 * size > room:
        widths.pop()
    facts_w = sum(widths) + layout.gap * len(widths)
    name = brush.painter.mask(stream, size, 500, max_width=room - facts_w)
    w = min(layout.max_w, (name.shape[1] + facts_w + 2 * layout.pad + 1) // 2 * 2)
    surface = _surface(w, layout.h, layout.radius, palette.surface, brush.style.opacity)
    brush.canvas.shade(surface, layout.x, layout.y)
    x = layout.x + layout.pad
    brush.canvas.stamp(name, x, max(0, layout.baseline - ascent(size)), palette.text[0])
    x += name.shape[1]
    for fact, width in zip(facts, widths, strict=False):
        brush.canvas.number(fact, x + layout.gap, layout.baseline, palette.muted[0], size, 400)
        x += layout.gap + width
    return Rect(layout.x, layout.y, w, layout.h)


@dataclass(frozen=True, slots=True)
class _Corner:
    """One angle of the region's frame: its two arms, and the same with their dark rims."""

    arms: tuple[Rect, Rect]
    rims: tuple[Rect, Rect]


@lru_cache(maxsize=64)
def _corners(layout: MarkLayout, box: Box, width: int, height: int) -> tuple[_Corner, ...]:
    """Just inside of the box. Cached: a stream's box changes only with its size."""
    left, right = (round(min(max(f, 0.0), 1.0) * width) for f in (box[0], box[2]))
    top, bottom = (round(min(max(f, 0.0), 1.0) * height) for f in (box[1], box[3]))
    thick, rim = layout.thick, layout.rim
    long_x, long_y = min(layout.length, (right - left) // 3), min(layout.length, (bottom - top) // 3)
    if min(long_x, long_y) <= thick:
        return ()
    corners = []
    for x, x_arm, x_leg in ((left, rim, rim), (right, -rim - long_x, -rim - thick)):
        for y, y_arm, y_leg in ((top, rim, rim), (bottom, -rim - thick, -rim - long_y)):
            arm, leg = Rect(x + x_arm, y + y_arm, long_x, thick), Rect(x + x_leg, y + y_leg, thick, long_y)
            corners.append(_Corner((arm, leg), (arm.grown(rim), leg.grown(rim))))
    return tuple(corners)


def _draw_marks(brush: _Brush, corners: tuple[_Corner, ...], taken: list[Rect]) -> None:
    """Light angles with a dark rim: visible on anything. One that would run into the panel or header is left out."""
    for corner in corners:
        if any(rim.meets(rect) for rim in corner.rims for rect in taken):
            continue
        for rim in corner.rims:
            brush.canvas.fill(rim, brush.palette.surface)
        for arm in corner.arms:
            brush.canvas.fill_luma(arm, brush.palette.muted[0])
