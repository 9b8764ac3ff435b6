"""The header: the stream's name, and the time and number or age of the frame."""

from __future__ import annotations

from functools import lru_cache

from pipelines.render.brush import Brush, surface
from pipelines.render.canvas import Rect
from pipelines.render.layout import header_layout
from pipelines.render.text import ascent

_header_layout = lru_cache(maxsize=64)(header_layout)


def draw_header(brush: Brush, size: tuple[int, int], stream: str, facts: list[str]) -> Rect | None:
    """Draw the name and the first facts, as many as fit. size: (width, height) of the picture. Returns the header's
    rectangle; None: no room."""
    layout = _header_layout(*size, brush.style.scale)
    if layout is None:
        return None
    room = layout.max_w - 2 * layout.pad
    widths = [brush.painter.number_width(fact, layout.size, 400) for fact in facts]
    while widths and sum(widths) + layout.gap * len(widths) + 3 * layout.size > room:
        widths.pop()
    facts_w = sum(widths) + layout.gap * len(widths)
    name = brush.painter.mask(stream, layout.size, 500, max_width=room - facts_w)
    w = min(layout.max_w, (name.shape[1] + facts_w + 2 * layout.pad + 1) // 2 * 2)
    shade = surface(w, layout.h, layout.radius, brush.palette.surface, brush.style.opacity)
    brush.canvas.shade(shade, layout.x, layout.y)
    x = layout.x + layout.pad
    brush.canvas.stamp(name, x, max(0, layout.baseline - ascent(layout.size)), brush.palette.text[0])
    x += name.shape[1]
    for fact, width in zip(facts, widths, strict=False):
        brush.canvas.number(fact, x + layout.gap, layout.baseline, brush.palette.muted[0], layout.size, 400)
        x += layout.gap + width
    return Rect(layout.x, layout.y, w, layout.h)
