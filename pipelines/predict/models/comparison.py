"""A model's first use: its files are written for every kind of engine, and the kinds are compared on pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.cores import cores
from pipelines.frame import WHOLE_FRAME, Picture
from pipelines.predict.engines import openvino_convert as conversion
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models import autoselect, catalog
from pipelines.predict.models.kinds import EngineKind
from pipelines.predict.models.labels import imagenet_names
from pipelines.predict.models.store import Choice, ModelFacts
from pipelines.predict.prepared import EnginePlace, Prepared
from pipelines.predict.preprocess import InputArray, RgbPreprocess
from pipelines.tasks.task import Rows, Task

BATCH = 8
"""The batch size at which engines are compared: that of files, large enough to spread the cost of a batch over its frames."""
Pictures = Callable[[], Sequence[Picture]]
"""Gives the pictures on which engines and precisions are compared. It is called in a thread of its own."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a comparison of engines. task: judges whether a faster precision is as good as fp32; pictures: None if
    there are none. Then no precision can be judged, and `auto` takes the first kind in fp32."""

    task: Task
    device: str = "cpu"
    threads: int = field(default_factory=cores)
    pictures: Pictures | None = None


def convert(name: catalog.ModelName, folder: Path, conditions: Conditions) -> ModelFacts:
    """Prepare the model for every kind of engine that runs it on the device, and measure which one `auto` takes.

    folder: where the files are written.

    :raises UsageError: if a kind cannot run the network.
    """
    if name.kind == "onnx":
        model, spec, batch = conversion.from_onnx(Path(name.text))
        conversion.save(model, folder / "model.xml")
        return ModelFacts(spec, _names_for(model), batch, Choice())
    tried = autoselect.kinds("auto", conditions.device, name.kind)
    with ThreadPoolExecutor(1, "sample") as decoder:
        # While torch and timm are imported, which takes seconds.
        sample = decoder.submit(conditions.pictures) if conditions.pictures is not None else None
        network = name.load()
        for kind in tried:
            kind.prepare(network, folder)
        if sample is None:
            return ModelFacts(network.input, network.names, network.batch, _unmeasured(tried[0]))
        prepared = Prepared(name.load, folder, network.batch, network)
        choice = _Comparison(prepared, conditions, _pixels(network, sample.result())).choice(tried)
    return ModelFacts(network.input, network.names, network.batch, choice)


def _names_for(model: Any) -> tuple[str, ...] | None:
    """ImageNet's names for a file of 1000 classes without names of its own: torchvision's, which imports torch once."""
    return imagenet_names() if model.output(0).partial_shape[-1].get_length() == 1000 else None


def _unmeasured(kind: EngineKind) -> Choice:
    why = "no pictures were given to compare engines and precisions on"
    return Choice(engine=kind.name, engine_why=why, video_precision_why=why)


class _Comparison:
    """A comparison of the kinds of engine on one device, on the same pixels. Thread: that which converts the model."""

    def __init__(self, prepared: Prepared, conditions: Conditions, pixels: InputArray) -> None:
        self._prepared = prepared
        self._conditions = conditions
        self._pixels = pixels
        self._batch = prepared.batch or BATCH

    def choice(self, kinds: Sequence[EngineKind]) -> Choice:
        """The choice of `auto`: the fastest kind in fp32, and whether its faster precision passes the gate of the task."""
        choice = Choice()
        took_ms: dict[str, float] = {}
        for kind in kinds:
            pixels = self._pixels if kind.faster else self._pixels[: self._batch]
            took_ms[kind.name], exact = self._measured(kind, "fp32", pixels)
            if kind.side_by_side:
                precisions = [p for p in ("fp32", kind.faster) if p and kind.missing(p) is None]
                choice = replace(choice, single_ms={p: self._single_ms(kind, p) for p in precisions})
            if kind.faster:
                precision, reason = self._compare_faster(kind, kind.faster, took_ms[kind.name], exact)
                choice = replace(choice, video_precision=precision, video_precision_why=reason)
        order = sorted(took_ms, key=lambda name: took_ms[name])
        others = ", ".join(f"{name} {took_ms[name]:.1f} ms" for name in order[1:])
        why = f"{took_ms[order[0]]:.1f} ms a frame measured" + (f", {others}" if others else "")
        return replace(choice, engine=order[0], engine_why=why)

    def _compare_faster(self, kind: EngineKind, faster: str, exact_ms: float, exact: Rows) -> tuple[str, str]:
        """The precision for video, and the reason in words. exact: the rows of all pixels in fp32."""
        missing = kind.missing(faster)
        if missing is not None:
            return "fp32", missing
        faster_ms, rounded = self._measured(kind, faster, self._pixels)
        like = self._conditions.task.agreement(exact, rounded)
        figures = f"{faster_ms:.1f} ms a frame in {faster}, {exact_ms:.1f} in fp32; on the sample {faster} {like}"
        return faster if faster_ms < exact_ms and like.passed else "fp32", figures

    def _single_ms(self, kind: EngineKind, precision: str) -> float:
        """CPU milliseconds of a frame on one thread: it decides how many batches run side by side (`builder.places`)."""
        made, b = kind.engine(self._prepared, EnginePlace("cpu", precision, 1)), self._prepared.batch or 1
        (slot,) = made.open(b, 1)
        slot.input[:b] = self._pixels[:b]
        spent_s = []
        for _ in range(4):
            began = time.process_time()
            made.start(slot, b)
            made.wait(slot, b)
            spent_s.append(time.process_time() - began)
        made.close()
        return 1e3 * min(spent_s) / b

    def _measured(self, kind: EngineKind, precision: str, pixels: InputArray) -> tuple[float, Rows]:
        """Milliseconds a frame in a warm batch, the best of two, and the rows of all pixels."""
        engine = kind.engine(self._prepared, EnginePlace(self._conditions.device, precision, self._conditions.threads))
        batch = self._batch
        (slot,) = engine.open(batch, 1)
        rows, best_s = [], float("inf")
        for start in range(0, len(pixels), batch):
            part = pixels[start : start + batch]
            slot.input[: len(part)] = part
            engine.start(slot, batch)
            rows.append([output[: len(part)].copy() for output in engine.wait(slot, batch)])
        for _ in range(2):
            began = time.perf_counter()
            engine.start(slot, batch)
            engine.wait(slot, batch)
            best_s = min(best_s, time.perf_counter() - began)
        engine.close()
        return 1e3 * best_s / batch, tuple(np.concatenate(output) for output in zip(*rows, strict=True))


def _pixels(network: LoadedModel, pictures: Sequence[Picture]) -> InputArray:
    """Pictures as the model sees them."""
    preprocess = RgbPreprocess(network.input, "crop")
    pixels = np.zeros((len(pictures), *preprocess.shape), np.uint8)
    for picture, row in zip(pictures, pixels, strict=True):
        preprocess(picture, WHOLE_FRAME[0], row)
    return pixels
