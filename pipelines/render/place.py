"""Place: the part of a picture that an answer belongs to, and the parts that are drawn on already."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.frame import WHOLE
from pipelines.render.canvas import Rect


@dataclass(frozen=True, slots=True)
class Place:
    """Where one answer is drawn, in luma samples of the upright picture."""

    width: int
    """The picture's columns."""
    height: int
    """The picture's rows."""
    name: str
    """The region's name."""
    box: Rect
    """The region; the whole picture if the region is the whole frame."""
    taken: tuple[Rect, ...] = ()
    """Rectangles that are drawn on already."""

    @property
    def whole(self) -> bool:
        """Whether the answer is that of the whole frame."""
        return self.name == WHOLE

    def is_free(self, rect: Rect) -> bool:
        """Whether `rect` lies inside the picture and shares no sample with a rectangle that is taken."""
        inside = rect.x >= 0 and rect.y >= 0 and rect.right <= self.width and rect.bottom <= self.height
        return inside and not any(rect.meets(other) for other in self.taken)
