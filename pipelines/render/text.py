"""TextPainter: lines of text as cached alpha masks, in any script for which a font is found.

OpenCV's own font draws all scripts that it supports. Pillow draws Arabic, Hebrew, combining marks and the other scripts with
an installed font; it shapes the text if raqm and FriBiDi are there, and only reorders it otherwise.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import ceil
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features

from pipelines.frame import Plane
from pipelines.render.builtin import builtin_width, draw_builtin
from pipelines.render.fonts import INSTALLED, FontIndex
from pipelines.render.runs import MISSING, Run, clean, clusters, is_rtl, split_runs

ELLIPSIS = "…"

_PILLOW_SCALE = 1.03
"""Factor on the size for Pillow: OpenCV's capitals are 0.75 of the size high, DejaVu's 0.73."""
_AS_ZERO = str.maketrans("123456789", "0" * 9)
_LOADED = 32
"""Most fonts that are kept open, each at one size."""


def ascent(size: int) -> int:
    """Rows of a mask above the baseline. Capitals are 0.75 size high, with two stacked accents 1.1 size."""
    return ceil(1.1 * size)


def line_height(size: int) -> int:
    """Rows of a mask of this size of text."""
    return ascent(size) + ceil(0.36 * size)


def find_fonts(
    texts: Iterable[str],
    limit_s: float,
    keep_on: Callable[[], bool] = lambda: True,
    *,
    fonts: FontIndex = INSTALLED,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Find the fonts for all texts that will be drawn. Called before the first frame, because a search reads fonts for up to
    2 s and would delay a live frame; afterwards no font is read.

    keep_on: asked before each text; False ends the search. Returns False if `limit_s` has passed or `keep_on` ended it.
    """
    end_s = clock() + limit_s
    fonts.read(True)
    try:
        for text in texts:
            if clock() > end_s or not keep_on():
                return False
            split_runs(clean(text), fonts)
    finally:
        fonts.read(False)
    return True


class TextPainter:
    """Draws lines of text and caches their masks. Thread: one, because fonts are not shared between threads."""

    def __init__(self, *, max_masks: int = 512, max_bytes: int = 4 << 20, fonts: FontIndex = INSTALLED) -> None:
        """max_masks, max_bytes: both bound the cache, which evicts the mask that was unused for the longest time."""
        self._max_masks = max_masks
        self._max_bytes = max_bytes
        self._fonts = fonts
        self._masks: OrderedDict[tuple[str, int, int, int], Plane] = OrderedDict()
        self._bytes = 0
        self._widths: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        self._loaded: dict[tuple[Path, int], ImageFont.FreeTypeFont] = {}

    def mask(self, text: str, size: int, weight: int = 400, *, max_width: int = 1 << 14) -> Plane:
        """The alpha mask of a line: (line_height(size), w) uint8 with w <= max_width; a longer text ends in "…".

        The baseline lies below row ascent(size) - 1. The array is cached and read-only.
        """
        key = (text, size, weight, max_width)
        mask = self._masks.get(key)
        if mask is None:
            mask = self._draw(self._fit(clean(text), size, weight, max_width), size, weight, max_width)
            self._keep(key, mask)
        else:
            self._masks.move_to_end(key)
        return mask

    def number_width(self, text: str, size: int, weight: int) -> int:
        """Width in pixels of digits and ASCII signs. All digits are as wide as "0", so a running clock needs one entry."""
        key = (text.translate(_AS_ZERO), size, weight)
        if key not in self._widths:
            if len(self._widths) >= self._max_masks:
                self._widths.popitem(last=False)
            self._widths[key] = builtin_width(*key)
        return self._widths[key]

    def _keep(self, key: tuple[str, int, int, int], mask: Plane) -> None:
        mask.flags.writeable = False
        self._masks[key] = mask
        self._bytes += mask.nbytes
        while len(self._masks) > 1 and (len(self._masks) > self._max_masks or self._bytes > self._max_bytes):
            self._bytes -= self._masks.popitem(last=False)[1].nbytes

    def _fit(self, text: str, size: int, weight: int, max_width: int) -> list[Run]:
        """The runs of the longest beginning of `text` that fits, found by bisection."""
        runs = self._runs(text, size)
        if self._width(runs, size, weight) <= max_width:
            return runs
        parts = clusters(text)
        fits, too_long = 0, len(parts)
        while too_long - fits > 1:
            half = (fits + too_long) // 2
            if self._width(self._shortened(parts[:half], size), size, weight) <= max_width:
                fits = half
            else:
                too_long = half
        return self._shortened(parts[:fits], size)

    def _shortened(self, parts: list[str], size: int) -> list[Run]:
        return self._runs("".join(parts).rstrip(" ,;:-(") + ELLIPSIS, size)

    def _runs(self, text: str, size: int) -> list[Run]:
        """The runs of `text`. A font that fontTools reads and FreeType refuses counts as a font without characters."""
        runs = split_runs(text, self._fonts)
        return [run if run.font is None or self._load(run.font, size) else Run(MISSING) for run in runs]

    def _width(self, runs: list[Run], size: int, weight: int) -> int:
        return sum(self._advance(run, size, weight) for run in runs)

    def _advance(self, run: Run, size: int, weight: int) -> int:
        font = self._load(run.font, size)
        if font is None:
            return builtin_width(run.text, size, weight)
        return ceil(font.getlength(_ordered(run.text)))

    def _draw(self, runs: list[Run], size: int, weight: int, max_width: int) -> Plane:
        advances = [self._advance(run, size, weight) for run in runs]
        mask = np.zeros((line_height(size), max(1, min(sum(advances), max_width))), np.uint8)
        x = 0
        for run, advance in zip(runs, advances, strict=True):
            font = self._load(run.font, size)
            if font is not None:
                _draw_pillow(mask, run.text, x, ascent(size), font)
            elif x < mask.shape[1]:
                draw_builtin(mask, run.text, x, ascent(size), 255, size, weight)
            x += advance
        return mask

    def _load(self, path: Path | None, size: int) -> ImageFont.FreeTypeFont | None:
        """The font at this size; None for OpenCV's own font, and for a font that cannot be loaded."""
        if path is None:
            return None
        key = (path, size)
        if key not in self._loaded:
            if len(self._loaded) >= _LOADED:
                self._loaded.clear()
            try:
                self._loaded[key] = ImageFont.truetype(str(path), round(size * _PILLOW_SCALE))
            except OSError:
                return None
        return self._loaded[key]


@lru_cache(maxsize=1)
def _can_shape() -> bool:
    return bool(features.check("raqm"))


def _ordered(text: str) -> str:
    """The text in the order that Pillow draws. raqm reorders a line itself; without raqm a line from right to left is reversed
    here."""
    return text if _can_shape() or not is_rtl(text) else "".join(reversed(clusters(text)))


def _draw_pillow(mask: Plane, text: str, x: int, baseline: int, font: ImageFont.FreeTypeFont) -> None:
    image = Image.new("L", (mask.shape[1], mask.shape[0]))
    ImageDraw.Draw(image).text((x, baseline), _ordered(text), fill=255, font=font, anchor="ls")
    np.maximum(mask, np.asarray(image), out=mask)
