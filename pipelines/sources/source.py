"""The interface of all sources: one function that runs until it ends or fails. Retry, pacing and looping are wrappers."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Protocol

from pipelines.frame import Capture
from pipelines.watch import Watch


class Source(Protocol):
    """Captures from one camera, file, or other origin."""

    live: bool
    """Whether frames age: True for a camera, and for a file that is paced like one."""

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        """Open the source, yield every picture in presentation order, and close the source.

        All work is done in the calling thread. The generator returns at the end of the data, and soon after `stop` is set. A
        caller that leaves it earlier must close it in the thread that ran it: container and decoder are freed there only.

        :raises SourceError: if the source cannot be opened, or breaks off.
        """
