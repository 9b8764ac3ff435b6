"""The choices of `auto`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.errors import UsageError
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models.autoselect import engine, kinds
from pipelines.predict.models.builder import places
from pipelines.predict.models.catalog import ModelName
from pipelines.predict.models.comparison import Conditions, convert
from pipelines.predict.models.store import Choice
from pipelines.predict.preprocess import InputSpec
from pipelines.tasks.classification import ClassAgreement, ClassificationTask, agreement

CHOICE = Choice("openvino", "5 ms", "bf16", "2 ms")


def test_pictures_are_worked_on_exactly_and_videos_as_fast_as_the_gate_allows() -> None:
    assert engine(CHOICE, "auto", "auto", "cpu", stills=True)[:2] == ("openvino", "fp32")
    assert engine(CHOICE, "auto", "auto", "cpu", stills=False)[:2] == ("openvino", "bf16")
    assert "2 ms" in engine(CHOICE, "auto", "auto", "cpu", stills=False)[2]


def test_what_was_asked_for_is_taken() -> None:
    assert engine(CHOICE, "openvino", "fp32", "cpu", stills=False)[:2] == ("openvino", "fp32")
    assert engine(CHOICE, "torch", "auto", "cpu", stills=False)[:2] == ("torch", "fp32")


def test_auto_takes_an_engine_that_has_the_precision() -> None:
    faster = replace(CHOICE, engine="torch")
    assert engine(faster, "auto", "int8", "cpu", stills=False)[:2] == ("openvino", "int8")
    with pytest.raises(UsageError, match="`precision` int8: the engine torch has fp32, bf16; use one of them or auto"):
        engine(faster, "torch", "int8", "cpu", stills=False)


def test_kinds_by_device_and_file() -> None:
    assert [kind.name for kind in kinds("auto", "cpu", "pt2")] == ["openvino", "torch"]
    assert [kind.name for kind in kinds("auto", "cpu", "onnx")] == ["openvino"]
    assert [kind.name for kind in kinds("auto", "cuda:0", "pt2")] == ["torch"]
    with pytest.raises(UsageError, match="`engine` openvino does not run on cuda:1; use `engine` torch, or another `device`"):
        kinds("openvino", "cuda:1", "pt2")


def test_agreement_looks_at_sure_frames_only() -> None:
    exact = np.array([[9, 0, 0], [0, 9, 0], [0.1, 0, 0.05], [0, 0, 9]], np.float32)
    other = exact.copy()
    assert agreement(exact, other) == ClassAgreement(4, 4, 1.0, 1.0, pytest.approx(1.0), pytest.approx(1.0))
    other[2] = [0, 0, 0.2]
    assert agreement(exact, other).judged == 0.75, "0.1 of 3 classes is p = 0.35: sure"
    other[3] = [9, 0, 0]
    like = agreement(exact, other)
    assert like.judged == 0.5
    assert like.cosine < 0.9


@pytest.mark.parametrize(("wrong", "passed"), [(0, True), (1, True), (2, False)])
def test_agreement_where_nothing_is_sure_is_that_of_all(wrong: int, passed: bool) -> None:
    """The logits are nearly the same; which is the largest is not."""
    flat = np.full((10, 10), 5, np.float32)
    flat[:, 0] = 5.1
    other = flat.copy()
    other[:wrong, 1] = 5.2
    like = agreement(flat, other)
    assert (like.sure_frames, like.sure_agreement, like.agreement) == (0, None, pytest.approx(1 - wrong / 10))
    assert like.passed == passed
    assert not agreement(flat, -flat).passed


@pytest.mark.parametrize(
    ("threads", "single_ms", "side_by_side"),
    [(2, 6.0, 2), (2, 25.0, 2), (2, 26.0, 1), (8, 6.0, 8), (8, 50.0, 4), (8, 60.0, 2), (8, 500.0, 1), (2, None, 1)],
)
def test_batches_run_side_by_side_as_far_as_one_thread_is_fast_enough(
    threads: int, single_ms: float | None, side_by_side: int
) -> None:
    """Half of 50 ms for a single frame: 60 ms on one thread are 30 on two, which is too slow, and 15 on four."""
    assert places(threads, single_ms, 50.0) == side_by_side


def test_where_nobody_waits_there_is_a_place_for_each_thread() -> None:
    assert [places(n, None, None) for n in (1, 2, 8, 64)] == [1, 2, 8, 8]


class Tiny(torch.nn.Module):
    """A classifier of three classes: the mean of every channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def test_without_pictures_nothing_is_compared_and_fp32_is_taken(tmp_path: Path) -> None:
    network = LoadedModel(Tiny().eval(), InputSpec(16, 16, 16), None)
    facts = convert(ModelName("tiny", "pt2", "tiny", load=lambda: network), tmp_path, Conditions(ClassificationTask()))
    name, precision, why = engine(facts.choice, "auto", "auto", "cpu", stills=False)
    assert (name, precision) == ("openvino", "fp32")
    assert "no pictures were given" in why
    assert (tmp_path / "model.xml").is_file()
