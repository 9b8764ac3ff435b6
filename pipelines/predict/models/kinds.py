"""The kinds of engine: models, devices and precisions of each. A new engine is one file and one line here.

The table imports nothing, so that `--help` can read it. The file of an engine has

    engine(prepared, place)     makes an engine that is not opened yet
    prepare(model, folder)      optional: writes the files that its engines read into the model's folder of the store
    missing(precision)          optional: why this machine cannot run a precision; None if it can
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import UsageError

if TYPE_CHECKING:
    from pipelines.predict.engines.engine import Engine
    from pipelines.predict.loaded_model import LoadedModel
    from pipelines.predict.prepared import EnginePlace, Prepared


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One kind of engine. `auto` prepares and measures every kind that runs the model on the device.

    devices: "cpu", "cuda". module: the engine's file. not_read: kinds of model file that it cannot run. side_by_side: several
    batches run at once, each on its share of the threads. faster: a precision that `auto` tries beside fp32 for video, behind
    the accuracy gate.
    """

    name: str
    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    module: str
    not_read: tuple[str, ...] = ()
    side_by_side: bool = False
    faster: str | None = None

    def runs_on(self, device: str) -> bool:
        """Whether it runs on "cpu" or "cuda:N"."""
        return device.partition(":")[0] in self.devices

    def engine(self, prepared: Prepared, place: EnginePlace) -> Engine:
        """An engine that is not opened yet."""
        made: Engine = self._file.engine(prepared, place)
        return made

    @property
    def reads_files(self) -> bool:
        """Whether its engines read files that `prepare` writes; else they run the network as it is loaded."""
        return hasattr(self._file, "prepare")

    def prepare(self, model: LoadedModel, folder: Path) -> None:
        """Write the files that its engines read into `folder`.

        :raises UsageError: if it cannot run this network.
        """
        if self.reads_files:
            self._file.prepare(model, folder)

    def missing(self, precision: str) -> str | None:
        """Why this machine cannot run a precision; None if it can."""
        why: str | None = self._file.missing(precision) if hasattr(self._file, "missing") else None
        return why

    @property
    def _file(self) -> Any:
        return import_module(self.module)


ENGINES = "pipelines.predict.engines"
KINDS: dict[str, EngineKind] = {
    kind.name: kind
    for kind in (
        EngineKind("openvino", ("cpu",), ("fp32", "bf16", "int8"), f"{ENGINES}.openvino", side_by_side=True, faster="bf16"),
        EngineKind("torch", ("cpu", "cuda"), ("fp32", "bf16"), f"{ENGINES}.lazy_torch", not_read=("onnx",)),
    )
}
"""All kinds, by the name that `--engine` takes. `auto` prefers the first of two that are equally fast."""


def precisions() -> tuple[str, ...]:
    """Every precision of any kind, once, in the order of the table."""
    return tuple(dict.fromkeys(p for kind in KINDS.values() for p in kind.precisions))


def kind_of(name: str) -> EngineKind:
    """:raises UsageError: if there is no such kind."""
    if name not in KINDS:
        raise UsageError(f"no engine named {name!r}; allowed: auto, {', '.join(KINDS)}")
    return KINDS[name]
