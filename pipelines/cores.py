"""The cores that this process may use, by its CPU affinity and by its container's quota; and the name of the CPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

GROUPS = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")
Limit = Callable[[Path], float | None]


def cores() -> int:
    """Number of whole cores that this process may use, at least one. (`os.cpu_count()` counts those of the machine.)"""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = quota()
    return max(1, count if limit is None else min(count, int(limit)))


def share(workers: int) -> int:
    """Threads for each of `workers` workers: all cores divided by the workers, but at least one each."""
    return max(1, cores() // workers)


def quota(groups: Path = GROUPS, mount: Path = MOUNT) -> float | None:
    """The CPU quota of this process's control groups, in cores, the least of all levels; None if there is no limit."""
    return min(granted("cpu", _of_v2, _of_v1, groups, mount), default=None)


def granted(controller: str, of_v2: Limit, of_v1: Limit, groups: Path = GROUPS, mount: Path = MOUNT) -> list[float]:
    """The limits that a controller sets for this process, one for each level of its control groups that has a limit.

    controller: its name in cgroup v1, such as "cpu" or "memory". of_v2, of_v1: read the limit from the folder of a group of
    that cgroup version; they return None if it has no limit. groups: the process's groups; mount: the cgroup file system.
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    limits: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            limits += _levels(mount, path, of_v2)
        elif controller in controllers.split(","):
            limits += [q for name in (controller, controllers) for q in _levels(mount / name, path, of_v1)]
    return limits


def _levels(root: Path, path: str, read: Limit) -> list[float]:
    """The limits of a group and of its parents. Inside a container only its own group may be visible, as the root."""
    folder = root / path.lstrip("/")
    folders = [folder, *(p for p in folder.parents if p.is_relative_to(root))]
    return [limit for f in folders if (limit := read(f)) is not None]


def _of_v2(folder: Path) -> float | None:
    """CPU quota in cores of a cgroup v2 folder; None if it has none."""
    try:
        quota_us, period_us = (folder / "cpu.max").read_text().split()
        return int(quota_us) / int(period_us)
    except (OSError, ValueError):
        return None  # the file is missing, or says "max"


def _of_v1(folder: Path) -> float | None:
    """CPU quota in cores of a cgroup v1 folder; None if it has none."""
    try:
        quota_us, period_us = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    except (OSError, ValueError):
        return None
    return quota_us / period_us if quota_us > 0 else None


def cpu_name() -> str:
    """The processor's model name in /proc/cpuinfo; the machine type, such as "aarch64", if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
