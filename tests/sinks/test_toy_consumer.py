"""A consumer is one file: it counts the best labels of each stream and writes a table, from a session with two clips.

Nothing outside this file knows of it. It has a channel and a thread of its own like the JSON lines.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines.errors import SinkError, reason
from pipelines.frame import Result
from pipelines.session import Session
from pipelines.sinks.sink import Consumer
from pipelines.sources.stream_spec import StreamSpec
from tests.clips import level, numbered
from tests.fakes import labels_of

pytestmark = pytest.mark.timeout(60)


class LabelTable(Consumer):
    """Counts the best labels of each stream and writes `stream label frames` at the end."""

    name = "label table"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[tuple[str, str]] = Counter()
        self.threads: set[str] = set()

    def take(self, results: Sequence[Result]) -> None:
        self.threads.add(threading.current_thread().name)
        for result in results:
            if result.prediction is not None:
                self._counts[result.frame.stream, labels_of(result.prediction)[0].name] += 1

    def close(self) -> None:
        try:
            self._path.write_text("".join(f"{stream} {label} {n}\n" for (stream, label), n in sorted(self._counts.items())))
        except OSError as error:
            raise SinkError(f"cannot write the label table {self._path}: {reason(error)}") from error


def labelled(folder: Path, table: LabelTable) -> Session:
    """A session that has ended, with two clips of 20 frames."""
    with Session("probe") as session:
        session.subscribe(table)
        for name in ("door", "yard"):
            session.add(StreamSpec.of(name, numbered(folder / f"{name}.mp4", frames=20)))
        session.wait()
    return session


def test_it_gets_every_result_in_its_own_thread(tmp_path: Path) -> None:
    table = LabelTable(tmp_path / "table.txt")
    labelled(tmp_path, table)
    assert table.threads == {"consume:label table"}
    expected = sorted(f"{stream} {level(k)} 1" for stream in ("door", "yard") for k in range(20))
    assert sorted((tmp_path / "table.txt").read_text().splitlines()) == expected


def test_its_error_is_reported_and_the_streams_go_on(tmp_path: Path) -> None:
    session = labelled(tmp_path, LabelTable(tmp_path / "missing" / "table.txt"))
    report = session.report()
    assert report.shown == 40
    assert [(c.name, c.failed) for c in report.consumers] == [("label table", True)]
