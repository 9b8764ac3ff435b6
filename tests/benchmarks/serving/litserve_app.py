"""LitServe with the same model on the same engine, as its documentation tells: JSON with base64 in, batches, one worker.

    python litserve_app.py MODEL.xml PRECISION PORT

Run by the interpreter of an environment that holds LitServe; nothing of Watchline is imported.
"""

from __future__ import annotations

import base64
import sys

import cv2
import litserve
import numpy as np
import openvino as ov

MODEL, PRECISION, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SIZE = 224


class Classifier(litserve.LitAPI):
    """One picture in, its five best classes out."""

    def setup(self, device):
        core = ov.Core()
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": {"fp32": "f32"}.get(PRECISION, PRECISION)}
        self.model = core.compile_model(MODEL, "CPU", hints)

    def decode_request(self, request):
        bgr = cv2.imdecode(np.frombuffer(base64.b64decode(request["image"]), np.uint8), cv2.IMREAD_COLOR)
        return cv2.resize(bgr, (SIZE, SIZE))[:, :, ::-1].transpose(2, 0, 1)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, pixels):
        return self.model(pixels)[0]

    def unbatch(self, logits):
        return list(logits)

    def encode_response(self, logits):
        best = np.argsort(-logits)[:5]
        return {"labels": [{"id": int(k), "logit": float(logits[k])} for k in best]}


if __name__ == "__main__":
    api = Classifier(max_batch_size=16, batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=PORT, log_level="warning", generate_client_file=False)
