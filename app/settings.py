"""Settings put together: defaults, then the YAML file, then the flags, and the rules about several options."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.config import Settings
from app.config_file import read
from app.options import check, check_value, declared
from pipelines.errors import UsageError
from pipelines.predict.models.kinds import KINDS
from pipelines.predict.models.names import PROBE

log = logging.getLogger("watchline.config")


def settings(
    flags: Mapping[str, Any], config: str | None, environ: Mapping[str, str] = os.environ, *, sourceless: bool = False
) -> Settings:
    """Put the settings together. flags: the given ones. sourceless: for a command without sources.

    :raises UsageError: if the file or a value is wrong; with the given and the allowed values.
    """
    check_value(declared(Settings)["config"], config)
    values = read(Path(config), environ) if config is not None else {}
    if flags.get("sources"):
        left_out = values.pop("streams", None) or values.get("sources")
        if left_out:
            log.info("%d sources of %r are left out: those of the command line replace them", len(left_out), config)
    values.update(flags)
    result = Settings(**values, config=config)
    check(result)
    _check_together(result)
    if not sourceless and not result.sources and not result.streams:
        raise UsageError("no source was given; name a file, folder, camera address or device, or a --config with streams")
    return result


def _check_together(s: Settings) -> None:
    """The rules about several options."""
    if s.model != PROBE and (s.probe_ms_per_batch or s.probe_ms_per_frame):
        raise UsageError(f"--probe-ms-per-batch and --probe-ms-per-frame are for --model probe only, not for {s.model!r}")
    if s.verbose and s.quiet:
        raise UsageError("--verbose and --quiet exclude each other; leave one out")
    if s.precision == "int8":
        _check_int8(s)


def _check_int8(s: Settings) -> None:
    if s.model == PROBE:
        raise UsageError("--precision int8 is for networks; --model probe computes nothing that could be rounded")
    kind = KINDS.get(s.engine)
    other = kind is not None and "int8" not in kind.precisions
    if other or s.device.startswith("cuda"):
        given = f"--engine {s.engine}" if other else f"--device {s.device}"
        raise UsageError(f"--precision int8 runs in OpenVINO on the CPU; leave out {given}, or take bf16 or fp32")
