"""How much memory there is, and how full a GPU's is."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Mapping
from pathlib import Path

from app.machine.machine import resident_mb
from pipelines.cores import granted
from pipelines.predict.models.builder import Model


def memory_limit_mb() -> float:
    """Memory that this process may use: the machine's, or its control group's where that is less."""
    v2, v1 = (lambda folder, name=name: _bytes(folder / name) for name in ("memory.max", "memory.limit_in_bytes"))
    found = [limit / 2**20 for limit in granted("memory", v2, v1)]
    with contextlib.suppress(OSError, ValueError):
        line = next(k for k in Path("/proc/meminfo").read_text().splitlines() if k.startswith("MemTotal:"))
        found.append(int(line.split()[1]) / 1024)
    return min(found, default=math.inf)


def _bytes(path: Path) -> float | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # not there, or "max"


def gpu_memory_share(device: str, environ: Mapping[str, str] = os.environ) -> float | None:
    """How full the memory of `cuda:K` is, 0-1, whoever fills it; None where nobody can say. Asked of the driver: torch would
    take memory there for it."""
    kind, _, number = device.partition(":")
    visible = [k.strip() for k in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if k.strip()]
    index = visible[int(number or 0)] if visible and int(number or 0) < len(visible) else (number or "0")
    if kind != "cuda" or not index.isdigit():
        return None
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(int(index), ctypes.byref(handle)):
        return None
    if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) or not memory[0]:
        return None
    return float(memory[2] / memory[0])


def memory_mb(model: Model) -> float:
    """Memory of a model's GPUs; without a GPU, of this process and its workers."""
    return model.predictor.memory_mb() + (resident_mb() if model.engine.device == "cpu" else 0.0)
