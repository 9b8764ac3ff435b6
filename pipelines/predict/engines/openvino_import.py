"""OpenVINO without its telemetry: nothing is reported over the network."""

from __future__ import annotations

import sys
from typing import Any


def import_openvino() -> Any:
    """The module `openvino`. Its converter reports its use through the package openvino_telemetry, and falls back to a stub
    if that package is missing: it is hidden from it."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino
