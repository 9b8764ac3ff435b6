"""The record of an int8 form in words: how it compares with fp32, on frames that did not calibrate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.tasks.classification import AGREEMENT, MEAN_COSINE, SURE_AGREEMENT


def figures(record: Mapping[str, Any]) -> str:
    """The record in one line."""
    sure = "none of which fp32 is sure"
    if record["sure_frames"]:
        sure = f"in {percent(record['sure_agreement'])} % of the {record['sure_frames']} sure ones"
    return (
        f"on {record['frames']} frames that did not calibrate it, int8 agrees with fp32 in "
        f"{percent(record['agreement'])} %, {sure}, mean cosine {record['cosine']:.4f}"
    )


def gate(record: Mapping[str, Any]) -> str:
    """The limits that the record was judged by."""
    least = f"{100 * SURE_AGREEMENT:g} % of the sure ones" if record["sure_frames"] else f"{100 * AGREEMENT:g} % of all frames"
    return f"{least}, mean cosine {MEAN_COSINE:g}"


def forced(record: Mapping[str, Any]) -> str:
    """A remark about a form that the gate had refused; empty for any other."""
    return "" if record["passed"] else ", below the gate, kept by `force`"


def percent(share: float) -> str:
    """A share in percent, rounded down to a tenth, so that 100 means all."""
    return f"{int(1000 * share + 1e-6) / 10:g}"
