"""The drawers: one for each kind of answer. A new kind of answer is one file with a drawer and one line in `DRAWERS`.

An answer without a drawer is written as its text, `str(answer)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.frame import Answer
from pipelines.render.brush import Brush
from pipelines.render.canvas import Rect
from pipelines.render.label_panel import draw_classification
from pipelines.render.place import Place
from pipelines.render.tag import draw_text
from pipelines.tasks.classification import Classification

Drawer = Callable[[Brush, Any, Place], Rect | None]
"""Draws one answer in its place. Returns the rectangle that later drawing must not cover; None: nothing was drawn.

A drawer raises no error for an answer of its type, with any values and any size of picture.
"""

DRAWERS: Mapping[type[Answer], Drawer] = {Classification: draw_classification}


def _draw_as_text(brush: Brush, answer: Answer, place: Place) -> Rect | None:
    return draw_text(brush, str(answer), place)


def drawer_of(answer: Answer) -> Drawer:
    """The drawer of the answer's class or of its nearest base class that has one; else the one that writes text."""
    own = DRAWERS.get(type(answer))
    return own or next((DRAWERS[base] for base in type(answer).__mro__ if base in DRAWERS), _draw_as_text)
