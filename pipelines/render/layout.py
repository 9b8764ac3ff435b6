"""Positions and sizes of the overlay's parts, computed from the picture's size, in luma samples.

Surfaces have even corners and sides, because one chroma sample covers two columns and two rows of luma.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.render.canvas import Rect

SMALLEST = (120, 90)
"""(width, height) below which nothing is drawn: a readable line would hide the picture."""

_PANEL_SHARE = 0.44
"""The panel's share of the picture's height, at the bottom, with its margin: the panel never covers the middle."""
_HEADER_SHARE = 0.14


@dataclass(frozen=True, slots=True)
class Row:
    """The place of one label in the panel."""

    size: int
    """Size of the text, in rows."""
    weight: int
    """Weight of the font, 100-900; 400 is regular."""
    baseline: int
    """The row of the picture that name and percentage stand on."""
    bar: Rect
    """The bar at its full length, which is a probability of 1."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The panel of labels for one size of picture."""

    panel: Rect
    pad: int
    radius: int
    rows: tuple[Row, ...]
    """The first is the large one."""


@dataclass(frozen=True, slots=True)
class HeaderLayout:
    """The header: its corner, height and text. Its width grows with the text, up to `max_w`."""

    x: int
    y: int
    h: int
    pad: int
    gap: int
    size: int
    baseline: int
    radius: int
    max_w: int


@dataclass(frozen=True, slots=True)
class MarkLayout:
    """The marks of regions: length and thickness of an arm or line, width of its dark rim."""

    length: int
    thick: int
    rim: int


@dataclass(frozen=True, slots=True)
class TagLayout:
    """A line of text on a surface: its height, and the text's size and place in it. Its width grows with the text."""

    h: int
    pad: int
    margin: int
    size: int
    baseline: int
    """Row of the tag, counted from its top."""
    radius: int


def even(value: float) -> int:
    """The nearest even number."""
    return 2 * round(value / 2)


def unit(width: int, height: int, scale: float) -> float:
    """The factor on all sizes: 1 for a short side of 720 pixels."""
    return min(width, height) / 720 * scale


def panel_layout(width: int, height: int, labels: int, scale: float = 1.0) -> Layout | None:
    """One large row, and a small row for each further label until the room ends. None: no room, or no label."""
    if width < SMALLEST[0] or height < SMALLEST[1] or labels < 1:
        return None
    margin = even(max(4, 24 * unit(width, height, scale)))
    room = int(_PANEL_SHARE * height) - margin
    for small in range(labels - 1, -1, -1):
        layout = _panel(width, height, small, scale, margin)
        if layout.panel.h <= room:
            return layout
    return None


def _panel(width: int, height: int, small: int, scale: float, margin: int) -> Layout:
    s = unit(width, height, scale)
    title, body = max(13, round(29 * s)), max(10, round(17 * s))
    pad = even(max(6, 18 * s))
    panel_w = min(even(max(400 * s, 13 * title)), (width - 2 * margin) // 2 * 2)
    pitch = body + even(max(6, 17 * s))
    inner = title + even(max(4, 12 * s)) + small * pitch + (even(max(3, 5 * s)) if small else 0)
    panel_h = even(inner + 2 * pad)
    x, y = margin, even(height - margin - panel_h)
    rows = [_row(x + pad, y + pad, panel_w - 2 * pad, title, s, gap=6, thick=6, weight=500)]
    top = rows[0].bar.bottom + even(max(5, 13 * s))
    for index in range(small):
        rows.append(_row(x + pad, top + index * pitch, panel_w - 2 * pad, body, s, gap=2, thick=3.4, weight=400))
    return Layout(Rect(x, y, panel_w, panel_h), pad, even(max(4, 10 * s)), tuple(rows))


def _row(x: int, top: int, width: int, size: int, s: float, *, gap: float, thick: float, weight: int) -> Row:
    """OpenCV's font reaches 0.75 size above the baseline and 0.25 below."""
    bar = Rect(x, even(top + size + gap * s), width, even(max(2, thick * s)))
    return Row(size, weight if size > 12 else 500, top + round(0.75 * size), bar)


def header_layout(width: int, height: int, scale: float = 1.0) -> HeaderLayout | None:
    """The header of a picture of this size. None: it has no room above the panel."""
    s = unit(width, height, scale)
    size = max(10, round(16 * s))
    margin, pad_y = even(max(4, 24 * s)), max(3, round(8 * s))
    h = even(size + 2 * pad_y)
    if width < SMALLEST[0] or height < SMALLEST[1] or margin + h > _HEADER_SHARE * height:
        return None
    baseline = margin + (h + round(0.75 * size)) // 2
    max_w = (width - 2 * margin) // 2 * 2
    return HeaderLayout(margin, margin, h, even(1.5 * pad_y), round(0.9 * size), size, baseline, even(h / 4), max_w)


def mark_layout(width: int, height: int, scale: float = 1.0) -> MarkLayout | None:
    """The marks of a picture of this size. None: the picture is too small."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return None
    s = unit(width, height, scale)
    return MarkLayout(even(max(6, 26 * s)), max(1, round(2 * s)), max(1, round(s)))


def tag_layout(width: int, height: int, scale: float = 1.0) -> TagLayout | None:
    """The tag of a region in a picture of this size. None: the picture is too small."""
    s = unit(width, height, scale)
    size = max(10, round(17 * s))
    h = even(size + 2 * max(3, round(6 * s)))
    margin = even(max(4, 24 * s))
    if width < SMALLEST[0] or height < SMALLEST[1] or 2 * margin + h > _PANEL_SHARE * height:
        return None
    return TagLayout(h, even(max(4, 10 * s)), margin, size, (h + round(0.75 * size)) // 2, even(h / 4))
