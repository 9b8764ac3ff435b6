"""Marks of regions: angles at the corners of the model's part of the whole frame, outlines around the other regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipelines.frame import Box
from pipelines.render.brush import Brush
from pipelines.render.canvas import Rect
from pipelines.render.layout import MarkLayout


@dataclass(frozen=True, slots=True)
class _Corner:
    """One angle of a region: its two arms, and the same with their dark rims."""

    arms: tuple[Rect, Rect]
    rims: tuple[Rect, Rect]


@lru_cache(maxsize=64)
def rect_of(box: Box, width: int, height: int) -> Rect | None:
    """The luma samples of a box, cut to the picture; its size is negative if the edges are swapped. None: the box has a number
    that is not finite."""
    if not all(map(math.isfinite, box)):
        return None
    left, right = (round(min(max(f, 0.0), 1.0) * width) for f in (box[0], box[2]))
    top, bottom = (round(min(max(f, 0.0), 1.0) * height) for f in (box[1], box[3]))
    return Rect(left, top, right - left, bottom - top)


@lru_cache(maxsize=64)
def _corners(layout: MarkLayout, region: Rect) -> tuple[_Corner, ...]:
    """The angles just inside of `region`. Cached, because a stream's region changes only with its size."""
    thick, rim = layout.thick, layout.rim
    long_x, long_y = min(layout.length, region.w // 3), min(layout.length, region.h // 3)
    if min(long_x, long_y) <= thick:
        return ()
    corners = []
    for x, x_arm, x_leg in ((region.x, rim, rim), (region.right, -rim - long_x, -rim - thick)):
        for y, y_arm, y_leg in ((region.y, rim, rim), (region.bottom, -rim - thick, -rim - long_y)):
            arm, leg = Rect(x + x_arm, y + y_arm, long_x, thick), Rect(x + x_leg, y + y_leg, thick, long_y)
            corners.append(_Corner((arm, leg), (arm.grown(rim), leg.grown(rim))))
    return tuple(corners)


def draw_corners(brush: Brush, layout: MarkLayout, region: Rect, taken: Sequence[Rect]) -> None:
    """Draw light angles with a dark rim, which are visible on any ground. An angle that meets a taken rectangle is left
    out."""
    for corner in _corners(layout, region):
        if any(rim.meets(rect) for rim in corner.rims for rect in taken):
            continue
        for rim in corner.rims:
            brush.canvas.fill(rim, brush.palette.surface)
        for arm in corner.arms:
            brush.canvas.fill_luma(arm, brush.palette.muted[0])


@lru_cache(maxsize=64)
def _edges(layout: MarkLayout, region: Rect) -> tuple[Rect, ...]:
    """The four lines of the outline, inside of `region` by the width of the rim."""
    rim, thick = layout.rim, layout.thick
    x, y, w, h = region.x + rim, region.y + rim, region.w - 2 * rim, region.h - 2 * rim
    if min(w, h) <= 2 * thick:
        return ()
    across = (Rect(x, y, w, thick), Rect(x, y + h - thick, w, thick))
    return (*across, Rect(x, y, thick, h), Rect(x + w - thick, y, thick, h))


def draw_outline(brush: Brush, layout: MarkLayout, region: Rect) -> None:
    """Draw a light line with a dark rim around `region`, inside of it. Nothing for a region without room for the line."""
    edges = _edges(layout, region)
    for edge in edges:
        brush.canvas.fill(edge.grown(layout.rim), brush.palette.surface)
    for edge in edges:
        brush.canvas.fill_luma(edge, brush.palette.muted[0])
