"""The kinds of engine: models, devices and precisions of each, and how it is made. A new engine is one file and one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.errors import UsageError
from pipelines.predict.engines.engine import Engine
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.openvino_import import import_openvino
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models.catalog import ModelName
from pipelines.predict.models.lazy_torch import NamedTorchEngine

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that engines can be made of. folder: the files that `EngineKind.prepare` wrote, None if it wrote none; batch: the
    only batch size that the model takes, None: any; loaded: the network, if it is in memory already."""

    name: ModelName
    folder: Path | None = None
    batch: int | None = None
    loaded: LoadedModel | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how an engine runs. device: "cpu" or "cuda:N"; threads: on the CPU; parallel: batches side by side; apart: it
    is opened in another process, so that it must be small until then."""

    device: str
    precision: str
    threads: int
    parallel: int = 1
    apart: bool = False


def _always(name: ModelName) -> bool:
    return True


def _no_files(model: LoadedModel, folder: Path) -> None:
    """Nothing is written: the engine loads the network itself."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One kind of engine. `auto` prepares and measures every kind that runs the model on the device."""

    name: str
    devices: tuple[Device, ...]
    precisions: tuple[str, ...]
    engine: Callable[[Prepared, Place], Engine]
    """Makes an engine that is not opened yet."""
    prepare: Callable[[LoadedModel, Path], None] = _no_files
    """Writes the files that its engines read into the model's folder of the store.

    :raises UsageError: if it cannot run this network.
    """
    reads: Callable[[ModelName], bool] = _always
    """Whether it runs this kind of model at all."""
    side_by_side: bool = False
    """Whether several batches run at once, each on its share of the threads."""
    faster: str | None = None
    """A precision that `auto` tries beside fp32 for video, behind the accuracy gate."""
    missing: Callable[[str], str | None] = lambda precision: None
    """Why this machine cannot run a precision; None if it can."""

    def runs_on(self, device: str) -> bool:
        """Whether it runs on "cpu" or "cuda:N"."""
        return device.partition(":")[0] in self.devices


# OpenVINO.


def _openvino(prepared: Prepared, place: Place) -> Engine:
    assert prepared.folder is not None
    model, compiled = prepared.folder / "model.xml", prepared.folder / "compiled"
    return OpenVinoEngine(model, place.precision, place.threads, compiled, prepared.batch, place.parallel)


def _convert_for_openvino(model: LoadedModel, folder: Path) -> None:
    from pipelines.predict.models import convert

    convert.save(convert.from_network(model), folder / "model.xml")


def _missing_in_openvino(precision: str) -> str | None:
    if precision == "bf16" and not has_bf16():
        return "this CPU has no bf16 arithmetic"
    return None


def has_bf16() -> bool:
    """Whether the CPU computes in bf16."""
    capabilities: list[str] = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "BF16" in capabilities


# torch.


def _torch(prepared: Prepared, place: Place) -> Engine:
    if place.apart:
        return NamedTorchEngine(prepared.name.text, place.device, place.precision, place.threads, prepared.batch)
    from pipelines.predict.engines import torch

    loaded = prepared.loaded or prepared.name.load()
    there: Any = torch.HostDevice() if place.device == "cpu" else torch.CudaDevice(place.device)
    return torch.TorchEngine(loaded, device=there, precision=place.precision, threads=place.threads)


KINDS: dict[str, EngineKind] = {
    kind.name: kind
    for kind in (
        EngineKind(
            "openvino",
            ("cpu",),
            ("fp32", "bf16", "int8"),
            _openvino,
            _convert_for_openvino,
            side_by_side=True,
            faster="bf16",
            missing=_missing_in_openvino,
        ),
        EngineKind("torch", ("cpu", "cuda"), ("fp32", "bf16"), _torch, reads=lambda name: name.kind != "onnx"),
    )
}
"""All kinds, by the name that `--engine` takes. `auto` prefers the first of two that are equally fast."""


def kind_of(name: str) -> EngineKind:
    """:raises UsageError: if there is no such kind."""
    if name not in KINDS:
        raise UsageError(f"no engine named {name!r}; allowed: auto, {', '.join(KINDS)}")
    return KINDS[name]
