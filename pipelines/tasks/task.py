"""Task: the meaning of a model's output. A task is one file in this folder and one drawer in `render/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.frame import WHOLE, Answer, Box, Picture, Prediction, Region

Array = npt.NDArray[Any]
Rows = tuple[Array, ...]
"""One array for each output of the model: of one row, or of n rows with n as the first dimension."""
AsDict = Callable[[Any], dict[str, Any]]
"""`Task.as_dict`: the JSON form of an answer."""
MakeTask = Callable[[Sequence[str] | None, int], "Task"]
"""Makes the task of a model from the names of its classes (None: it has none) and the most labels of an answer."""


FLOAT32: np.dtype[Any] = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output of a model for one row: its shape without the batch, and the type of its values."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = FLOAT32


class Geometry(NamedTuple):
    """The place of a row in its picture. `box_of` is the `box` of the model's preprocessing."""

    picture: Picture
    region: Region
    box_of: Callable[[Picture, Region], Box | None]

    @property
    def box(self) -> Box | None:
        """The part of the upright picture that the model saw; None: all of it."""
        return self.box_of(self.picture, self.region)


class Agreement(Protocol):
    """A comparison of two forms of one model, for example fp32 and int8, on the same rows."""

    @property
    def passed(self) -> bool:
        """Whether the other form may stand for the exact one. False if any figure is not a number."""

    def as_dict(self) -> dict[str, Any]:
        """The figures and `passed`, for a record."""

    def __str__(self) -> str:
        """The figures that decide, in words."""


class Task(Protocol):
    """Turns raw rows into answers. One object per predictor; `decode` runs in its completion thread, the rest anywhere."""

    @property
    def outputs(self) -> tuple[OutputSpec, ...]:
        """Shape and type of one row of each output. Known after `prepare`."""

    def prepare(self, outputs: tuple[OutputSpec, ...], example: Rows | None) -> None:
        """Learn the outputs of the opened model. Called once for each engine that is opened, before `decode`.

        example: the model's rows for one grey picture, without the batch dimension; None if nothing was run.

        :raises UsageError: if the task cannot read such outputs, or its options do not fit them.
        """

    def decode(self, rows: Rows, geometry: Geometry) -> Answer:
        """The answer for one region. rows: one array per output, without the batch dimension; views that stay valid.

        :raises EngineError: if the values cannot be an answer, for example if they are not numbers.
        """

    def agreement(self, exact: Rows, other: Rows) -> Agreement:
        """Compare the rows of two forms of the model. Both: n >= 1 rows of the same pictures."""

    def as_dict(self, answer: Any) -> dict[str, Any]:
        """The only JSON form of an answer: JSON lines, HTTP, classify. No value is NaN or infinite."""


def answers_as_dict(prediction: Prediction, as_dict: AsDict) -> dict[str, Any]:
    """The JSON form of all answers of a frame: the whole frame's keys at the top, the answers of other regions by name under
    "regions", which is absent if there are none."""
    whole = as_dict(prediction.answers[WHOLE]) if WHOLE in prediction.answers else {}
    regions = {name: as_dict(answer) for name, answer in prediction.answers.items() if name != WHOLE}
    return {**whole, "regions": regions} if regions else whole


def row_of(rows: Sequence[Array], k: int) -> Rows:
    """Row k of each output, as views."""
    return tuple([output[k] for output in rows])
