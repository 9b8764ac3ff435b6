"""A task is one file: the mean colour of a region, from a model's file through the predictor to JSON and the overlay.

Nothing outside this file knows of it. An answer without a drawer of its own is drawn as its text.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.errors import EngineError, UsageError
from pipelines.frame import WHOLE, Answer, Frame, Picture, Prediction, Region, StreamInfo, Trace
from pipelines.predict.models.builder import build_predictor
from pipelines.predict.models.model_options import ModelOptions
from pipelines.predict.preprocess import InputSpec
from pipelines.render.overlay import Overlay
from pipelines.tasks.task import Geometry, OutputSpec, Rows, answers_as_dict
from tests.predict.fakes import picture as grey_picture


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


class Means(torch.nn.Module):
    """The mean of each channel, 0-255, of an input that is normalised as for ImageNet."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, std = torch.tensor(InputSpec().mean), torch.tensor(InputSpec().std)
        return (x.mean((2, 3)) * std + mean) * 255


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "means.pt2"
    example = torch.zeros(2, 3, 16, 16)
    torch.export.save(torch.export.export(Means().eval(), (example,), dynamic_shapes=({0: torch.export.Dim("b")},)), path)
    return path


@pytest.mark.timeout(60)
def test_a_new_kind_of_answer_comes_out_as_json_and_on_the_picture(model: Path, tmp_path: Path) -> None:
    y = np.full((180, 320), 200, np.uint8)
    y[:, 160:] = 50
    grey = np.full((90, 160), 128, np.uint8)
    picture = Picture(y, grey, grey, full_range=True)
    now = time.monotonic()
    regions = (Region(fit="squash"), Region("right", (0.5, 0.0, 1.0, 1.0)))
    frame = Frame("a", 0, 0, picture, None, StreamInfo(), Trace(now, now), regions=regions)
    options = ModelOptions(precision="fp32", cache=tmp_path / "cache", task=lambda names, topk: MeanColourTask())
    made = build_predictor(str(model), options)
    with made.predictor as predictor:
        predictor.open("a", live=True)
        prediction = predictor.submit(frame).result(10)
    form = answers_as_dict(prediction, made.task.as_dict)
    assert form["regions"]["right"]["rgb"] == [50, 50, 50]
    assert np.abs(np.array(form["rgb"]) - 125).max() <= 2
    assert str(prediction.answers["right"]) == "#323232"
    assert prediction.answers[WHOLE] is prediction.answer
    drawn, blank = (Overlay().render(frame, p) for p in (prediction, Prediction({}, 1, 1)))
    assert not np.array_equal(drawn.y, blank.y), "without a drawer of its own it is drawn as its text"


@pytest.mark.timeout(60)
def test_the_gate_of_faster_precisions_is_that_of_the_task(model: Path, tmp_path: Path) -> None:
    pictures = [grey_picture(luma) for luma in range(0, 160, 10)]
    task = MeanColourTask()
    options = ModelOptions(cache=tmp_path / "cache", task=lambda names, topk: task, pictures=lambda: pictures)
    why = build_predictor(str(model), options).why
    assert "differs by" in why or "no bf16" in why
