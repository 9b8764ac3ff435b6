"""`auto`: device, engine and precision by measurement, with the reason. Measured at a model's first use, kept in the store."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.cores import cpu_name
from pipelines.errors import UsageError
from pipelines.frame import WHOLE_FRAME, Picture
from pipelines.predict.engines import openvino_convert as conversion
from pipelines.predict.engines.engine import Engine
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models import catalog
from pipelines.predict.models.kinds import KINDS, EngineKind, kind_of
from pipelines.predict.models.labels import imagenet_names
from pipelines.predict.models.store import Calibrated, Choice, ModelFacts, Stored
from pipelines.predict.prepared import Place, Prepared
from pipelines.predict.preprocess import RgbPreprocess
from pipelines.tasks.classification import ClassAgreement, agreement

BATCH = 8
"""The batch size at which engines are compared: that of files, large enough to spread the cost of a batch over its frames."""
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
        raise UsageError(f"`device` {wanted}: there are only {torch.cuda.device_count()} GPUs, counted from cuda:0")
    if wanted == "auto":
        return "cpu"
    raise UsageError(f"`device` {wanted}: no CUDA device on this machine; use `device` cpu or auto")


def devices(wanted: str, workers: int) -> tuple[str, ...]:
    """A device for each of so many workers: a GPU of its own, or the CPU, which they share.

    :raises UsageError: if there are fewer GPUs.
    """
    first = device(wanted)
    if first == "cpu" or workers == 1:
        return (first,) * workers
    import torch

    if wanted.startswith("cuda:"):
        raise UsageError(f"`device` {wanted} names one GPU, and `workers` {workers} need one each; use `device` cuda")
    if workers > torch.cuda.device_count():
        here = torch.cuda.device_count()
        raise UsageError(f"`workers` {workers}: each needs a GPU of its own, and there are {here}; use `workers` {here}")
    return tuple(f"cuda:{k}" for k in range(workers))


def _has_nvidia() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()


def engine(facts: ModelFacts, wanted: str, precision: str, *, stills: bool) -> tuple[str, str, str]:
    """Engine and precision on the CPU, and the reason in words. wanted, precision: a name, or auto.

    stills: all work is pictures. No caller waits for one, so that `auto` takes the exact way: bf16 moves a probability by up to
    0.06 here and there, which is more than a picture's own path through a video does.

    :raises UsageError: if the engine does not run the precision on this machine.
    """
    choice = facts.choice
    if precision == "int8":
        return "openvino", "int8", "openvino int8 on the CPU (asked for)"
    if wanted == "auto":
        name, reason = choice.engine, choice.engine_why
    else:
        name, reason = wanted, "asked for"
    kind = kind_of(name)
    if precision not in ("auto", *kind.precisions):
        raise UsageError(
            f"`precision` {precision}: the engine {name} has {', '.join(kind.precisions)}; use one of them or auto"
        )
    if precision != "auto" and (why := kind.missing(precision)) is not None:
        raise UsageError(f"`precision` {precision}: {why}; use fp32 or auto")
    if precision == "auto":
        precision = choice.video_precision if kind.faster and not stills else "fp32"
        reason += f"; {precision}: {'pictures are worth it' if stills else choice.video_precision_why}"
    return name, precision, f"{name} {precision} on the CPU ({reason})"


def single_ms(facts: ModelFacts, precision: str) -> float | None:
    """CPU milliseconds of a frame on one thread, of the nearest precision that was measured; None if none was."""
    known = facts.choice.single_ms
    return known.get(precision, known.get("bf16", known.get("fp32")))


def calibrated(stored: Stored, model: str) -> Calibrated:
    """The int8 form of a model for this CPU.

    :raises UsageError: if there is none; it names the command that makes one.
    """
    found = stored.calibrated(cpu_name())
    if found is None:
        raise uncalibrated(model)
    return found


def uncalibrated(model: str) -> UsageError:
    """The error for int8 without an int8 form and without files to make one from."""
    why = f"the model {model!r} has not been calibrated on this machine, and only a run on files begins with that"
    return UsageError(f"`precision` int8: {why}; run: {calibrating(model)}")


def calibrating(model: str) -> str:
    """How a model is calibrated, in words."""
    return f"`calibrate` `model` {shlex.quote(model)} SOURCE..."


def convert(name: catalog.ModelName, folder: Path, threads: int, pictures: Pictures | None = None) -> ModelFacts:
    """Prepare the model for every kind of engine that runs it on the CPU, and measure which one `auto` takes.

    folder: where the files are written. Without pictures no precision can be judged: `auto` then takes the first kind in fp32.

    :raises UsageError: if a kind cannot run the network.
    """
    if name.kind == "onnx":
        model, spec, batch = conversion.from_onnx(Path(name.text))
        conversion.save(model, folder / "model.xml")
        return ModelFacts(spec, _names_for(model), batch, Choice())
    kinds = [kind for kind in KINDS.values() if kind.runs_on("cpu") and name.kind not in kind.not_read]
    with ThreadPoolExecutor(1, "sample") as decoder:
        # While torch and timm are imported, which takes seconds.
        sample = decoder.submit(pictures) if pictures is not None else None
        network = name.load()
        for kind in kinds:
            kind.prepare(network, folder)
        if sample is None:
            return ModelFacts(network.input, network.names, network.batch, _unmeasured(kinds[0]))
        prepared = Prepared(name.load, folder, network.batch, network)
        choice = _compare(kinds, prepared, threads, _pixels(network, sample.result()))
    return ModelFacts(network.input, network.names, network.batch, choice)


def _names_for(model: Any) -> tuple[str, ...] | None:
    """ImageNet's names for a file of 1000 classes without names of its own: torchvision's, which imports torch once."""
    return imagenet_names() if model.output(0).partial_shape[-1].get_length() == 1000 else None


def _unmeasured(kind: EngineKind) -> Choice:
    why = "no pictures were given to compare engines and precisions on"
    return Choice(engine=kind.name, engine_why=why, video_precision_why=why)


def _compare(kinds: Sequence[EngineKind], prepared: Prepared, threads: int, pixels: npt.NDArray[np.uint8]) -> Choice:
    """The choice of `auto`: the fastest kind in fp32, and whether a faster precision passes the gate."""
    batch = prepared.batch or BATCH
    choice = Choice()
    took_ms: dict[str, float] = {}
    for kind in kinds:
        exact_engine = kind.engine(prepared, Place("cpu", "fp32", threads))
        took_ms[kind.name], exact = _measured(exact_engine, pixels if kind.faster else pixels[:batch], batch)
        if kind.side_by_side:
            precisions = [p for p in ("fp32", kind.faster) if p and kind.missing(p) is None]
            single_ms = {p: _single_ms(kind, prepared, p, pixels) for p in precisions}
            choice = replace(choice, single_ms=single_ms)
        if kind.faster:
            precision, reason = _compare_faster(kind, prepared, threads, pixels, took_ms[kind.name], exact)
            choice = replace(choice, video_precision=precision, video_precision_why=reason)
    order = sorted(took_ms, key=lambda name: took_ms[name])
    others = ", ".join(f"{name} {took_ms[name]:.1f} ms" for name in order[1:])
    why = f"{took_ms[order[0]]:.1f} ms a frame measured" + (f", {others}" if others else "")
    return replace(choice, engine=order[0], engine_why=why)


def _compare_faster(
    kind: EngineKind,
    prepared: Prepared,
    threads: int,
    pixels: npt.NDArray[np.uint8],
    exact_ms: float,
    exact: npt.NDArray[np.float32],
) -> tuple[str, str]:
    """The precision for video, and the reason in words."""
    faster = kind.faster or "fp32"
    missing = kind.missing(faster)
    if missing is not None:
        return "fp32", missing
    made = kind.engine(prepared, Place("cpu", faster, threads))
    faster_ms, rounded = _measured(made, pixels, prepared.batch or BATCH)
    like: ClassAgreement = agreement(exact, rounded)
    figures = f"{faster_ms:.1f} ms a frame in {faster}, {exact_ms:.1f} in fp32; on the sample {faster} {like}"
    taken = faster if faster_ms < exact_ms and like.passed else "fp32"
    return taken, figures


def _single_ms(kind: EngineKind, prepared: Prepared, precision: str, pixels: npt.NDArray[np.uint8]) -> float:
    """CPU milliseconds of a frame on one thread: it decides how many batches may run side by side (see `builder.places`)."""
    made, b = kind.engine(prepared, Place("cpu", precision, 1)), prepared.batch or 1
    (slot,) = made.open(b, 1)
    slot.input[:b] = pixels[:b]
    spent_s = []
    for _ in range(4):
        began = time.process_time()
        made.start(slot, b)
        made.wait(slot, b)
        spent_s.append(time.process_time() - began)
    made.close()
    return 1e3 * min(spent_s) / b


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


def _pixels(network: LoadedModel, pictures: Sequence[Picture]) -> npt.NDArray[np.uint8]:
    """Pictures as the model sees them."""
    preprocess = RgbPreprocess(network.input, "crop")
    pixels = np.zeros((len(pictures), *preprocess.shape), np.uint8)
    for picture, row in zip(pictures, pixels, strict=True):
        preprocess(picture, WHOLE_FRAME[0], row)
    return pixels
