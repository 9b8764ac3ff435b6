"""JSON lines: one object for each captured frame, in frame order within a stream."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from pipelines.clock import utc, wall_s
from pipelines.errors import SinkError, reason
from pipelines.frame import Result
from pipelines.media.local_files import Claim, identity, lost
from pipelines.redact import redact
from pipelines.tasks.task import AsDict, answers_as_dict

FLUSH_S = 0.5
"""Lines reach the file at least so often while frames come; each line at once would be a system call for each frame."""


class Text(Protocol):
    """What is needed of a text stream."""

    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...


class JsonLines:
    """Writes to a file, or to an open text stream, which is then flushed after every line and left open.

    Closed or broken it stays so: what is written then changes nothing. Lanes may still live when the log is closed (the
    last resort), and to open the file again would empty it. A file that breaks ends with its last whole line.
    """

    def __init__(self, target: Path | Text, as_dict: AsDict) -> None:
        """as_dict: the JSON form of an answer, of the model's task."""
        self.written = 0
        self._target = target
        self._as_dict = as_dict
        self._file: Text | None = None
        self._claim: Claim | None = None
        self._lock = threading.Lock()
        self._flushed_s = 0.0
        self._broken = self._closed = False

    def write(self, result: Result) -> None:
        if self._broken or self._closed:
            return
        line = as_json(result, self._as_dict)
        with self._lock:
            if self._broken or self._closed:
                return
            try:
                file = self._opened()
                _write(file, line)
                now = time.monotonic()
                if not isinstance(self._target, Path) or now - self._flushed_s > FLUSH_S:
                    file.flush()
                    self._flushed_s = now
                self.written += 1
            except OSError as error:
                self._broken = True
                self._cut()
                raise self._explained(error) from error

    def _opened(self) -> Text:
        if self._file is None:
            if isinstance(self._target, Path):
                self._claim = Claim(self._target)
                self._file = self._target.open("w", encoding="utf-8")
            else:
                self._file = self._target
        return self._file

    def _explained(self, error: OSError) -> SinkError:
        name = str(self._target) if isinstance(self._target, Path) else "standard output"
        return SinkError(f"cannot write JSON lines to {name}: {reason(error)}")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            try:
                if self._file is not None and not self._broken:
                    self._finish(self._file)
            finally:
                if self._claim is not None:
                    self._claim.close()

    def _finish(self, file: Text) -> None:
        try:
            file.flush()
        except OSError as error:
            self._broken = True
            self._cut()
            raise self._explained(error) from error
        self._file = None
        if isinstance(self._target, Path) and isinstance(file, io.TextIOBase):
            became = lost(self._target, identity(file.fileno()))
            try:
                file.close()
            except OSError as error:  # some network file systems say only now that they are full
                raise self._explained(error) from error
            if became is not None:
                self.written = 0
                raise SinkError(f"{self._target} was {became} while it was written")

    def _cut(self) -> None:
        """Close a broken file and take the half line off that the failing write left. Takes no room: works on a full disk."""
        file, self._file = self._file, None
        if not isinstance(self._target, Path) or not isinstance(file, io.TextIOBase):
            return
        written = identity(file.fileno())
        with suppress(OSError):
            file.close()  # tries once more to write what it holds
        if written is None or lost(self._target, written):
            return
        with suppress(OSError), self._target.open("r+b") as data:
            data.truncate(_whole_lines(data))


def _whole_lines(data: BinaryIO) -> int:
    """Bytes up to the end of the last whole line."""
    end = data.seek(0, os.SEEK_END)
    while end:
        start = max(end - 65536, 0)
        data.seek(start)
        found = data.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _write(file: Text, line: dict[str, Any]) -> None:
    separators = (",", ":")
    try:
        file.write(json.dumps(line, ensure_ascii=False, separators=separators) + "\n")
    except UnicodeEncodeError:
        # A terminal that knows only ASCII, or a file's name that is no text (lone surrogates): with JSON's own escapes.
        file.write(json.dumps(line, separators=separators) + "\n")


def as_json(result: Result, as_dict: AsDict) -> dict[str, Any]:
    """One line as design and README describe it. No value is NaN or infinite."""
    frame, trace = result.frame, result.frame.trace
    line: dict[str, Any] = {
        "stream": frame.stream,
        "session": frame.session,
        "frame": frame.index,
        "pts_s": None if frame.pts_s is None else round(frame.pts_s, 6),
        "time": utc(wall_s(trace.arrived_s)),
        "arrived_s": round(trace.arrived_s, 6),
        "shown_s": None if trace.shown_s is None or result.status != "ok" else round(trace.shown_s, 6),
        "status": result.status,
    }
    if frame.info.file is not None:
        line["file"] = frame.info.file
    if frame.captured_s is not None:
        line["captured_at"] = utc(frame.captured_s)
    if result.status == "dropped":
        return line | {"cause": result.cause}
    if result.status == "failed":
        return line | {"error": redact(f"{type(result.error).__name__}: {result.error}")}
    assert result.prediction is not None
    return line | {
        **answers_as_dict(result.prediction, as_dict),
        "batch": {"id": result.prediction.batch_id, "size": result.prediction.batch_size},
        "latency_ms": {stage: round(1e3 * s, 3) for stage, s in trace.stages().items()},
    }
