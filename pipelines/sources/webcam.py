"""Cameras of this machine, read through Video4Linux."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from pathlib import Path

from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.media.packets import demuxed
from pipelines.sources.decode import decoded, stream_info
from pipelines.sources.media_time import Timeline
from pipelines.sources.opening import Timeouts, opened
from pipelines.watch import Watch


class WebcamSource:
    """One session with a camera /dev/videoN. `frames` raises SourceError if the camera disappears."""

    live = True

    def __init__(self, device: Path, *, limits: Timeouts | None = None) -> None:
        self._device = device
        self._limits = limits or Timeouts()

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        check_device(self._device)
        options = {"fflags": "nobuffer"}
        with opened(str(self._device), stop=stop, limits=self._limits, options=options, format="v4l2") as (
            container,
            stream,
        ):
            info = stream_info(stream)
            yield from decoded(
                demuxed(container),
                stream,
                stop=stop,
                watch=watch,
                info=info,
                timeline=Timeline(info, leaps=False),
                silence_s=self._limits.read_s,
            )
        if not stop.is_set():
            raise SourceError(f"{self._device}: the camera was disconnected")


def check_device(device: Path) -> None:
    """Check that a device can be read.

    :raises SourceError: if it does not exist (permanent), or this user may not read it (permanent).
    """
    if not device.exists():
        there = sorted(str(p) for p in Path("/dev").glob("video*"))
        raise SourceError(f"no camera at {device}; there is: {', '.join(there) or 'none'}", permanent=True)
    if not os.access(device, os.R_OK):
        raise SourceError(f"{device} may not be read by this user; add the user to the group video", permanent=True)
