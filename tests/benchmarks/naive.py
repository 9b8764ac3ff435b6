"""What people would write: cv2.VideoCapture and eager torch in fp32, one frame at a time. Prints one JSON line."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import cv2
import numpy as np
import torch

from pipelines.predict.models import find


def main() -> None:
    """Label a clip with the default model."""
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("clip")
    clip = args.parse_args().clip
    net: Any = find("lite0").load().module
    with torch.no_grad():
        net(torch.zeros(1, 3, 224, 224))  # imports and the first call stay out of the time
    capture, frames, began_s = cv2.VideoCapture(clip), 0, time.perf_counter()
    while True:
        there, bgr = capture.read()
        if not there:
            break
        rgb = cv2.resize(bgr, (224, 224))[:, :, ::-1].astype(np.float32)
        pixels = torch.from_numpy(((rgb - 127.5) / 127.5).transpose(2, 0, 1).copy())
        with torch.no_grad():
            net(pixels[None]).softmax(-1)[0].max(0)
        frames += 1
    seconds = time.perf_counter() - began_s
    print(json.dumps({"who": "naive", "frames": frames, "fps": round(frames / seconds, 1)}))


if __name__ == "__main__":
    main()
