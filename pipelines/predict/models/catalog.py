"""The names that `--model` takes. Each gives the origin of a network and the input that it was trained on.

torch and timm are imported only when a network is loaded. A model with a converted form in the store is not loaded.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from pipelines.errors import UsageError
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models import loaders
from pipelines.predict.models.names import DEFAULT

ModelKind = Literal["lite0", "torchvision", "timm", "onnx", "pt2", "pt"]
SUFFIXES: dict[str, ModelKind] = {".onnx": "onnx", ".pt2": "pt2", ".pt": "pt"}


@dataclass(frozen=True, slots=True)
class ModelName:
    """The model of a name. `identity`, the key of the store, changes if the weights or the library that reads them change."""

    text: str
    kind: ModelKind
    identity: str
    path: Path | None = None
    load: Callable[[], LoadedModel] = field(compare=False, default=lambda: _refuse_onnx())


def _refuse_onnx() -> LoadedModel:
    raise UsageError("an .onnx model is read by OpenVINO only; leave out `engine` torch, or export the network to .pt2")


def find(name: str) -> ModelName:
    """The model of a name. Nothing is loaded; a file is read for its digest.

    :raises UsageError: if there is no such file, or the default model's package is missing. Other names are checked when the
        network is loaded.
    """
    suffix = Path(name).suffix.lower()
    if suffix in SUFFIXES:
        return _file(Path(name), SUFFIXES[suffix])
    if name == DEFAULT:
        return ModelName(
            name, "lite0", f"lite0 {_digest(loaders.lite0_weights())} timm {_version('timm')}", load=loaders.load_lite0
        )
    if name.startswith("timm:"):
        known = name.removeprefix("timm:")
        identity = f"{name} {_version('timm')}"
        return ModelName(name, "timm", identity, load=partial(loaders.load_timm, known))
    identity = f"torchvision:{name} {_version('torchvision')}"
    return ModelName(name, "torchvision", identity, load=partial(loaders.load_torchvision, name))


def load(name: str) -> LoadedModel:
    """Load the network that `name` means. Unlike `ModelName.load` it can be sent to another process.

    :raises UsageError: if there is no such model, or it cannot be loaded.
    """
    return find(name).load()


def _file(path: Path, kind: ModelKind) -> ModelName:
    if not path.is_file():
        raise UsageError(f"no model file {str(path)!r}; give the path of an existing {path.suffix} file")
    if not path.stat().st_size:
        raise UsageError(f"the model file {str(path)!r} is empty; copy or export it again, whole")
    load: dict[ModelKind, Callable[[], LoadedModel]] = {
        "pt2": partial(loaders.load_pt2, path),
        "pt": partial(loaders.load_pt, path),
    }
    identity = f"{kind} {_digest(path)} torch {_version('torch')}"
    return ModelName(str(path), kind, identity, path, load.get(kind, _refuse_onnx))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
