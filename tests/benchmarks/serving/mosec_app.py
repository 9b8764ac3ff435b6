"""mosec with the same model on the same engine, as its documentation tells: a stage that decodes, one that infers in batches.

    python mosec_app.py --port PORT --address 127.0.0.1      (the model in WATCHLINE_BENCH_MODEL, the precision beside it)

Run by the interpreter of an environment that holds mosec; nothing of Watchline is imported.
"""

from __future__ import annotations

import os

import cv2
import numpy as np
import openvino as ov
from mosec import Server, Worker

SIZE = 224


class Decode(Worker):
    """The body's bytes to the model's input."""

    def deserialize(self, data):
        return data

    def forward(self, data):
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return np.ascontiguousarray(cv2.resize(bgr, (SIZE, SIZE))[:, :, ::-1].transpose(2, 0, 1))


class Infer(Worker):
    """A batch of inputs to their five best classes."""

    def __init__(self):
        precision = os.environ["WATCHLINE_BENCH_PRECISION"]
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": {"fp32": "f32"}.get(precision, precision)}
        self.model = ov.Core().compile_model(os.environ["WATCHLINE_BENCH_MODEL"], "CPU", hints)

    def forward(self, inputs):
        logits = self.model(np.stack(inputs))[0]
        return [[{"id": int(k), "logit": float(row[k])} for k in np.argsort(-row)[:5]] for row in logits]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Decode, num=1)
    server.append_worker(Infer, num=1, max_batch_size=16, max_wait_time=5)
    server.run()
