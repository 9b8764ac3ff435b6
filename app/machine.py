"""What the program runs on: for reports, `doctor` and `bench`."""

from __future__ import annotations

import importlib.metadata
import platform
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


def resident_mb() -> float:
    """Memory of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    import resource

    return pages * resource.getpagesize() / 2**20
