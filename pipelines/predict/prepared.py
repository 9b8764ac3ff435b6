"""A model that engines can be made of, and the place where one runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.predict.loaded_model import LoadedModel


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model, ready for an engine.

    load: loads the network, and can be sent to another process; folder: the files that the kinds of engine wrote for the
    model, None if there are none; batch: the only batch size that it takes, None: any; loaded: the network, if it is in memory.
    """

    load: Callable[[], LoadedModel]
    folder: Path | None = None
    batch: int | None = None
    loaded: LoadedModel | None = None


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where and how an engine runs. device: "cpu" or "cuda:N"; threads: on the CPU; parallel: batches side by side; apart: it
    is opened in another process, so that it must be small until then."""

    device: str
    precision: str
    threads: int
    parallel: int = 1
    apart: bool = False
