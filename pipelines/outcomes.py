"""The ends of a stream's frames: its ledger and its log, in frame order, whoever ends a frame and when."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pipelines.errors import SinkError
from pipelines.frame import Result
from pipelines.monitor import StreamLedger
from pipelines.sinks.sink import Log


class Ends:
    """The ends of one stream's frames, in frame order, whoever brings them about: lane or window.

    A frame has ended when its ledger entry and its log line are written. A log that fails is left out from then on, and
    `lost` is told.
    """

    def __init__(self, ledger: StreamLedger, log: Log | None, lost: Callable[[SinkError], None]) -> None:
        self._ledger = ledger
        self._log = log
        self._lost = lost
        self._open: deque[_End] = deque()
        self._changed = threading.Condition()

    def add(self, result: Result) -> _End:
        """A frame whose end will come: call what is returned."""
        end = _End(self, result)
        with self._changed:
            self._open.append(end)
        return end

    def flush(self) -> None:
        """Write what has ended, up to the first that has not."""
        error: SinkError | None = None
        with self._changed:
            while self._open and self._open[0].done:
                end = self._open.popleft()
                self._ledger.end(end.result, skipped_by_window=end.skipped)
                try:
                    if self._log is not None:
                        self._log.write(end.result)
                except SinkError as caught:
                    self._log, error = None, caught
            self._changed.notify_all()
        if error is not None:
            self._lost(error)

    def wait(self) -> None:
        """Until every frame that was added has ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)


class _End:
    """The open end of one frame."""

    def __init__(self, ends: Ends, result: Result) -> None:
        self.result = result
        self.done = False
        self.skipped = False
        self._ends = ends

    def __call__(self, *, drawn_s: float | None = None, skipped: bool = False) -> None:
        if drawn_s is not None:
            self.result.frame.trace.shown_s = drawn_s
        self.skipped = skipped
        self.done = True
        self._ends.flush()
