"""Pictures, frames and predictions that the render tests draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.frame import WHOLE, Frame, Picture, Prediction, StreamInfo, Trace
from pipelines.render.style import OverlayStyle
from pipelines.tasks.classification import Classification, Label

BARE = OverlayStyle(header=False, panel=False, marks=False)
"""The style that draws nothing: only the copy remains."""


def noise(width: int, height: int, **kind: Any) -> Picture:
    """Every sample differs from its neighbours, so that any shift or turn shows. The planes are read-only."""
    rng = np.random.default_rng(width * 10_000 + height)
    half = ((height + 1) // 2, (width + 1) // 2)
    planes = [rng.integers(16, 236, size, dtype=np.uint8) for size in ((height, width), half, half)]
    for plane in planes:
        plane.flags.writeable = False
    return Picture(*planes, **kind)


def flat(width: int, height: int, luma: int, **kind: Any) -> Picture:
    half = ((height + 1) // 2, (width + 1) // 2)
    return Picture(np.full((height, width), luma, np.uint8), np.full(half, 128, np.uint8), np.full(half, 128, np.uint8), **kind)


def frame(picture: Picture, *, stream: str = "front door", index: int = 312, pts_s: float | None = 12.345) -> Frame:
    return Frame(stream, 0, index, picture, pts_s, StreamInfo(), Trace(arrived_s=100.0, decoded_s=100.0))


def prediction(*labels: tuple[str, float]) -> Prediction:
    answer = Classification(tuple(Label(i, name, p) for i, (name, p) in enumerate(labels)))
    return Prediction({WHOLE: answer}, batch_id=0, batch_size=1)


FIVE = prediction(("fox squirrel", 0.88), ("mongoose", 0.04), ("grey fox", 0.021), ("hare", 0.012), ("wallaby", 0.003))
EMPTY = prediction()
