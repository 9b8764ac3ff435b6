"""What the program runs on: for reports, `doctor` and `bench`."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.choose import cpu_name
from app.cores import cores

PACKAGES = ("watchline", "av", "numpy", "opencv-python", "openvino", "torch", "torchvision", "timm")


def machine() -> dict[str, Any]:
    """CPU, cores that may be used, GPU and versions. Imports nothing heavy."""
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "gpu": gpu_name(),
        "python": platform.python_version(),
        "versions": {name: v for name in PACKAGES if (v := version(name))},
    }


def version(package: str) -> str | None:
    """The installed version, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpu_name() -> str | None:
    """The first NVIDIA GPU, as its driver names it; None without one."""
    for info in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in info.read_text().splitlines():
            if line.startswith("Model:"):
                return line.split(":", 1)[1].strip()
    return None


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


def resident_mb() -> float:
    """Memory of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    import resource

    return pages * resource.getpagesize() / 2**20


def memory_limit_mb() -> float:
    """Memory that this process may use: the machine's, or its control group's where that is less."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()) / 2**20)
    with contextlib.suppress(OSError, ValueError):
        line = next(k for k in Path("/proc/meminfo").read_text().splitlines() if k.startswith("MemTotal:"))
        found.append(int(line.split()[1]) / 1024)
    return min(found, default=math.inf)
