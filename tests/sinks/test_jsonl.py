"""JSON lines: the promised form, valid for any content, and one error for an output that breaks."""

from __future__ import annotations

import io
import json
import os
import resource
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import SinkError
from pipelines.frame import CAUSES, STAGES, WHOLE, Frame, Picture, Prediction, Result, StreamInfo, Trace
from pipelines.sinks.jsonl import JsonLines, as_json
from pipelines.tasks.classification import Classification, ClassificationTask, Label
from tests.clips import grey

pytestmark = pytest.mark.timeout(20)
ALWAYS = ["stream", "session", "frame", "pts_s", "time", "arrived_s", "shown_s", "status"]


def frame(index: int = 12, *, stream: str = "door", pts_s: float | None = 0.48, shown: bool = True) -> Frame:
    at = time.monotonic() - 0.1
    stamps = [at + k / 1000 for k in (1, 3, 6, 10, 15, 21)]
    trace = Trace(at, *stamps, shown_s=at + 0.024) if shown else Trace(at, stamps[0])
    return Frame(stream, 2, index, Picture(*grey(16, (2, 2))), pts_s, StreamInfo(), trace)


def ok(one: Frame | None = None, name: str = "fox squirrel") -> Result:
    return Result(
        one or frame(),
        "ok",
        Prediction({WHOLE: Classification((Label(335, name, 0.8812345), Label(1, "goldfish", 0.1)))}, 3, 16),
    )


def written(*results: Result, folder: Path) -> list[dict[str, Any]]:
    """Write to a file and read it back."""
    path = folder / "out.jsonl"
    log = JsonLines(path, ClassificationTask.as_dict)
    for result in results:
        log.take([result])
    log.close()
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n") or not results
    return [strict(line) for line in text.splitlines()]


def refused(log: JsonLines) -> SinkError:
    """Write pairs of lines until the output refuses one."""
    try:
        for k in range(0, 1000, 2):
            log.take([ok(frame(k)), ok(frame(k + 1))])
    except SinkError as error:
        return error
    raise AssertionError("everything was written")


def strict(line: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)  # type: ignore[no-any-return]


class TestForm:
    def test_a_shown_frame(self, tmp_path: Path) -> None:
        result = ok()
        (line,) = written(result, folder=tmp_path)
        assert list(line) == [*ALWAYS, "labels", "batch", "latency_ms"]
        assert (line["stream"], line["session"], line["frame"], line["pts_s"]) == ("door", 2, 12, 0.48)
        assert line["status"] == "ok"
        assert line["labels"] == [{"id": 335, "name": "fox squirrel", "p": 0.88123}, {"id": 1, "name": "goldfish", "p": 0.1}]
        assert line["batch"] == {"id": 3, "size": 16}
        assert list(line["latency_ms"]) == list(STAGES)
        assert line["latency_ms"]["total"] == pytest.approx(24)
        assert line["latency_ms"]["total"] == pytest.approx(1e3 * (line["shown_s"] - line["arrived_s"]), abs=0.01)
        parts = sum(ms for stage, ms in line["latency_ms"].items() if stage != "total")
        assert parts == pytest.approx(24, abs=0.01)
        assert line["arrived_s"] == pytest.approx(result.frame.trace.arrived_s, abs=1e-6)

    @pytest.mark.parametrize("cause", CAUSES)
    def test_a_dropped_frame(self, cause: str, tmp_path: Path) -> None:
        (line,) = written(Result(frame(shown=False), "dropped", cause=cause), folder=tmp_path)
        assert list(line) == [*ALWAYS, "cause"]
        assert (line["status"], line["cause"], line["shown_s"]) == ("dropped", cause, None)

    def test_a_failed_frame(self, tmp_path: Path) -> None:
        (line,) = written(Result(frame(shown=False), "failed", error=ValueError('a "bad"\nframe')), folder=tmp_path)
        assert list(line) == [*ALWAYS, "error"]
        assert line["status"] == "failed"
        assert line["error"] == 'ValueError: a "bad"\nframe'
        assert line["shown_s"] is None

    def test_a_frame_that_an_output_refused_was_not_shown(self) -> None:
        line = as_json(Result(frame(), "failed", ok().prediction, error=SinkError("disk full")), ClassificationTask.as_dict)
        assert line["shown_s"] is None
        assert "labels" not in line

    def test_a_frame_without_media_time(self, tmp_path: Path) -> None:
        (line,) = written(ok(frame(pts_s=None)), folder=tmp_path)
        assert line["pts_s"] is None

    def test_the_time_of_day_is_that_of_the_arrival(self) -> None:
        one = frame()
        one.trace.arrived_s = time.monotonic() - 60
        line = as_json(Result(one, "dropped", cause="overload"), ClassificationTask.as_dict)
        assert line["time"].endswith("Z")
        assert len(line["time"]) == len("2026-11-30T03:00:00.123Z")
        at = datetime.fromisoformat(line["time"])
        assert abs((datetime.now(UTC) - at).total_seconds() - 60) < 2

    def test_one_line_a_frame_in_the_order_of_the_writes(self, tmp_path: Path) -> None:
        lines = written(*(ok(frame(k)) for k in range(50)), folder=tmp_path)
        assert [line["frame"] for line in lines] == list(range(50))


