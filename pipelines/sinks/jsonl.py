"""JSON lines: one object for each captured frame, in frame order within a stream."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pipelines.clock import utc, wall_s
from pipelines.errors import SinkError, Stopped, reason
from pipelines.frame import Result
from pipelines.media.local_files import Claim, identity, lost
from pipelines.redact import redact
from pipelines.sinks.line_output import LineOutput, opened_for_lines
from pipelines.sinks.sink import Consumer, Policy
from pipelines.tasks.task import AsDict, answers_as_dict


class Text(Protocol):
    """A text stream, such as standard output. One without a descriptor (`fileno` raises OSError) is written as text."""

    @property
    def encoding(self) -> str: ...
    def fileno(self) -> int: ...
    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...


class JsonLines(Consumer):
    """A consumer that writes to a file, or to an open text stream, which it leaves open.

    Lines reach their output at once, so that a reader never waits for a buffer. After an error or the close nothing is written
    any more. Its thread opens the file at the first result: a run that ends before leaves an old file as it was.
    """

    name = "JSON lines"
    policy: ClassVar[Policy] = "block"

    def __init__(self, target: Path | Text, as_dict: AsDict) -> None:
        """as_dict: the JSON form of an answer, by the model's task."""
        self.written = 0
        """Results with a written line; 0 again if the file was removed or replaced meanwhile."""
        self._target = target
        self._as_dict = as_dict
        self._claim: Claim | None = None
        self._descriptor: int | None = None
        self._output: LineOutput | None = None
        self._ended = False
        self._stop = threading.Event()

    def take(self, results: Sequence[Result]) -> None:
        """Write a line for each result.

        :raises SinkError: if it cannot be written; a file then ends with its last whole line.
        """
        if self._ended:
            return
        try:
            self._write([as_json(result, self._as_dict) for result in results])
        except OSError as error:
            self._ended = True
            raise SinkError(f"cannot write JSON lines to {self._place}: {reason(error)}") from error
        except Stopped:
            self._ended = True
            raise SinkError(f"cannot write JSON lines to {self._place}: nobody reads it, and the run was stopped") from None
        self.written += len(results)

    @property
    def _place(self) -> str:
        return str(self._target) if isinstance(self._target, Path) else "standard output"

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self._output is None and not self._open():
            assert not isinstance(self._target, Path)
            self._target.write("".join(_encoded(line, self._target.encoding).decode(self._target.encoding) for line in lines))
            self._target.flush()
            return
        assert self._output is not None
        encoding = "utf-8" if isinstance(self._target, Path) else self._target.encoding
        self._output.write([_encoded(line, encoding) for line in lines])

    def _open(self) -> bool:
        """Open the output; False if it is a text stream without a descriptor."""
        if isinstance(self._target, Path):
            self._claim = Claim(self._target)
            self._descriptor = descriptor = opened_for_lines(self._target, self._stop)
        else:
            try:
                descriptor = self._target.fileno()
            except OSError:
                return False
        self._output = LineOutput(descriptor, self._stop)
        return True

    def interrupt(self) -> None:
        """Give up lines that nobody reads. Any thread."""
        self._stop.set()

    def close(self) -> None:
        """Close the file. Closing twice is fine.

        :raises SinkError: if the file was removed or replaced, or the file system reports an error only now.
        """
        self._ended = True
        descriptor, self._descriptor, self._output = self._descriptor, None, None
        try:
            if descriptor is not None and isinstance(self._target, Path):
                self._close_file(descriptor, self._target)
        finally:
            if self._claim is not None:
                self._claim.close()

    def _close_file(self, descriptor: int, path: Path) -> None:
        became = lost(path, identity(descriptor))
        try:
            os.close(descriptor)
        except OSError as error:  # some network file systems say only now that they are full
            raise SinkError(f"cannot write JSON lines to {path}: {reason(error)}") from error
        if became is not None and self.written:
            self.written = 0
            raise SinkError(f"{path} was {became} while it was written")


def _encoded(line: dict[str, Any], encoding: str) -> bytes:
    """One line with its end. JSON's own escapes stand for characters that the encoding lacks: a terminal may know only ASCII,
    and a file name may be no valid text (lone surrogates)."""
    separators = (",", ":")
    try:
        return (json.dumps(line, ensure_ascii=False, separators=separators) + "\n").encode(encoding)
    except UnicodeEncodeError:
        return (json.dumps(line, separators=separators) + "\n").encode(encoding)


def as_json(result: Result, as_dict: AsDict) -> dict[str, Any]:
    """The object of one frame, as docs/outputs.md describes it. No value is NaN or infinite."""
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
