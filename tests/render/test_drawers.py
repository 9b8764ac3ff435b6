"""Answers of several regions, and answers without a drawer of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pipelines.frame import WHOLE, Answer, Box, Prediction
from pipelines.render.drawers import DRAWERS, drawer_of
from pipelines.render.label_panel import draw_classification
from pipelines.render.overlay import Overlay
from pipelines.render.style import OverlayStyle
from pipelines.tasks.classification import Classification, Label

from .samples import FIVE, flat, frame, noise


@dataclass(frozen=True, slots=True)
class Weight(Answer):
    """An answer of a kind that no drawer knows."""

    kg: float

    def __str__(self) -> str:
        return f"{self.kg:g} kg"


class Finer(Classification):
    """An answer with a base class that has a drawer."""


DOOR = Classification((Label(3, "open door", 0.91), Label(4, "closed door", 0.09)))
GATE = Classification((Label(5, "gate", 0.5),))
BOXES: dict[str, Box] = {"door": (0.1, 0.25, 0.3, 0.55), "gate": (0.55, 0.2, 0.95, 0.6)}


def answers(**regions: Answer) -> Prediction:
    return Prediction(regions, batch_id=1, batch_size=len(regions))


def test_the_drawer_is_that_of_the_nearest_class() -> None:
    assert drawer_of(GATE) is drawer_of(Finer(())) is draw_classification
    assert drawer_of(Weight(1)) not in DRAWERS.values()


def test_an_answer_without_a_drawer_is_written_as_text() -> None:
    picture = flat(1280, 720, 100)
    overlay = Overlay(OverlayStyle(header=False))
    light, heavy = (overlay.render(frame(picture), answers(frame=Weight(kg))).y for kg in (1.5, 2500))
    touched = light != 100
    assert touched[600:, :400].any()
    assert not touched[:600].any()
    assert not np.array_equal(light, heavy)


def test_every_region_is_outlined_and_its_answer_stands_above_it() -> None:
    picture = flat(1280, 720, 100)
    style = OverlayStyle(header=False)
    drawn = Overlay(style).render(frame(picture), answers(door=DOOR, gate=GATE), BOXES)
    touched = drawn.y != 100
    for x0, y0, x1, y1 in BOXES.values():
        left, top, right, bottom = round(x0 * 1280), round(y0 * 720), round(x1 * 1280), round(y1 * 720)
        for edge in (touched[top + 1, left:right], touched[top:bottom, left + 1], touched[bottom - 2, left:right]):
            assert edge.all()
        assert not touched[top + 8 : bottom - 8, left + 8 : right - 8].any()
        assert (drawn.y[top - 30 : top, left : left + 80] > 200).any()
    assert not touched[round(0.7 * 720) :].any()


def test_the_whole_frame_is_drawn_as_without_regions_beside_them() -> None:
    picture = flat(1280, 720, 100)
    box: Box = (0.2, 0.0, 0.8, 1.0)
    alone = Overlay().render(frame(picture), FIVE, {WHOLE: box})
    among = Overlay().render(frame(picture), answers(frame=FIVE.answer, door=DOOR), {WHOLE: box, **BOXES})
    assert np.array_equal(alone.y[420:], among.y[420:])
    assert np.array_equal(alone.y[:80], among.y[:80])
    assert not np.array_equal(alone.y, among.y)


def test_a_region_s_text_stays_clear_of_header_and_panel() -> None:
    picture = flat(1280, 720, 100)
    corners: dict[str, Box] = {"door": (0.0, 0.0, 0.3, 0.3), "gate": (0.0, 0.7, 0.3, 1.0)}
    bare = Overlay(OverlayStyle(marks=False)).render(frame(picture), FIVE)
    drawn = Overlay(OverlayStyle(marks=False)).render(frame(picture), answers(frame=FIVE.answer, door=DOOR, gate=GATE), corners)
    covered = bare.y != 100
    assert np.array_equal(drawn.y[covered], bare.y[covered])
    assert (drawn.y != bare.y).any()


@pytest.mark.parametrize("size", [(1, 1), (64, 64), (121, 91), (160, 120), (641, 361), (122, 3000), (5000, 95)])
@pytest.mark.parametrize(
    "box",
    [(0.0, 0.0, 1.0, 1.0), (0.999, 0.999, 1.0, 1.0), (0.0, 0.0, 0.001, 0.001), (0.9, 0.9, 0.1, 0.1), (-3.0, 0.2, 0.7, 9.0)],
)
def test_no_region_and_no_answer_makes_it_fail(size: tuple[int, int], box: Box) -> None:
    picture = noise(*size)
    odd = answers(
        frame=Weight(float("nan")), a=DOOR, b=Classification(()), c=Weight(1e300), d=Classification((Label(1, "x" * 900, 9.0),))
    )
    boxes = {"a": box, "b": box, "c": (0.0, float("nan"), 1.0, 1.0), "elsewhere": box}
    drawn = Overlay().render(frame(picture), odd, boxes)
    assert (drawn.width, drawn.height) == (size[0] + size[0] % 2, size[1] + size[1] % 2)


def test_a_frame_that_asked_for_nothing_has_its_header_only() -> None:
    picture = flat(640, 480, 100)
    drawn = Overlay().render(frame(picture), answers())
    assert not (drawn.y != 100)[80:].any()
