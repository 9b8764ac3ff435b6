"""Classification: the answer is the most probable classes of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.frame import Answer


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
    """The output of a model is one row of class scores."""

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
