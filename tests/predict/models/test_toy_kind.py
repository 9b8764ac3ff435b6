"""A kind of engine is one file and one line in a table: `auto` prepares, measures and takes a toy that stands only here."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.errors import UsageError
from pipelines.predict.engines.engine import HostEngine, Slot
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models.builder import build_predictor
from pipelines.predict.models.kinds import KINDS, EngineKind
from pipelines.predict.models.model_options import Load, ModelOptions
from pipelines.predict.prepared import EnginePlace, Prepared
from pipelines.tasks.task import OutputSpec, Rows
from tests.fakes import labels_of
from tests.predict.fakes import frame, picture

SIZE = 32


class Means(torch.nn.Module):
    """Three classes: the mean of each channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):  # so that every engine but the toy has something to compute
            x = x + torch.sin(x) * 0
        return x.mean((2, 3))


class ToyEngine(HostEngine):
    """Knows the answer."""

    name = "toy"

    def __init__(self, folder: Path, precision: str) -> None:
        self.precision = precision
        self._best = int((folder / "toy.txt").read_text())

    def open(self, max_batch: int, slots: int) -> list[Slot]:
        self.outputs = (OutputSpec((3,)),)
        return [Slot(np.zeros((max_batch, 3, SIZE, SIZE), np.uint8)) for _ in range(slots)]

    def start(self, slot: Slot, n: int) -> None:
        pass

    def wait(self, slot: Slot, n: int) -> Rows:
        return (np.eye(3, dtype=np.float32)[[self._best] * n],)


def prepare(model: LoadedModel, folder: Path) -> None:
    (folder / "toy.txt").write_text("2")


def engine(prepared: Prepared, place: EnginePlace) -> ToyEngine:
    assert prepared.folder is not None
    return ToyEngine(prepared.folder, place.precision)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(KINDS, "toy", EngineKind("toy", ("cpu",), ("fp32",), __name__))
    path = tmp_path / "means.pt2"
    example = torch.zeros(2, 3, SIZE, SIZE)
    torch.export.save(torch.export.export(Means().eval(), (example,), dynamic_shapes=({0: torch.export.Dim("b")},)), path)
    return path


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wanted", ["toy", "auto"])
def test_a_new_kind_of_engine_runs_a_model(model: Path, tmp_path: Path, wanted: str) -> None:
    pictures = [picture(luma) for luma in range(0, 160, 10)]
    options = ModelOptions(engine=wanted, cache=tmp_path / "cache", pictures=lambda: pictures, load=Load(stills=True))
    made = build_predictor(str(model), options)
    assert made.why.startswith("toy fp32 on the CPU (")
    with made.predictor as predictor:
        predictor.open("a", live=False)
        future = predictor.submit(frame("a", 0, 100, time.monotonic()))
        predictor.close("a")
        assert labels_of(future.result(10))[0].name == "class 2"


def test_on_a_gpu_it_is_measured_beside_the_others(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine with a GPU only the device's name is pretended: no other kind that runs there is in the table."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setitem(KINDS, "toy", EngineKind("toy", ("cuda",), ("fp32",), __name__))
    monkeypatch.delitem(KINDS, "torch")
    pictures = [picture(luma) for luma in range(0, 160, 10)]
    options = ModelOptions(device="cuda", cache=tmp_path / "cache", pictures=lambda: pictures)
    assert build_predictor(str(model), options).why.startswith("toy fp32 on cuda:0 (")
    with pytest.raises(UsageError, match="`engine` openvino does not run on cuda:0; use `engine` toy"):
        build_predictor(str(model), replace(options, engine="openvino"))


def test_a_precision_that_it_does_not_have(model: Path, tmp_path: Path) -> None:
    options = ModelOptions(engine="toy", precision="bf16", cache=tmp_path / "cache")
    with pytest.raises(UsageError, match="`precision` bf16: the engine toy has fp32; use one of them or auto"):
        build_predictor(str(model), options)


def test_a_kind_that_is_not_there(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no engine named 'warp'; allowed: auto, openvino, torch, toy"):
        build_predictor(str(model), ModelOptions(engine="warp", cache=tmp_path / "cache"))
