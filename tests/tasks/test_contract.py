"""The contract of `Task`, over every task."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest

from pipelines.errors import EngineError, UsageError
from pipelines.frame import WHOLE, WHOLE_FRAME, Answer, Picture, Prediction, Region
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import Geometry, OutputSpec, Rows, Task, answers_as_dict
from tests.tasks.test_toy_task import MeanColourTask

TASKS: dict[str, tuple[Callable[[], Task], tuple[OutputSpec, ...]]] = {
    "classification": (ClassificationTask, (OutputSpec((10,)),)),
    "classification, further outputs": (lambda: ClassificationTask(topk=3), (OutputSpec((10,)), OutputSpec((2, 3)))),
    "mean colour, the toy": (MeanColourTask, (OutputSpec((3,)),)),
}
PICTURE = Picture(np.zeros((4, 6), np.uint8), np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8))


@pytest.fixture(params=list(TASKS))
def made(request: pytest.FixtureRequest) -> tuple[Task, tuple[OutputSpec, ...]]:
    make, outputs = TASKS[request.param]
    task = make()
    task.prepare(outputs, _rows(outputs, 0))
    return task, outputs


def _rows(outputs: tuple[OutputSpec, ...], seed: int, n: int | None = None) -> Rows:
    chance = np.random.default_rng(seed)
    lead = () if n is None else (n,)
    return tuple(chance.normal(0, 3, (*lead, *o.shape)).astype(o.dtype) for o in outputs)


def _geometry(region: Region = WHOLE_FRAME[0]) -> Geometry:
    return Geometry(PICTURE, region, lambda picture, region: region.box)


Made = tuple[Task, tuple[OutputSpec, ...]]


def test_an_answer_is_frozen_and_has_a_text(made: Made) -> None:
    task, outputs = made
    answer: Any = task.decode(_rows(outputs, 1), _geometry())
    assert isinstance(answer, Answer)
    with pytest.raises((FrozenInstanceError, AttributeError)):
        setattr(answer, fields(answer)[0].name, None)
    assert str(answer)
    assert task.decode(_rows(outputs, 1), _geometry()) == answer, "the same rows give the same answer"


def test_its_json_form_is_json(made: Made) -> None:
    task, outputs = made
    answers = {name: task.decode(_rows(outputs, k), _geometry(Region(name))) for k, name in enumerate((WHOLE, "door"))}
    form = answers_as_dict(Prediction(answers, 1, 2), task.as_dict)
    assert json.loads(json.dumps(form, allow_nan=False)) == form
    assert form["regions"] == {"door": task.as_dict(answers["door"])}
    assert {k: v for k, v in form.items() if k != "regions"} == task.as_dict(answers[WHOLE])


def test_rows_that_are_no_numbers_are_an_engine_error(made: Made) -> None:
    task, outputs = made
    rows = _rows(outputs, 1)
    rows[0][..., 0] = np.nan
    with pytest.raises(EngineError):
        task.decode(rows, _geometry())


def test_the_same_rows_agree_and_nonsense_does_not(made: Made) -> None:
    task, outputs = made
    rows = _rows(outputs, 1, n=40)
    assert task.agreement(rows, rows).passed
    assert not task.agreement(rows, tuple(-r for r in rows)).passed
    assert not task.agreement(rows, tuple(np.full_like(r, np.nan) for r in rows)).passed
    record = task.agreement(rows, rows).as_dict()
    assert record["passed"] is True
    json.dumps(record, allow_nan=False)
    assert str(task.agreement(rows, rows))


def test_the_outputs_are_those_that_it_reads(made: Made) -> None:
    task, outputs = made
    assert task.outputs == outputs[: len(task.outputs)]


def test_outputs_that_it_cannot_read_are_refused(made: Made) -> None:
    task, _ = made
    wrong = (OutputSpec((2, 5, 7)),)
    with pytest.raises(UsageError):
        task.prepare(wrong, _rows(wrong, 0))