class TestText:
    @pytest.mark.parametrize("name", ["猫", "кот", 'a\tb\n"c"\\', "\x00\x1f\x7f", "\u2028\u2029", "🦊", ""])
    def test_any_name_comes_back(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / "out.jsonl"
        log = JsonLines(path, ClassificationTask.as_dict)
        log.take([ok(frame(stream=name), name)])
        log.close()
        data = path.read_bytes()
        assert data.count(b"\n") == 1
        line = strict(data.decode("utf-8"))
        assert line["stream"] == name
        assert line["labels"][0]["name"] == name

    def test_a_file_name_that_is_no_text_does_not_end_the_run(self, tmp_path: Path) -> None:
        """Case C55: Linux lets a name hold any bytes; Python stands lone surrogates for them."""
        name = os.fsdecode(b"\xff.mp4")
        path = tmp_path / "out.jsonl"
        log = JsonLines(path, ClassificationTask.as_dict)
        log.take([ok(frame(stream=name))])
        log.close()
        assert strict(path.read_bytes().decode("utf-8"))["stream"] == name

    def test_a_terminal_that_only_knows_ascii(self) -> None:
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, encoding="ascii")
        log = JsonLines(out, ClassificationTask.as_dict)
        log.take([ok(name="猫")])
        log.close()
        assert strict(raw.getvalue().decode("ascii"))["labels"][0]["name"] == "猫"


class TestOutputs:
    def test_nothing_is_made_before_the_first_line(self, tmp_path: Path) -> None:
        log = JsonLines(tmp_path / "out.jsonl", ClassificationTask.as_dict)
        log.close()
        assert not (tmp_path / "out.jsonl").exists()

    def test_closing_twice_is_fine(self, tmp_path: Path) -> None:
        log = JsonLines(tmp_path / "out.jsonl", ClassificationTask.as_dict)
        log.take([ok()])
        log.close()
        log.close()

    @pytest.mark.parametrize("lines", [0, 3])
    def test_a_line_after_the_close_changes_nothing(self, lines: int, tmp_path: Path) -> None:
        """A lane that hung may wake after the close: the written lines must stay."""
        path = tmp_path / "out.jsonl"
        log = JsonLines(path, ClassificationTask.as_dict)
        for k in range(lines):
            log.take([ok(frame(k))])
        log.close()
        log.take([ok(frame(lines))])
        log.close()
        assert log.written == lines
        kept = path.read_text().splitlines() if path.exists() else []
        assert [strict(line)["frame"] for line in kept] == list(range(lines))
        assert path.exists() == bool(lines)

    def test_lines_reach_the_file_at_once(self, tmp_path: Path) -> None:
        """A reader of the file must not wait for a buffer to fill."""
        path = tmp_path / "out.jsonl"
        log = JsonLines(path, ClassificationTask.as_dict)
        for k in range(30):
            log.take([ok(frame(k))])
            assert len(path.read_text().splitlines()) == k + 1
        log.close()

    def test_a_stream_is_flushed_at_once_and_left_open(self) -> None:
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, encoding="utf-8")
        log = JsonLines(out, ClassificationTask.as_dict)
        log.take([ok()])
        assert raw.getvalue().count(b"\n") == 1
        log.close()
        assert not out.closed

    def test_a_line_longer_than_the_pipe_takes_at_once_is_whole(self) -> None:
        name, got = "n" * 200_000, io.BytesIO()
        reading, writing = os.pipe()

        def read() -> None:
            with os.fdopen(reading, "rb") as pipe:
                got.write(pipe.read())

        reader = threading.Thread(target=read)
        reader.start()
        with os.fdopen(writing, "w", encoding="utf-8") as out:
            log = JsonLines(out, ClassificationTask.as_dict)
            log.take([ok(name=name), ok(frame(13))])
            log.close()
        reader.join()
        lines = [strict(line) for line in got.getvalue().decode().splitlines()]
        assert [line["labels"][0]["name"] for line in lines] == [name, "fox squirrel"]


