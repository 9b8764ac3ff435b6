"""An engine is one file: a toy that multiplies by a matrix, from its defaults through the predictor and a worker process.

Nothing outside this file knows of it.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from pipelines.predict.engines.engine import Engine, HostEngine, Slot
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.workers.worker_engine import WorkerEngine
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import OutputSpec, Rows
from tests.fakes import labels_of
from tests.predict.fakes import frame


class ToyEngine(HostEngine):
    """Class k has the score -|luma - 50 k|. A second output, of integers, is the luma twice."""

    name, precision = "toy", "fp32"

    def open(self, max_batch: int, slots: int) -> list[Slot]:
        self.outputs = (OutputSpec((5,)), OutputSpec((2,), np.dtype(np.int64)))
        return [Slot(np.zeros((max_batch, 1), np.uint8)) for _ in range(slots)]

    def start(self, slot: Slot, n: int) -> None:
        pass

    def wait(self, slot: Slot, n: int) -> Rows:
        luma = slot.input[:n].astype(np.float32)
        return -np.abs(luma - 50 * np.arange(5, dtype=np.float32)), luma.repeat(2, 1).astype(np.int64)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("apart", [False, True], ids=["here", "in a worker"])
def test_a_new_engine_answers(apart: bool) -> None:
    engine: Engine = WorkerEngine(ToyEngine()) if apart else ToyEngine()
    task = ClassificationTask([str(50 * k) for k in range(5)], topk=1)
    with AsyncBatchPredictor(engine, ProbePreprocess(), task, PredictorOptions()) as predictor:
        predictor.open("a", live=False)
        futures = [predictor.submit(frame("a", k, luma, time.monotonic())) for k, luma in enumerate((3, 98, 151, 199, 52))]
        predictor.close("a")
        assert [labels_of(f.result(10))[0].name for f in futures] == ["0", "100", "150", "200", "50"]
        assert [spec.shape for spec in engine.outputs] == [(5,), (2,)]
        assert predictor.profile.table.keys() >= {1}
