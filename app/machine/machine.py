"""What the program runs on: for reports, `doctor` and `bench`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.cores import cores, cpu_name

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


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds a second: of this process, and of all others on the cores that it may use."""

    here: float
    elsewhere: float


class Usage:
    """Who uses the cores, from now on."""

    def __init__(self) -> None:
        self._began = time.monotonic(), time.process_time(), _busy_s()

    def since(self) -> Used:
        """Since it was made. Where the kernel does not say, nobody else counts."""
        began_s, here_s, all_s = self._began
        seconds = max(time.monotonic() - began_s, 1e-9)
        here_s = time.process_time() - here_s
        return Used(here_s / seconds, max(_busy_s() - all_s - here_s, 0.0) / seconds)


def _busy_s() -> float:
    """CPU seconds that the cores of this process have worked since the machine started, for whomever."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        mine = {f"cpu{k}" for k in os.sched_getaffinity(0)}
        fields = [line.split() for line in lines if line.split(" ", 1)[0] in mine]
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = sum(int(f[k]) for f in fields for k in (1, 2, 3, 6, 7, 8))
    except (OSError, AttributeError, IndexError, ValueError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")
