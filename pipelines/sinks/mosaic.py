"""The pictures of several streams side by side on one BGR canvas, the content of the window.

Each picture is scaled and converted in one pass, from its planes to its tile's size. Only tiles that changed are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter

from pipelines.frame import Picture
from pipelines.media.planes import color_range, upright_frame
from pipelines.render.text import TextPainter

Bgr = npt.NDArray[np.uint8]
Size = tuple[int, int]

BACKGROUND = (26, 18, 13)
GROUND = (10, 7, 5)
"""Between the tiles."""
TEXT = (255, 252, 250)
MUTED = (176, 160, 148)
SCRIM = 0.45
"""How much of the picture is left behind a text."""
GAP = 4
"""Pixels between tiles."""
USABLE = 320
"""A picture narrower than this is enlarged at first, by a whole factor."""
TINY = 4
"""Pixels; a tile with less is left empty."""
USUAL = Fraction(16, 9)
WAITING = "waiting"
SCALING = Interpolation.BILINEAR


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a tile lies on the canvas, in pixels."""

    x: int
    y: int
    width: int
    height: int


def columns_for(count: int, size: Size, aspect: Fraction) -> int:
    """The number of columns with which `count` tiles of this aspect are largest on a canvas of (width, height)."""

    def scale(columns: int) -> float:
        rows = -(-count // columns)
        return min(size[0] / columns / float(aspect), size[1] / rows)

    return max(range(1, count + 1), key=lambda columns: (scale(columns), -columns))


def cells(count: int, size: Size, aspect: Fraction) -> list[Cell]:
    """A cell for each of `count` tiles, row by row; no cell is smaller than a pixel."""
    columns = columns_for(count, size, aspect)
    rows = -(-count // columns)
    across, down = _cut(size[0], columns), _cut(size[1], rows)
    places = ((across[k % columns], down[k // columns]) for k in range(count))
    return [Cell(x, y, width, height) for (x, width), (y, height) in places]


def _cut(length: int, parts: int) -> list[tuple[int, int]]:
    """(start, length) of equal parts with gaps between them."""
    gap = GAP if length > parts * 8 * GAP else 0
    edges = [round(k * (length + gap) / parts) for k in range(parts + 1)]
    return [(a, max(b - gap - a, 1)) for a, b in pairwise(edges)]


def first_size(count: int, shown: Size, screen: Size) -> Size:
    """(width, height) of a window for `count` pictures that are `shown` large, within nine tenths of the screen."""
    room = screen[0] * 9 // 10, screen[1] * 9 // 10
    factor = max(1, -(-USABLE // shown[0]))
    columns = columns_for(count, room, Fraction(*shown))
    rows = -(-count // columns)
    width, height = columns * shown[0] * factor + (columns - 1) * GAP, rows * shown[1] * factor + (rows - 1) * GAP
    shrink = min(Fraction(1), Fraction(room[0], width), Fraction(room[1], height))
    return max(int(width * shrink), 1), max(int(height * shrink), 1)


def shown_size(picture: Picture) -> Size:
    """(width, height) in square pixels, with the samples' aspect honoured by enlarging."""
    (width, height), aspect = picture.upright_size, picture.upright_aspect
    return (round(width * aspect), height) if aspect >= 1 else (width, max(round(height / aspect), 1))


class Mosaic:
    """Tiles in the order in which their streams were named. Thread: one."""

    def __init__(self) -> None:
        self._tiles: dict[str, _Tile] = {}
        self._painter = TextPainter()
        self.canvas: Bgr = np.zeros((1, 1, 3), np.uint8)
        """(height, width, 3) BGR."""
        self._aspect = USUAL
        self._laid_out = False

    def __len__(self) -> int:
        return len(self._tiles)

    @property
    def size(self) -> Size:
        """(width, height) of the canvas."""
        return self.canvas.shape[1], self.canvas.shape[0]

    def resize(self, size: Size) -> None:
        """Make the canvas (width, height) large."""
        if size != self.size:
            self.canvas = np.zeros((size[1], size[0], 3), np.uint8)
            self._laid_out = False

    def add(self, stream: str) -> None:
        """Give the stream a tile, if it has none."""
        if stream not in self._tiles:
            self._tiles[stream] = _Tile(stream)
            self._laid_out = False

    def remove(self, stream: str) -> None:
        """Take the stream's tile away; an unknown name is fine."""
        if self._tiles.pop(stream, None) is not None:
            self._laid_out = False

    def show(self, stream: str, picture: Picture) -> None:
        """Show the picture from the next `draw` on. Tiles are laid out for the aspect of the first picture of all."""
        self.add(stream)
        if all(tile.picture is None for tile in self._tiles.values()):
            self._aspect = Fraction(*shown_size(picture))
            self._laid_out = False
        self._tiles[stream].show(picture)

    def note(self, stream: str, text: str) -> None:
        """Write `text` over the stream's tile; an empty one takes it away."""
        self.add(stream)
        self._tiles[stream].write(text)

    def draw(self) -> bool:
        """Draw the tiles that changed. False: none did."""
        if not self._laid_out:
            self.canvas[:] = GROUND
            places = cells(len(self), self.size, self._aspect) if self._tiles else []
            for tile, cell in zip(self._tiles.values(), places, strict=True):
                tile.move(cell)
        drawn = [tile.draw(self.canvas, self._painter) for tile in self._tiles.values()]
        changed = any(drawn) or not self._laid_out
        self._laid_out = True
        return changed


class _Tile:
    """One stream's part of the canvas."""

    def __init__(self, stream: str) -> None:
        self.picture: Picture | None = None
        self._stream = stream
        self._note = ""
        self._cell = Cell(0, 0, 1, 1)
        self._scaler = VideoReformatter()
        self._changed = True

    def show(self, picture: Picture) -> None:
        self.picture, self._changed = picture, True

    def write(self, text: str) -> None:
        self._changed = self._changed or text != self._note
        self._note = text

    def move(self, cell: Cell) -> None:
        self._cell, self._changed = cell, True

    def draw(self, canvas: Bgr, painter: TextPainter) -> bool:
        """Draw it if it changed, and say so."""
        if not self._changed:
            return False
        self._changed = False
        cell = self._cell
        view = canvas[cell.y : cell.y + cell.height, cell.x : cell.x + cell.width]
        if min(view.shape[:2]) < TINY:
            return True
        if self.picture is None:
            view[:] = BACKGROUND
            _write(view, painter, [(self._stream, TEXT), (self._note or WAITING, MUTED)])
            return True
        self._paint(view, self.picture)
        if self._note:
            np.multiply(view, SCRIM, out=view, casting="unsafe")
            _write(view, painter, [(self._stream, TEXT), (self._note, TEXT)])
        return True

    def _paint(self, view: Bgr, picture: Picture) -> None:
        """The picture, as large as it fits, in the middle; background around it."""
        height, width = view.shape[:2]
        shown = shown_size(picture)
        scale = min(Fraction(width, shown[0]), Fraction(height, shown[1]))
        w, h = (min(max(round(side * scale), 1), room) for side, room in zip(shown, (width, height), strict=True))
        x, y = (width - w) // 2, (height - h) // 2
        view[:y] = view[y + h :] = BACKGROUND
        view[:, :x] = view[:, x + w :] = BACKGROUND
        scaled = self._scaler.reformat(
            upright_frame(_even(picture)),
            w,
            h,
            "bgr24",
            src_color_range=color_range(picture.full_range),
            dst_color_range=int(ColorRange.JPEG),
            interpolation=SCALING,
            threads=1,
        ).planes[0]
        rows = np.frombuffer(memoryview(scaled), np.uint8).reshape(h, scaled.line_size)
        view[y : y + h, x : x + w] = rows[:, : 3 * w].reshape(h, w, 3)


def _even(picture: Picture) -> Picture:
    """The picture without an odd last row and column, which have no whole chroma sample."""
    if picture.width % 2 == picture.height % 2 == 0:
        return picture
    h, w = picture.height // 2, picture.width // 2
    planes = picture.y[: 2 * h, : 2 * w], picture.u[:h, :w], picture.v[:h, :w]
    return Picture(*planes, picture.matrix, picture.full_range, picture.rotation, picture.mirrored, picture.sample_aspect)


def _write(view: Bgr, painter: TextPainter, lines: list[tuple[str, tuple[int, int, int]]]) -> None:
    """Lines of text in the middle, as large as suits the tile; as many as there is room for."""
    height, width = view.shape[:2]
    size = min(max(height // 12, 12), 28)
    masks = [(painter.mask(text, size, max_width=max(width - 8, 1)), colour) for text, colour in lines if text]
    y = (height - sum(mask.shape[0] for mask, _ in masks)) // 2
    for mask, colour in masks:
        rows, columns = mask.shape
        if y >= 0 and y + rows <= height and columns <= width:
            x = (width - columns) // 2
            part = view[y : y + rows, x : x + columns]
            alpha = mask[..., None].astype(np.float32) / 255
            part[:] = part + (np.array(colour, np.float32) - part) * alpha
        y += rows
