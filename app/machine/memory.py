"""The memory that this process may use, and the use of a GPU's memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from pipelines.cores import granted
from pipelines.predict.models.builder import Model
from pipelines.process import resident_mb


def memory_limit_mb() -> float:
    """MiB that this process may use: the memory of the machine, or the limit of its control group if that is less."""
    v2, v1 = (lambda folder, name=name: _bytes(folder / name) for name in ("memory.max", "memory.limit_in_bytes"))
    return min(psutil.virtual_memory().total, *granted("memory", v2, v1)) / 2**20


def _bytes(path: Path) -> float | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # not there, or "max"


def gpu_memory_share(device: str, environ: Mapping[str, str] = os.environ) -> float | None:
    """Share of the memory of `cuda:K` that all programs use, 0-1; None if the driver does not tell, or for another device.

    The driver answers through NVML: torch would occupy memory of the device for it.
    """
    kind, _, number = device.partition(":")
    visible = [k.strip() for k in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if k.strip()]
    index = visible[int(number or 0)] if visible and int(number or 0) < len(visible) else (number or "0")
    if kind != "cuda" or not index.isdigit():
        return None
    import pynvml  # at its first use: only a service on a GPU needs it

    try:
        pynvml.nvmlInit()
        memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(int(index)))
    except pynvml.NVMLError:
        return None
    return float(memory.used / memory.total) if memory.total else None


def memory_mb(model: Model) -> float:
    """MiB that a model uses on its GPUs; on the CPU: of this process and its workers."""
    return model.predictor.memory_mb() + (resident_mb() if model.engine.device == "cpu" else 0.0)
