"""`auto` measured: which device, engine and precision, and why. Decided at a model's first use, kept beside it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.cores import cpu_name
from pipelines.errors import UsageError
from pipelines.frame import WHOLE_FRAME, Picture
from pipelines.predict.engines.engine import Engine
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.openvino_import import import_openvino
from pipelines.predict.models import catalog
from pipelines.predict.models import convert as conversion
from pipelines.predict.models.store import Calibrated, ModelFacts, Stored
from pipelines.predict.preprocess import RgbPreprocess
from pipelines.tasks.classification import ClassAgreement, agreement

BATCH = 8
"""The size at which engines are compared: what files run, and enough for what a batch costs beside its frames."""
Pictures = Callable[[], Sequence[Picture]]
"""Gives the pictures on which engines and precisions are compared. It is called in a thread of its own."""


def device(wanted: str) -> str:
    """The device that `--device` means. torch, which takes 2 s, is imported only where a driver says there is a GPU.

    :raises UsageError: if a GPU is asked for and there is none.
    """
    if wanted == "cpu" or (wanted == "auto" and not _has_nvidia()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        name = "cuda:0" if wanted in ("auto", "cuda") else wanted
        index = int(name.split(":")[1])
        if index < torch.cuda.device_count():
            return name
        raise UsageError(f"--device {wanted}: there are only {torch.cuda.device_count()} GPUs, counted from cuda:0")
    if wanted == "auto":
        return "cpu"
    raise UsageError(f"--device {wanted}: no CUDA device on this machine; use --device cpu or auto")


def devices(wanted: str, workers: int) -> tuple[str, ...]:
    """A device for each of so many workers: a GPU of its own, or the CPU, which they share.

    :raises UsageError: if there are fewer GPUs.
    """
    first = device(wanted)
    if first == "cpu" or workers == 1:
        return (first,) * workers
    import torch

    if wanted.startswith("cuda:"):
        raise UsageError(f"--device {wanted} names one GPU, and --workers {workers} need one each; use --device cuda")
    if workers > torch.cuda.device_count():
        here = torch.cuda.device_count()
        raise UsageError(f"--workers {workers}: each needs a GPU of its own, and there are {here}; use --workers {here}")
    return tuple(f"cuda:{k}" for k in range(workers))


def _has_nvidia() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()


def engine(facts: ModelFacts, wanted: str, precision: str, *, stills: bool) -> tuple[str, str, str]:
    """Engine and precision on the CPU for what was asked, and why in words.

    stills: there are pictures only. Nobody waits for one, so that `auto` takes the exact way: bf16 moves a probability by up
    to 0.06 here and there, which is more than a picture's own path through a video does.
    """
    choice = facts.choice
    if precision == "int8":
        return "openvino", "int8", "openvino int8 on the CPU (asked for)"
    if wanted == "auto":
        name = str(choice.get("engine", "openvino"))
        reason = str(choice.get("engine_why", "it is the only one that reads this file"))
    else:
        name, reason = wanted, "asked for"
    if precision == "bf16" and name == "openvino" and not _has_bf16():
        raise UsageError("--precision bf16: this CPU has no bf16 arithmetic; use fp32 or auto")
    if precision == "auto":
        precision = str(choice.get("video_precision", "fp32")) if name == "openvino" and not stills else "fp32"
        reason += f"; {precision}: {'pictures are worth it' if stills else choice.get('video_precision_why', 'exact')}"
    return name, precision, f"{name} {precision} on the CPU ({reason})"


def calibrated(stored: Stored, model: str) -> Calibrated:
    """The int8 form of a model for this CPU.

    :raises UsageError: if there is none; with what to do.
    """
    found = stored.calibrated(cpu_name())
    if found is None:
        raise uncalibrated(model)
    return found


def uncalibrated(model: str) -> UsageError:
    """What is said where int8 was asked for, and there is nothing to make it from."""
    why = f"the model {model!r} has not been calibrated on this machine, and only a run on files begins with that"
    return UsageError(f"--precision int8: {why}; run: {calibrating(model)}")


def calibrating(model: str) -> str:
    """The command that calibrates a model."""
    return f"watchline calibrate --model {shlex.quote(model)} SOURCE..."


def convert(name: catalog.ModelName, folder: Path, threads: int, pictures: Pictures | None = None) -> ModelFacts:
    """Write the model for OpenVINO into `folder` and measure what `auto` will choose.

    Without pictures no precision can be judged: `auto` then takes OpenVINO in fp32.
    """
    path = folder / "model.xml"
    if name.kind == "onnx":
        model, spec, batch = conversion.from_onnx(name)
        conversion.save(model, path)
        return ModelFacts(spec, _names_for(model), batch, {})
    if pictures is None:
        network = name.load()
        conversion.save(conversion.from_network(network), path)
        why = "no pictures were given to compare engines and precisions on"
        choice = {"engine": "openvino", "engine_why": why, "video_precision": "fp32", "video_precision_why": why}
        return ModelFacts(network.input, network.names, network.batch, choice)
    with ThreadPoolExecutor(1, "sample") as decoder:
        # While torch and timm are imported, which takes seconds.
        sample = decoder.submit(pictures)
        network = name.load()
        conversion.save(conversion.from_network(network), path)
        choice = _compare(network, path, threads, sample.result())
    return ModelFacts(network.input, network.names, network.batch, choice)


def _names_for(model: Any) -> tuple[str, ...] | None:
    """ImageNet's names for a file of 1000 classes without names of its own: torchvision's, which imports torch once."""
    return catalog.imagenet_names() if model.output(0).partial_shape[-1].get_length() == 1000 else None


def _compare(network: catalog.LoadedModel, path: Path, threads: int, sample: Sequence[Picture]) -> dict[str, Any]:
    from pipelines.predict.engines.torch import HostDevice, TorchEngine

    pixels = _pixels(network, sample)
    batch = network.batch or BATCH
    openvino = OpenVinoEngine(path, "fp32", threads, None, network.batch)
    eager = TorchEngine(network, device=HostDevice(), precision="fp32", threads=threads)
    ov_ms, exact = _measured(openvino, pixels, batch)
    torch_ms, _ = _measured(eager, pixels[:batch], batch)
    faster, slower = sorted((("openvino", ov_ms), ("torch", torch_ms)), key=lambda e: e[1])
    return {
        "engine": faster[0],
        "single_ms": {p: _single_ms(path, p, pixels, network.batch) for p in ("fp32", "bf16") if p == "fp32" or _has_bf16()},
        "engine_why": f"{faster[1]:.1f} ms a frame measured, {slower[0]} {slower[1]:.1f} ms",
        **_compare_bf16(path, threads, network.batch, pixels, batch, ov_ms, exact),
    }


def _compare_bf16(
    path: Path,
    threads: int,
    only: int | None,
    pixels: npt.NDArray[np.uint8],
    batch: int,
    ms: float,
    exact: npt.NDArray[np.float32],
) -> dict[str, str]:
    if not _has_bf16():
        return {"video_precision": "fp32", "video_precision_why": "this CPU has no bf16 arithmetic"}
    bf16_ms, rounded = _measured(OpenVinoEngine(path, "bf16", threads, None, only), pixels, batch)
    like: ClassAgreement = agreement(exact, rounded)
    figures = f"{bf16_ms:.1f} ms a frame in bf16, {ms:.1f} in fp32; on the sample bf16 {like}"
    return {"video_precision": "bf16" if bf16_ms < ms and like.passed else "fp32", "video_precision_why": figures}


def _single_ms(path: Path, precision: str, pixels: npt.NDArray[np.uint8], only: int | None) -> float:
    """CPU milliseconds of a frame on one thread: what decides how many batches may run side by side (see `build.places`)."""
    engine, b = OpenVinoEngine(path, precision, 1, None, only), only or 1
    (slot,) = engine.open(b, 1)
    slot.input[:b] = pixels[:b]
    spent_s = []
    for _ in range(4):
        began = time.process_time()
        engine.start(slot, b)
        engine.wait(slot, b)
        spent_s.append(time.process_time() - began)
    engine.close()
    return 1e3 * min(spent_s) / b


def _has_bf16() -> bool:
    return "BF16" in _capabilities()


def _capabilities() -> list[str]:
    capabilities: list[str] = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return capabilities


def _measured(e: Engine, pixels: npt.NDArray[np.uint8], batch: int) -> tuple[float, npt.NDArray[np.float32]]:
    """Milliseconds a frame in a warm batch, the best of two, and the logits of all pixels."""
    (slot,) = e.open(batch, 1)
    logits, best_s = [], float("inf")
    for start in range(0, len(pixels), batch):
        part = pixels[start : start + batch]
        slot.input[: len(part)] = part
        e.start(slot, batch)
        logits.append(e.wait(slot, batch)[0][: len(part)].copy())
    for _ in range(2):
        began = time.perf_counter()
        e.start(slot, batch)
        e.wait(slot, batch)
        best_s = min(best_s, time.perf_counter() - began)
    e.close()
    return 1e3 * best_s / batch, np.concatenate(logits)


def _pixels(network: catalog.LoadedModel, pictures: Sequence[Picture]) -> npt.NDArray[np.uint8]:
    """Pictures as the model sees them."""
    preprocess = RgbPreprocess(network.input, "crop")
    pixels = np.zeros((len(pictures), *preprocess.shape), np.uint8)
    for picture, row in zip(pictures, pixels, strict=True):
        preprocess(picture, WHOLE_FRAME[0], row)
    return pixels
