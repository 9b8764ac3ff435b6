"""LoadedModel: a network in memory, with the facts that engines and preprocessing need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.predict.preprocess import InputSpec


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model: a torch module in eval mode on the CPU that maps (b, 3, H, W) to (b, classes), and its facts.

    `batch`: the only batch size that the module takes; None: any. `program`: the exported program that the module is of,
    which cannot be traced by others: it knows no eval mode, and a trace of it keeps the batch size.
    """

    module: Any
    input: InputSpec
    names: tuple[str, ...] | None
    batch: int | None = None
    program: Any = None