class TestNobodyReads:
    """A stop ends a wait for a reader."""

    def test_a_pipe(self) -> None:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "w", encoding="utf-8") as out:
            log = JsonLines(out, ClassificationTask.as_dict)
            error = self.interrupted(log)
            assert str(error) == "cannot write JSON lines to standard output: nobody reads it, and the run was stopped"
            log.close()
            os.set_blocking(reading, False)
            data = pipe.read()
        assert data.endswith(b"\n"), "pieces are whole lines"
        assert len(data.splitlines()) >= log.written > 0

    def test_a_fifo_that_is_opened_and_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        log = JsonLines(path, ClassificationTask.as_dict)
        assert "nobody reads it" in str(self.interrupted(log))
        log.close()
        os.close(reading)

    def test_a_fifo_without_a_reader(self, tmp_path: Path) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        log = JsonLines(path, ClassificationTask.as_dict)
        assert f"{path}: nobody reads it" in str(self.interrupted(log))
        log.close()
        assert log.written == 0

    def test_a_fifo_gets_its_lines_when_its_reader_comes(self, tmp_path: Path) -> None:
        path = tmp_path / "fifo"
        os.mkfifo(path)
        log = JsonLines(path, ClassificationTask.as_dict)
        writer = threading.Thread(target=lambda: (log.take([ok(frame(k)) for k in range(500)]), log.close()))
        writer.start()
        lines = [strict(line) for line in path.read_text().splitlines()]
        writer.join()
        assert [line["frame"] for line in lines] == list(range(500))

    @staticmethod
    def interrupted(log: JsonLines) -> SinkError:
        """Write until nothing goes in any more, then interrupt."""
        errors: list[SinkError] = []

        def write() -> None:
            try:
                for k in range(10_000):
                    log.take([ok(frame(k))])
            except SinkError as error:
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        before = -1
        while before != log.written:
            before = log.written
            thread.join(0.2)
        log.interrupt()
        thread.join(5)
        assert not thread.is_alive()
        return errors[0]


class TestBroken:
    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        log = JsonLines(tmp_path / "nowhere/out.jsonl", ClassificationTask.as_dict)
        with pytest.raises(SinkError, match=r"nowhere/out\.jsonl.*No such file"):
            log.take([ok()])
        log.take([ok()])
        log.close()

    def test_a_file_that_another_run_writes_is_left_to_it(self, tmp_path: Path) -> None:
        path = tmp_path / "out.jsonl"
        first, second = JsonLines(path, ClassificationTask.as_dict), JsonLines(path, ClassificationTask.as_dict)
        first.take([ok()])
        with pytest.raises(SinkError, match=r"out\.jsonl: another run is writing it$"):
            second.take([ok()])
        second.close()
        first.take([ok(frame(1))])
        first.close()
        assert len(path.read_text().splitlines()) == 2
        third = JsonLines(path, ClassificationTask.as_dict)
        third.take([ok()])
        third.close()
        assert len(path.read_text().splitlines()) == 1

    def test_a_full_disk_is_said_once(self) -> None:
        log, errors = JsonLines(Path("/dev/full"), ClassificationTask.as_dict), list[str]()
        for k in range(1000):
            try:
                log.take([ok(frame(k))])
            except SinkError as error:
                errors.append(str(error))
        log.close()
        assert len(errors) == 1
        assert "/dev/full" in errors[0]
        assert "No space left" in errors[0]

    def test_a_file_on_a_full_disk_ends_with_a_whole_line(self, tmp_path: Path) -> None:
        """No file of this process may be larger: the write that meets the limit leaves half a line."""
        path, limits = tmp_path / "out.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
        log = JsonLines(path, ClassificationTask.as_dict)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
        try:
            assert "File too large" in str(refused(log))
            log.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        text = path.read_text()
        assert text.endswith("\n")
        lines = [strict(line)["frame"] for line in text.splitlines()]
        assert lines == list(range(len(lines)))
        assert 2000 < len(text) <= 3000

    @pytest.mark.parametrize("became", ["removed", "replaced"])
    def test_a_file_that_is_gone_at_the_close_is_no_success(self, tmp_path: Path, became: str) -> None:
        path = tmp_path / "out.jsonl"
        log = JsonLines(path, ClassificationTask.as_dict)
        log.take([ok()])
        path.unlink()
        if became == "replaced":
            path.write_text("another")
        with pytest.raises(SinkError, match=rf"out\.jsonl was {became} while it was written$"):
            log.close()
        log.close()
        assert log.written == 0
        assert became == "removed" or path.read_text() == "another"

    def test_a_reader_that_went_away_is_said_once(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        out = os.fdopen(writing, "w", encoding="utf-8")
        log = JsonLines(out, ClassificationTask.as_dict)
        with pytest.raises(SinkError, match=r"standard output.*Broken pipe"):
            log.take([ok()])
        log.take([ok()])
        log.close()
        out.close()
