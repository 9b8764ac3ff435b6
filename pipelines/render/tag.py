"""Tags: one line of text on a surface, beside the box of a region, or at the bottom of the picture for the whole frame."""

from __future__ import annotations

from pipelines.render.brush import Brush, surface
from pipelines.render.canvas import Rect
from pipelines.render.layout import TagLayout, tag_layout
from pipelines.render.place import Place
from pipelines.render.text import ascent

WEIGHT = 500
"""Weight of the font (CSS: 400 is regular, 700 bold)."""


def draw_text(brush: Brush, text: str, place: Place) -> Rect | None:
    """Draw `text` as one line on a surface, cut to the picture's width; for a region its name comes first. Returns the
    rectangle in luma samples of the upright picture, which the caller adds to those that are taken.

    None: the picture is too small, or the line is blank.
    """
    layout = tag_layout(place.width, place.height, brush.style.scale)
    line = text if place.whole else f"{place.name}: {text}"
    if layout is None or not line.strip():
        return None
    mask = brush.painter.mask(line, layout.size, WEIGHT, max_width=place.width - 2 * (layout.margin + layout.pad) - 1)
    width = (mask.shape[1] + 2 * layout.pad + 1) // 2 * 2  # even, for the planes of half size; the 1 above is its room
    rect = _position(place, layout, width)
    shade = surface(rect.w, rect.h, layout.radius, brush.palette.surface, brush.style.opacity)
    brush.canvas.shade(shade, rect.x, rect.y)
    top = max(0, rect.y + layout.baseline - ascent(layout.size))
    brush.canvas.stamp(mask, rect.x + layout.pad, top, brush.palette.text[0])
    return rect


def _position(place: Place, layout: TagLayout, width: int) -> Rect:
    """The bottom left for the whole frame. For a region the first free place: above its box, below it, inside it, then above,
    below or right of a rectangle that is taken; inside the picture in any case."""
    rects = [_inside(place, layout, width, x, y) for x, y in _corners(place, layout)]
    return next(filter(place.is_free, rects), rects[-1])


def _corners(place: Place, layout: TagLayout) -> list[tuple[int, int]]:
    """Upper left corners to try; the last one is taken if none is free."""
    if place.whole:
        return [(layout.margin, place.height - layout.margin - layout.h)]
    box, h = place.box, layout.h
    beside = [(box.x, box.y - h), (box.x, box.bottom)]
    inside = [(box.x, box.y), (box.x, box.bottom - h)]
    around = [corner for r in place.taken for corner in ((box.x, r.y - h), (box.x, r.bottom), (r.right, box.y))]
    return [corner for corner in (*beside, *inside, *around, inside[0]) if 0 <= corner[1] <= place.height - h] or inside


def _inside(place: Place, layout: TagLayout, width: int, x: int, y: int) -> Rect:
    """The tag at the nearest even corner that keeps it inside the picture."""
    left = min(max(x, 0), place.width - width) // 2 * 2
    top = min(max(y + y % 2, 0), (place.height - layout.h) // 2 * 2)
    return Rect(left, top, width, layout.h)
