"""Facts about this machine: for reports, `doctor` and `bench`."""

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
    """CPU, usable cores, GPU and versions. Imports no heavy library."""
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "gpu": gpu_name(),
        "python": platform.python_version(),
        "versions": {name: v for name in PACKAGES if (v := version(name))},
    }


def version(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpu_name() -> str | None:
    """The name of the first NVIDIA GPU, from its driver; None without one."""
    for info in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in info.read_text().splitlines():
            if line.startswith("Model:"):
                return line.split(":", 1)[1].strip()
    return None


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds per second, on the cores that this process may use. here: of this process; elsewhere: of all others."""

    here: float
    elsewhere: float


class Usage:
    """Measures the use of the cores from its construction on."""

    def __init__(self) -> None:
        self._began = time.monotonic(), time.process_time(), _busy_s()

    def since(self) -> Used:
        """The use since the construction. If the kernel gives no times, `elsewhere` is 0."""
        began_s, here_s, all_s = self._began
        seconds = max(time.monotonic() - began_s, 1e-9)
        here_s = time.process_time() - here_s
        return Used(here_s / seconds, max(_busy_s() - all_s - here_s, 0.0) / seconds)


def _busy_s() -> float:
    """CPU seconds of all processes on the cores of this one, since the machine started; 0 if the kernel does not give them.

    Not by psutil: it lists the cores without their numbers, so that the numbers do not fit if some cores are offline.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        own = {f"cpu{k}" for k in os.sched_getaffinity(0)}
        fields = [line.split() for line in lines if line.split(" ", 1)[0] in own]
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = sum(int(f[k]) for f in fields for k in (1, 2, 3, 6, 7, 8))
    except (OSError, AttributeError, IndexError, ValueError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")
