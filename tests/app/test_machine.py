"""Memory and cores of this machine, and the memory of a GPU as its driver gives it."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from app.machine.machine import Usage
from app.machine.memory import gpu_memory_share, memory_limit_mb
from pipelines.process import resident_mb


def test_memory_is_in_mib() -> None:
    assert 1 < resident_mb() < memory_limit_mb() <= psutil.virtual_memory().total / 2**20


def test_resident_memory_of_another_process() -> None:
    assert resident_mb(os.getpid()) == pytest.approx(resident_mb(), abs=5)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert resident_mb(child.pid) > 0
        child.communicate(b"\n")
    assert resident_mb(child.pid) == 0.0


def test_own_use_of_the_cores_is_not_that_of_others() -> None:
    usage = Usage()
    assert sum(range(1_000_000)) > 0
    used = usage.since()
    assert used.here > 0
    assert used.elsewhere >= 0


@pytest.mark.parametrize("device", ["cpu", "cuda:x", "cuda:0"])
def test_a_machine_without_a_gpu_tells_no_share(
    device: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    assert gpu_memory_share(device, {}) is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("visible", "device", "index"), [("", "cuda", 0), ("", "cuda:1", 1), ("3, 2", "cuda:1", 2)])
def test_the_device_is_one_of_the_visible_ones(visible: str, device: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", asked.append)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(total=200, free=150, used=50))
    assert gpu_memory_share(device, {"CUDA_VISIBLE_DEVICES": visible}) == 0.25
    assert asked == [index]
