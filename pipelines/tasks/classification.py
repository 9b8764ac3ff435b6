"""Classification: the answer is the most probable classes of a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import EngineError, UsageError
from pipelines.frame import Answer
from pipelines.tasks.task import Geometry, OutputSpec, Rows

Scores = npt.NDArray[np.float32]

SURE_P = 0.3
"""The exact model is sure of a frame if its best probability is above."""
SURE_AGREEMENT = 0.98
AGREEMENT = 0.9
"""Least share of equal best labels: among the sure frames; among all frames if none is sure."""
MEAN_COSINE = 0.99
"""Least mean cosine between the scores of both models."""


@dataclass(frozen=True, slots=True)
class Label:
    """One class of an answer: its number, its name, its probability 0-1."""

    id: int
    name: str
    p: float


@dataclass(frozen=True, slots=True)
class Classification(Answer):
    """The best labels of one region, the most probable first."""

    labels: tuple[Label, ...]

    def __str__(self) -> str:
        return ", ".join(f"{k.name} {k.p:.3f}" for k in self.labels)


class ClassificationTask:
    """The output of a model is one row of class scores: logits, or probabilities if the model ends in a softmax."""

    def __init__(self, names: Sequence[str] | None = None, topk: int = 5) -> None:
        """names: of all classes in the model's order, None: "class 17". topk: labels of an answer, unless the region has a
        limit."""
        self.topk = topk
        self._given = names
        self._names: Sequence[str] = ()
        self._probabilities = False

    @property
    def outputs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec((len(self._names),)),)

    def prepare(self, outputs: tuple[OutputSpec, ...], example: Rows | None) -> None:
        """Only the first output is read. Without an example it is taken for logits.

        :raises UsageError: if it is not one row of scores, or the number of names is not the number of classes.
        """
        if not outputs or len(outputs[0].shape) != 1:
            raise UsageError(f"a classification needs a model whose first output is a row of class scores, got {outputs}")
        (classes,) = outputs[0].shape
        self._names = _names(self._given, classes)
        self._probabilities = example is not None and _is_softmaxed(example[0])

    def decode(self, rows: Rows, geometry: Geometry) -> Classification:
        """The best labels.

        :raises EngineError: if the largest score is not a finite number. Single classes may be impossible (minus infinity).
        """
        scores = rows[0]
        k = min(geometry.region.limit or self.topk, len(scores))
        best = scores.argpartition(-k)[-k:]
        top = scores[best]
        order = (-top).argsort(kind="stable")
        best, top = best[order], top[order]
        if not math.isfinite(top[0]) or math.isnan(top[-1]):  # both sorts put NaN last, so the top of the row has it
            raise EngineError("the engine answered values that are not numbers")
        if not self._probabilities:
            top = np.exp(top - top[0]) / np.add.reduce(np.exp(scores - top[0]))
        names = self._names
        return Classification(tuple([Label(i, names[i], p) for i, p in zip(best.tolist(), top.tolist(), strict=True)]))

    @staticmethod
    def agreement(exact: Rows, other: Rows) -> ClassAgreement:
        """Compare the first outputs, both (n, classes)."""
        return agreement(exact[0], other[0])

    @staticmethod
    def as_dict(answer: Classification) -> dict[str, Any]:
        """The JSON form of an answer."""
        return {"labels": [{"id": k.id, "name": k.name, "p": round(k.p, 5)} for k in answer.labels]}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Classification:
        """The answer that `as_dict` gave.

        :raises KeyError, TypeError: if it is no such form.
        """
        return Classification(tuple(Label(k["id"], k["name"], k["p"]) for k in form["labels"]))


def _names(given: Sequence[str] | None, classes: int) -> Sequence[str]:
    if given is None:
        return [f"class {k}" for k in range(classes)]
    if len(given) != classes:
        raise UsageError(
            f"{len(given)} labels were given, the model has {classes} classes; line k of the labels file must name class k"
        )
    return given


def _is_softmaxed(row: Scores) -> bool:
    """Whether the values are probabilities already: between 0 and 1 with a sum of 1, which logits never have."""
    return bool(row.min() >= 0 and abs(row.sum() - 1) < 1e-3)


def softmax(logits: Scores) -> Scores:
    """Probabilities along the last axis. Large values do not overflow."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Scores = e / e.sum(axis=-1, keepdims=True)
    return result


@dataclass(frozen=True, slots=True)
class ClassAgreement:
    """The accuracy gate: how far two sets of scores agree."""

    frames: int
    sure_frames: int
    """Frames with a probability above SURE_P in the exact set."""
    agreement: float
    """Share of frames with the same best label, 0-1."""
    sure_agreement: float | None
    """The same among the sure frames; None if there are none."""
    cosine: float
    """Mean over all frames of the cosine between both rows of scores."""
    least_cosine: float

    @property
    def judged(self) -> float:
        """The share that decides: of the sure frames if there are any."""
        return self.agreement if self.sure_agreement is None else self.sure_agreement

    @property
    def passed(self) -> bool:
        """Whether the share and the mean cosine reach their limits."""
        least = AGREEMENT if self.sure_agreement is None else SURE_AGREEMENT
        return self.judged >= least and self.cosine >= MEAN_COSINE

    def as_dict(self) -> dict[str, Any]:
        """Shares rounded to 4 digits, cosines to 5."""
        rounded = {
            "agreement": round(self.agreement, 4),
            "sure_agreement": None if self.sure_agreement is None else round(self.sure_agreement, 4),
            "cosine": round(self.cosine, 5),
            "least_cosine": round(self.least_cosine, 5),
        }
        return {**asdict(self), **rounded, "passed": self.passed}

    def __str__(self) -> str:
        among = "the sure" if self.sure_frames else "all"
        return f"agrees in {100 * self.judged:.0f} % of {among} frames, mean cosine {self.cosine:.4f}"


def agreement(exact: Scores, other: Scores) -> ClassAgreement:
    """Compare two sets of scores of the same frames, both (frames, classes), at least one frame."""
    sure = softmax(exact).max(axis=1) > SURE_P
    same = exact.argmax(axis=1) == other.argmax(axis=1)
    cosine = cosines(exact, other)
    among_sure = float(same[sure].mean()) if sure.any() else None
    return ClassAgreement(
        len(exact), int(sure.sum()), float(same.mean()), among_sure, float(cosine.mean()), float(cosine.min())
    )


def cosines(exact: Scores, other: Scores) -> Scores:
    """The cosine of each frame's two rows of scores; 0 if one of them is all 0."""
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(other, axis=1)
    found: Scores = (exact * other).sum(axis=1) / np.where(norms == 0, 1, norms)
    return found
