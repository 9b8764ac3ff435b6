"""NNCF in a process of its own: it imports torch, cannot be interrupted, and writes to the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.errors import Stopped, UsageError
from pipelines.process import end_with_parent

POLL_S = 0.05


def quantise(model: Path, frames: npt.NDArray[np.uint8], batch: int | None, out: Path, keep_on: Callable[[], bool]) -> None:
    """Write the int8 form of `model` to `out` (.xml, .bin). `keep_on` is asked all the time: at False the process is killed.

    frames, batch: see `pipelines.predict.models.int8`.

    :raises Stopped: if it was to end.
    :raises UsageError: if NNCF or OpenVINO cannot do it.
    """
    with tempfile.TemporaryDirectory(dir=out.parent) as folder, tempfile.TemporaryFile() as said:
        pixels = Path(folder) / "frames.npy"
        np.save(pixels, frames)
        # -P: a folder `app` where the person happens to be is not ours.
        command = [sys.executable, "-P", "-m", "app.calibrate.quantise"]
        command += [str(part) for part in (os.getpid(), model, pixels, batch or 0, out)]
        # A group of its own: Ctrl-C is answered here, not by a traceback there.
        process = subprocess.Popen(command, env=_environ(), stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0)
        try:
            code = _waited(process, keep_on)
        finally:
            process.kill()
            process.wait()
        if code:
            said.seek(0)
            lines = said.read().decode(errors="replace").split("\n")
            why = next((line.strip() for line in reversed(lines) if line.strip()), f"it ended with {code}")
            raise UsageError(f"NNCF cannot make an int8 model of this one ({why}); use --precision bf16 or fp32")


def _waited(process: subprocess.Popen[bytes], keep_on: Callable[[], bool]) -> int:
    while True:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if not keep_on():
                raise Stopped from None


def _environ() -> dict[str, str]:
    """This process's, with the modules found where they are found here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}


def main(argv: Sequence[str]) -> int:
    """The process: its parent's id, the model, the frames, the batch, where to write."""
    parent, model, frames, batch, out = argv
    if not end_with_parent(int(parent)):
        return 1
    from pipelines.predict.engines import openvino_convert as convert
    from pipelines.predict.models import int8

    try:
        made = int8.quantised(Path(model), np.load(frames), int(batch) or None)
        convert.save(made, Path(out))
    except Exception as error:
        lines = str(error).strip().split("\n")
        print(lines[-1] or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
