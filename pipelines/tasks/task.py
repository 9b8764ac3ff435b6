"""Task: the meaning of a model's output. The first one is classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.frame import WHOLE, Prediction

AsDict = Callable[[Any], dict[str, Any]]
"""`Task.as_dict`: the JSON form of an answer."""


def answers_as_dict(prediction: Prediction, as_dict: AsDict) -> dict[str, Any]:
    """The JSON form of all answers of a frame: the whole frame's keys at the top, the answers of other regions by name under
    "regions", which is absent if there are none."""
    whole = as_dict(prediction.answers[WHOLE]) if WHOLE in prediction.answers else {}
    regions = {name: as_dict(answer) for name, answer in prediction.answers.items() if name != WHOLE}
    return {**whole, "regions": regions} if regions else whole
