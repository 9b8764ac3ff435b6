"""Overlay: the answers drawn on a copy of the frame's own planes. START HERE for drawing.

The overlay itself draws the header and the marks of regions. Each answer is drawn by the drawer of its type (`drawers.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from pipelines.frame import WHOLE, Box, Frame, Picture, Prediction
from pipelines.render.brush import Brush, palette_of
from pipelines.render.canvas import Canvas, Rect, copy_upright
from pipelines.render.drawers import drawer_of
from pipelines.render.header import draw_header
from pipelines.render.layout import mark_layout
from pipelines.render.marks import draw_corners, draw_outline, rect_of
from pipelines.render.place import Place
from pipelines.render.plane_pool import PlanePool
from pipelines.render.style import OverlayStyle
from pipelines.render.text import TextPainter

NO_BOXES: Mapping[str, Box] = {}

_mark_layout = lru_cache(maxsize=64)(mark_layout)


class Overlay:
    """Draws the frames of one stream. Thread: one, the thread that draws; the constructor may run in another.

    A frame of 1280x720 takes 0.6 to 0.9 ms of one core with the copy; one of 3840x2160 takes 4 ms, half of it the copy.
    """

    def __init__(
        self,
        style: OverlayStyle | None = None,
        *,
        wall_clock: bool = False,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        """wall_clock: for a live stream: show the local time of the frame's arrival, and its age.

        clock: the clock of `Trace`; utc: seconds since 1970.
        """
        self._style = style or OverlayStyle()
        self._wall_clock = wall_clock
        self._clock = clock
        self._utc = utc
        self._pool = PlanePool()
        self._painter = TextPainter()

    def prepare(self) -> None:
        """Load OpenCV's font, which takes 30 ms at its first use in a thread and would delay the first frame.

        Thread: the thread that draws, before its first frame. Fonts belong to the process: see `text.find_fonts`.
        """
        self._painter.number_width("0", 16, 400)

    def render(self, frame: Frame, prediction: Prediction, boxes: Mapping[str, Box] = NO_BOXES) -> Picture:
        """A new picture, upright and of even size, with the answers drawn on it.

        boxes: the part of the upright picture that the model saw, by the region's name; a region without a box is the
        whole picture. A picture of odd size gets one more column or row, which repeats the edge. The planes belong to a
        pool: they live as long as the picture or any view of them.
        """
        picture = frame.picture
        width, height = picture.upright_size
        planes = self._pool.lease(width + width % 2, height + height % 2)
        copy_upright(picture, planes)
        brush = Brush(Canvas(planes), self._painter, self._style, palette_of(self._style, picture))
        self._draw(brush, frame, prediction, boxes)
        return Picture(*planes, matrix=picture.matrix, full_range=picture.full_range, sample_aspect=picture.upright_aspect)

    def _draw(self, brush: Brush, frame: Frame, prediction: Prediction, boxes: Mapping[str, Box]) -> None:
        """Outlines lie below everything; the answers of regions come last, so that they avoid panel and header."""
        width, height = frame.picture.upright_size
        marks = _mark_layout(width, height, self._style.scale) if self._style.marks else None
        regions = _regions(prediction, boxes, width, height)
        whole = regions.pop(WHOLE, None)
        if marks:
            for region in regions.values():
                draw_outline(brush, marks, region)
        taken: list[Rect] = []
        if self._style.panel and WHOLE in prediction.answers:
            self._answer(brush, prediction, _whole(width, height), taken)
        if self._style.header and (header := draw_header(brush, (width, height), frame.stream, self._facts(frame))):
            taken.append(header)
        if marks and whole:
            draw_corners(brush, marks, whole, taken)
        if self._style.panel:
            for name, region in regions.items():
                self._answer(brush, prediction, Place(width, height, name, region, tuple(taken)), taken)

    @staticmethod
    def _answer(brush: Brush, prediction: Prediction, place: Place, taken: list[Rect]) -> None:
        answer = prediction.answers[place.name]
        drawn = drawer_of(answer)(brush, answer, place)
        if drawn is not None:
            taken.append(drawn)

    def _facts(self, frame: Frame) -> list[str]:
        """The texts beside the name: arrival and age of a live frame, media time and number of a file's frame."""
        if self._wall_clock:
            age_s = self._clock() - frame.trace.arrived_s
            arrived = time.strftime("%H:%M:%S", time.localtime(self._utc() - age_s))
            return [arrived, f"{age_s * 1000:.0f} ms"]
        media = [] if frame.pts_s is None or not math.isfinite(frame.pts_s) else [media_time(frame.pts_s)]
        return [*media, f"#{frame.index}"]


@lru_cache(maxsize=64)
def _whole(width: int, height: int) -> Place:
    """The place of the whole frame's answer."""
    return Place(width, height, WHOLE, Rect(0, 0, width, height))


def _regions(prediction: Prediction, boxes: Mapping[str, Box], width: int, height: int) -> dict[str, Rect]:
    """The rectangles of the regions in the order of the answers; the whole frame only if it has a box of finite numbers."""
    found = {name: Rect(0, 0, width, height) for name in prediction.answers if name != WHOLE}
    for name, box in boxes.items():
        if (name in found or name == WHOLE) and (rect := rect_of(box, width, height)):
            found[name] = rect
    return found


def media_time(seconds: float) -> str:
    """H:MM:SS.mmm"""
    ms = round(abs(seconds) * 1000)
    sign = "-" if seconds < 0 and ms else ""
    return f"{sign}{ms // 3_600_000}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"
