"""The tools of every drawing function: canvas, text painter, style, and the style's colours for one picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pipelines.frame import Picture
from pipelines.render.canvas import YUV, Canvas, Shade, make_shade, rounded, to_yuv
from pipelines.render.style import OverlayStyle
from pipelines.render.text import TextPainter

_CHROMA_OPACITY = 0.92
"""Higher than the luma's: text on a surface is white, and colour that shines through would fringe it."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The style's colours as code values of one matrix and range."""

    surface: YUV
    text: YUV
    muted: YUV
    accent: YUV
    quiet: YUV


@dataclass(frozen=True, slots=True)
class Brush:
    """The tools for one frame. Thread: the overlay's."""

    canvas: Canvas
    painter: TextPainter
    style: OverlayStyle
    palette: Palette


def palette_of(style: OverlayStyle, picture: Picture) -> Palette:
    """The style's colours in the matrix and range of `picture`."""
    colours = (style.surface, style.text, style.muted, style.accent, style.quiet)
    return Palette(*(to_yuv(c, picture.matrix, picture.full_range) for c in colours))


def make_surface(width: int, height: int, radius: int, colour: YUV, opacity: float) -> Shade:
    """A translucent rectangle with round corners. Both sides are even."""
    chroma = _CHROMA_OPACITY if opacity > 0.5 else opacity
    return make_shade(rounded(width, height, radius), colour, opacity, chroma)


surface = lru_cache(maxsize=32)(make_surface)
"""`make_surface`, cached for surfaces that change from frame to frame: the header, the tags of regions."""
