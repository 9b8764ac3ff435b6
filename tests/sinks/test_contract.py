"""The contracts of `Consumer` and `Sink`, over all of them: a new one is a line in CONSUMERS or SINKS."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.errors import SinkError
from pipelines.frame import Result, StreamInfo
from pipelines.results import Callback, Results
from pipelines.sinks.jsonl import JsonLines
from pipelines.sinks.sink import Consumer, Sink
from pipelines.sinks.video import VideoFile
from pipelines.tasks.classification import ClassificationTask
from tests.fakes import Shelf
from tests.sinks.feed import frame, picture
from tests.sinks.test_jsonl import frame as result_frame
from tests.sinks.test_jsonl import ok
from tests.sinks.test_toy_consumer import LabelTable

pytestmark = pytest.mark.timeout(20)
PATIENCE_S = 10.0
COUNT = 300

CONSUMERS: dict[str, Callable[[Path], Consumer]] = {
    "JSON lines, file": lambda folder: JsonLines(folder / "lines.jsonl", ClassificationTask.as_dict),
    "JSON lines, text": lambda folder: JsonLines(io.TextIOWrapper(io.BytesIO(), "utf-8"), ClassificationTask.as_dict),
    "function": lambda folder: Callback(str, "text"),
    "label table, the toy": lambda folder: LabelTable(folder / "table.txt"),
}
SINKS: dict[str, Callable[[Path], Sink]] = {
    **{f"video {suffix}": lambda folder, suffix=suffix: VideoFile(folder / f"o{suffix}") for suffix in (".mp4", ".mkv", ".ts")},
    "shelf, of the tests": lambda folder: Shelf(),
}


@pytest.fixture(params=list(CONSUMERS))
def consumer(request: pytest.FixtureRequest, tmp_path: Path) -> Consumer:
    return CONSUMERS[request.param](tmp_path)


@pytest.fixture(params=list(SINKS))
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    return SINKS[request.param](tmp_path)


def run_of(count: int) -> list[Result]:
    return [ok(result_frame(k)) for k in range(count)]


@contextmanager
def results(lost: Callable[[Consumer, SinkError], None] = lambda consumer, error: None) -> Iterator[Results]:
    made = Results(lost)
    try:
        yield made
    finally:
        assert made.close(lambda: None) == []


class Fails(Consumer):
    name = "fails"

    def take(self, results: Sequence[Result]) -> None:
        raise SinkError("disk full")


def test_a_consumer_takes_every_result_beside_one_that_fails(consumer: Consumer) -> None:
    lost: list[Consumer] = []
    broken = Fails()
    with results(lambda consumer, error: lost.append(consumer)) as made:
        made.subscribe(broken)
        made.subscribe(consumer)
        for one in run_of(COUNT):
            made.wait_for_room(threading.Event())
            made.put([one])
    taken = {report.name: (report.taken, report.missed, report.failed) for report in made.report()}
    assert lost == [broken]
    assert taken[consumer.name] == (COUNT, 0, False)
    assert taken["fails"] == (0, COUNT, True)


def test_a_consumer_without_a_result_ends_well(consumer: Consumer) -> None:
    with results() as made:
        made.subscribe(consumer)
    (report,) = made.report()
    assert (report.taken, report.failed) == (0, False)


def test_an_interrupt_before_and_after_the_end_does_no_harm(consumer: Consumer) -> None:
    consumer.interrupt()
    with results() as made:
        made.subscribe(consumer)
    consumer.interrupt()
    assert not made.report()[0].failed


def test_an_interrupt_ends_a_write_that_nobody_reads() -> None:
    """A full pipe: only lines can block."""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w", encoding="utf-8") as text:
        lines = JsonLines(text, ClassificationTask.as_dict)
        said: list[BaseException] = []

        def take() -> None:
            try:
                lines.take(run_of(2000))
            except SinkError as error:
                said.append(error)

        thread = threading.Thread(target=take)
        thread.start()
        lines.interrupt()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert "nobody reads it" in str(said[0])
        lines.close()


@pytest.mark.parametrize("complete", [True, False])
def test_a_sink_counts_accepted_frames_and_closes_twice(sink: Sink, complete: bool) -> None:
    assert sink.written == 0
    for k in range(5):
        sink.show(frame(k, k / 25, StreamInfo()), picture(k))
    assert sink.written == 5
    sink.close(complete)
    sink.close(complete)
    assert sink.written == 5


def test_a_sink_without_a_frame_closes_and_writes_nothing(sink: Sink, tmp_path: Path) -> None:
    sink.close(True)
    assert sink.written == 0
    assert list(tmp_path.iterdir()) == []
