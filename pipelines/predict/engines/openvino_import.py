"""OpenVINO without its telemetry: nothing phones home."""

from __future__ import annotations

import sys
from typing import Any


def import_openvino() -> Any:
    """The module `openvino`, whose converter reports its use over the network unless it finds no way to.

    It falls back to a stub of its own where the package openvino_telemetry is missing, so to it the package is missing.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino
