"""A task is one file: the mean colour of a region, from a toy engine through the predictor to JSON and the overlay.

Nothing outside this file knows of it. An answer without a drawer of its own is drawn as its text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.errors import EngineError, UsageError
from pipelines.frame import WHOLE, Answer, Frame, Picture, Prediction, Region, StreamInfo, Trace
from pipelines.predict.engines.engine import HostEngine, Slot
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorOptions
from pipelines.predict.preprocess import InputSpec, RgbPreprocess
from pipelines.render.overlay import Overlay
from pipelines.tasks.task import Geometry, OutputSpec, Rows, answers_as_dict


@dataclass(frozen=True, slots=True)
class MeanColour(Answer):
    """R, G and B, 0-255."""

    rgb: tuple[int, int, int]

    def __str__(self) -> str:
        return "#{:02x}{:02x}{:02x}".format(*self.rgb)


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference of any channel."""

    largest: float

    @property
    def passed(self) -> bool:
        return self.largest <= 1.0

    def as_dict(self) -> dict[str, Any]:
        return {"largest": self.largest, "passed": self.passed}

    def __str__(self) -> str:
        return f"differs by {self.largest:.1f}"


class MeanColourTask:
    """The output of the model is R, G and B, -255 to 255."""

    outputs = (OutputSpec((3,)),)

    def prepare(self, outputs: tuple[OutputSpec, ...], example: Rows | None) -> None:
        if outputs[0].shape != (3,):
            raise UsageError(f"a mean colour needs an output of 3 values, got {outputs[0].shape}")

    def decode(self, rows: Rows, geometry: Geometry) -> MeanColour:
        if not np.isfinite(rows[0]).all():
            raise EngineError("a colour that is no number")
        r, g, b = (min(max(round(float(v)), 0), 255) for v in rows[0])
        return MeanColour((r, g, b))

    def agreement(self, exact: Rows, other: Rows) -> Difference:
        return Difference(float(np.abs(exact[0] - other[0]).max()))

    def as_dict(self, answer: MeanColour) -> dict[str, Any]:
        return {"rgb": list(answer.rgb)}


class _MeanEngine(HostEngine):
    """The mean of each channel."""

    name, precision = "mean", "exact"
    outputs: tuple[OutputSpec, ...] = MeanColourTask.outputs

    def open(self, max_batch: int, slots: int) -> list[Slot]:
        return [Slot(np.zeros((max_batch, 3, 16, 16), np.uint8)) for _ in range(slots)]

    def start(self, slot: Slot, n: int) -> None:
        pass

    def wait(self, slot: Slot, n: int) -> Rows:
        return (slot.input[:n].mean(axis=(2, 3)).astype(np.float32),)


def test_a_new_kind_of_answer_comes_out_as_json_and_on_the_picture() -> None:
    y = np.full((180, 320), 200, np.uint8)
    y[:, 160:] = 50
    grey = np.full((90, 160), 128, np.uint8)
    picture = Picture(y, grey, grey, full_range=True)
    now = time.monotonic()
    regions = (Region(fit="squash"), Region("right", (0.5, 0.0, 1.0, 1.0)))
    frame = Frame("a", 0, 0, picture, None, StreamInfo(), Trace(now, now), regions=regions)
    task = MeanColourTask()
    preprocess = RgbPreprocess(InputSpec(16, 16, 16), "crop")
    with AsyncBatchPredictor(_MeanEngine(), preprocess, task, PredictorOptions()) as predictor:
        predictor.open("a", live=True)
        prediction = predictor.submit(frame).result(10)
    form = answers_as_dict(prediction, task.as_dict)
    assert form["regions"]["right"]["rgb"] == [50, 50, 50]
    assert np.abs(np.array(form["rgb"]) - 125).max() <= 2
    assert str(prediction.answers["right"]) == "#323232"
    assert prediction.answers[WHOLE] is prediction.answer
    drawn, blank = (Overlay().render(frame, p) for p in (prediction, Prediction({}, 1, 1)))
    assert not np.array_equal(drawn.y, blank.y), "without a drawer of its own it is drawn as its text"
