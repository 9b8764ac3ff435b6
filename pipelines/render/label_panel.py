"""The drawer of classifications: a panel of labels with bars for the whole frame, a tag with the best label for a region."""

from __future__ import annotations

import math
from functools import lru_cache

from pipelines.render.brush import Brush, make_surface
from pipelines.render.canvas import YUV, Rect, Shade
from pipelines.render.layout import Layout, Row, panel_layout
from pipelines.render.place import Place
from pipelines.render.tag import draw_text
from pipelines.render.text import ascent
from pipelines.tasks.classification import Classification, Label

_TRACK = 24
"""Luma of a bar's track above the panel's."""

_panel_layout = lru_cache(maxsize=64)(panel_layout)


def draw_classification(brush: Brush, answer: Classification, place: Place) -> Rect | None:
    """Draw the labels of one region. Returns the panel's or the tag's rectangle; None: no room, or no label."""
    labels = answer.labels[: brush.style.topk]
    if not place.whole:
        return draw_text(brush, f"{_name(labels[0])} {percent(labels[0].p)}", place) if labels else None
    panel = _panel_layout(place.width, place.height, len(labels), brush.style.scale)
    if panel is None:
        return None
    _draw_panel(brush, panel, labels)
    return panel.panel


def percent(p: float) -> str:
    """A probability for people: "<1%" instead of "0%" if it is not 0, and "-" if it is not a finite number."""
    if not math.isfinite(p):
        return "-"
    return "<1%" if 0 < p < 0.01 else f"{100 * min(max(p, 0.0), 1.0):.0f}%"


def _name(label: Label) -> str:
    return label.name or f"#{label.id}"


@lru_cache(maxsize=8)
def _panel_surface(layout: Layout, colour: YUV, opacity: float) -> Shade:
    """The panel with the tracks of its bars, which never change."""
    shade = make_surface(layout.panel.w, layout.panel.h, layout.radius, colour, opacity)
    add = shade.add_y.copy()
    for row in layout.rows:
        x, y = row.bar.x - layout.panel.x, row.bar.y - layout.panel.y
        add[y : y + row.bar.h, x : x + row.bar.w] += _TRACK
    return Shade(shade.keep_y, add, shade.keep_c, shade.add_u, shade.add_v)


def _draw_panel(brush: Brush, layout: Layout, labels: tuple[Label, ...]) -> None:
    surface = _panel_surface(layout, brush.palette.surface, brush.style.opacity)
    brush.canvas.shade(surface, layout.panel.x, layout.panel.y)
    for index, (row, label) in enumerate(zip(layout.rows, labels, strict=False)):
        _draw_row(brush, row, label, first=index == 0)


def _draw_row(brush: Brush, row: Row, label: Label, *, first: bool) -> None:
    palette, bar = brush.palette, row.bar
    ink = palette.text[0] if first else palette.muted[0]
    number = percent(label.p)
    number_w = brush.painter.number_width(number, row.size, row.weight)
    widest = brush.painter.number_width("100%", row.size, row.weight)
    name = brush.painter.mask(_name(label), row.size, row.weight, max_width=bar.w - widest - row.size // 2)
    brush.canvas.stamp(name, bar.x, row.baseline - ascent(row.size), ink)
    brush.canvas.number(number, bar.right - number_w, row.baseline, ink, row.size, row.weight)
    length = bar.w * min(max(label.p, 0.0), 1.0) if math.isfinite(label.p) else 0
    brush.canvas.fill(Rect(bar.x, bar.y, round(length), bar.h), palette.accent if first else palette.quiet)
