"""Settings: defaults, the YAML file, the flags, and the messages about wrong ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from app.config import MAX_BATCH, Settings, StreamEntry, per_stream
from app.flags import parser
from app.options import declared
from app.settings import settings
from app.streams import stream_options
from pipelines.credentials import Credentials
from pipelines.errors import UsageError
from pipelines.sources.stream_options import StreamOptions
from tests.clips import numbered
from tests.command import PROBE, watchline


def read(place: Path, text: str, flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    """The settings that a file of this content gives."""
    path = place / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return settings(flags or {}, str(path), environ)


def test_every_flag_is_a_setting_and_every_setting_a_flag() -> None:
    run = parser()._subparsers._group_actions[0].choices["run"]  # type: ignore[union-attr,index,call-overload]
    flags = {action.dest for action in run._actions} - {"help", "config"}
    assert flags == {f.name for f in dataclasses.fields(Settings)} - {"streams", "config"}
    assert {a.dest for a in run._actions if a.choices} == {d.name for d in declared(Settings).values() if d.option.choices}


def test_defaults_are_the_documented_ones() -> None:
    s = settings({"sources": ("a.mp4",)}, None)
    assert (s.model, s.topk, s.fit, s.budget_ms, s.max_batch, s.max_wait_ms) == ("lite0", 5, "crop", 50, 32, None)
    assert (s.device, s.engine, s.precision) == ("auto", "auto", "auto")
    assert (s.rtsp_transport, s.open_timeout, s.read_timeout, s.reconnect) == ("tcp", 10, 5, True)


def test_flags_win_over_the_file(place: Path) -> None:
    s = read(place, "source: a.mp4\nmodel: probe\ntopk: 3\n", {"topk": 1})
    assert (s.sources, s.model, s.topk) == (("a.mp4",), "probe", 1)


def test_sources_on_the_command_line_replace_the_streams_of_the_file(place: Path) -> None:
    s = read(place, "streams: {door: {source: a.mp4}}\n", {"sources": ("b.mp4",)})
    assert (s.sources, dict(s.streams)) == (("b.mp4",), {})


def test_and_the_command_says_so(place: Path) -> None:
    numbered(place / "num.mp4", frames=3)
    (place / "c.yaml").write_text("streams: {door: {source: a.mp4}, yard: {source: b.mp4}}\n")
    done = watchline("run", "--config", "c.yaml", "num.mp4", *PROBE)
    assert done.code == 0
    assert "2 sources of 'c.yaml' are left out" in done.err


def test_a_flag_has_one_name_in_yaml_whichever_dash(place: Path) -> None:
    s = read(place, "source: a.mp4\nbudget-ms: 80\nmax_batch: 4\nreconnect: false\n")
    assert (s.budget_ms, s.max_batch, s.reconnect) == (80, 4, False)


def test_streams_and_numbers_of_devices(place: Path) -> None:
    s = read(place, "streams:\n  door: {source: 'rtsp://cam/door'}\n  desk: {source: 0}\n")
    assert s.streams == {"door": StreamEntry("rtsp://cam/door"), "desk": StreamEntry("0")}


PASSWORD = "p@s#s:w/%^!"


def test_user_and_password_apart_need_no_escapes(place: Path) -> None:
    text = "streams: {door: {source: 'rtsp://cam/x', user: 'a b', password: '${P}'}, yard: {source: 'http://cam', user: 7}}"
    s = read(place, text, P=PASSWORD)
    assert s.streams == {
        "door": StreamEntry("rtsp://cam/x", Credentials("a b", PASSWORD)),
        "yard": StreamEntry("http://cam", Credentials("7")),
    }
    assert PASSWORD not in repr(s)


@pytest.mark.parametrize("written", ["0123", "12:30", "0x1F", "1_000", "+7"])
def test_a_number_as_password_keeps_its_text(place: Path, written: str) -> None:
    s = read(place, f"streams: {{door: {{source: 'rtsp://cam/x', user: {written}, password: {written}}}}}\n")
    assert s.streams == {"door": StreamEntry("rtsp://cam/x", Credentials(written, written))}


def test_environment_in_values(place: Path) -> None:
    s = read(place, "streams: {door: {source: 'rtsp://u:${DOOR_PASSWORD}@cam/door'}}\n", DOOR_PASSWORD="p%40ss")
    assert s.streams == {"door": StreamEntry("rtsp://u:p%40ss@cam/door")}


OWN = "{source: a.mp4, max-fps: 5, budget_ms: 80, fit: squash, topk: 3, rtsp-transport: udp, open-timeout: 3}"


def test_a_stream_may_have_its_own_values(place: Path) -> None:
    s = read(place, f"max-fps: 10\nstride: 2\nstreams: {{door: {OWN}, yard: {{source: b.mp4}}}}\n")
    door, yard = (stream_options(s, s.streams[name].overrides) for name in ("door", "yard"))
    assert (door.max_fps, door.stride, door.budget_ms, door.fit, door.topk) == (5, 2, 80, "squash", 3)
    assert (door.rtsp_transport, door.open_timeout_s, door.read_timeout_s) == ("udp", 3, 5)
    assert (yard.max_fps, yard.stride, yard.budget_ms, yard.fit, yard.topk) == (10, 2, None, None, None)
    assert (yard.rtsp_transport, yard.open_timeout_s) == ("tcp", 10)


def test_the_own_values_of_a_stream_in_a_run(place: Path) -> None:
    numbered(place / "num.mp4", frames=12)
    (place / "c.yaml").write_text("streams:\n  a: {source: num.mp4, stride: 3, topk: 2}\n  b: {source: num.mp4}\n")
    done = watchline("run", "--config", "c.yaml", *PROBE, "--jsonl", "-")
    assert done.code == 0
    shown = {name: [k for k in done.lines if k["stream"] == name and k["status"] == "ok"] for name in "ab"}
    assert [k["frame"] for k in shown["a"]] == [0, 3, 6, 9]
    assert len(shown["b"]) == 12
    assert {name: {len(k["labels"]) for k in lines} for name, lines in shown.items()} == {"a": {2}, "b": {5}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("streams: {door: {source: a.mp4, max-fsp: 5}}\n", ["stream 'door'", "'max-fsp'", "did you mean 'max-fps'"]),
        ("streams: {door: {source: a.mp4, max-fps: 0}}\n", ["stream 'door'", "--max-fps must be more than 0, got 0"]),
        ("streams: {door: {source: a.mp4, max-fps: fast}}\n", ["'max-fps'", "stream 'door'", "must be a number"]),
        ("streams: {door: {source: a.mp4, fit: stretch}}\n", ["stream 'door'", "allowed: crop, squash, pad"]),
        ("streams: {door: {source: a.mp4, model: probe}}\n", ["stream 'door'", "'model'", "the same for all streams"]),
        ("config: other.yaml\nsource: a.mp4\n", ["unknown setting 'config'"]),
        ("modell: probe\n", ["modell", "did you mean 'model'"]),
        ("max-bach: 3\n", ["max-bach", "did you mean 'max-batch'"]),
        ("max-batch: eight\nsource: a.mp4\n", ["max-batch", "a whole number"]),
        ("max-batch: true\nsource: a.mp4\n", ["max-batch", "a whole number"]),
        ("show: 'yes'\nsource: a.mp4\n", ["show", "true or false"]),
        ("model: 5\nsource: a.mp4\n", ["model", "a text"]),
        ("source: 'rtsp://u:${NOT_THERE}@cam/x'\n", ["NOT_THERE", "not set"]),
        ("streams: {door: {sorce: a.mp4}}\n", ["stream 'door'", "'sorce'", "did you mean 'source'"]),
        ("streams: {door: a.mp4}\n", ["door", "source"]),
        ("streams: {door: {source: 'rtsp://cam/x', password: p}}\n", ["door", "no user", "give 'user'"]),
        ("streams: {door: {source: 'rtsp://u@cam/x', user: u}}\n", ["door", "leave one of them out"]),
        ("streams: {door: {source: a.mp4, user: u}}\n", ["door", "leave 'user' out"]),
        ("streams: {door: {source: 'rtsp://cam/x', user: u, password: true}}\n", ["door", "quote them"]),
        ("streams: {door: {source: a.mp4, max-fps: 5, max_fps: 6}}\n", ["door", "'max-fps' twice"]),
        ("streams: []\n", ["streams", "map"]),
        ("source: {a: b}\n", ["source", "list"]),
        ("a: [1\nb: }\n", ["not valid YAML", "line 2"]),
        ("source: a.mp4\nmodel: 'probe\ntopk: 5\njsonl: x\n", ["not valid YAML", "line 2"]),
        ("streams: {'': {source: a.mp4}}\n", ["a stream without a name"]),
        ("budget-ms: fast\nsource: a.mp4\n", ["budget-ms", "must be a number"]),
        ("- a\n", ["map", "streams: {door"]),
        ("streams:\n  a: {source: x.mp4}\n  b: {source: y.mp4}\n  a: {source: z.mp4}\n", ["'a' twice", "line 4"]),
        ("topk: 1\nsource: a.mp4\ntopk: 2\n", ["'topk' twice", "line 3"]),
        ("max-batch: 1\nmax_batch: 2\n", ["'max-batch' twice"]),
        ("source: a.mp4\nsources: [b.mp4]\n", ["'sources' twice"]),
        ("streams: &a {a: {source: *a}}\n", ["contains itself"]),
        ("model: " + "[" * 5000, ["nested too deeply"]),
        ("streams: {door: {source: ''}}\n", ["a source is empty", "variable"]),
        ("source: ['']\n", ["a source is empty"]),
        ("source: a.mp4\njsonl: ''\n", ["--jsonl is empty"]),
        ("", ["map"]),
        ("model: probe\n", ["no source"]),
        ("source: a.mp4\nengine: foo\n", ["--engine 'foo'", "auto, openvino, torch"]),
        ("source: !!python/object/apply:os.system ['true']\n", ["not valid YAML"]),
    ],
)
def test_a_wrong_file_is_one_line(place: Path, text: str, words: list[str]) -> None:
    (place / "config.yaml").write_text(text)
    done = watchline("run", "--config", "config.yaml")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert all(word in line for word in words), line


@pytest.mark.parametrize("flag", ["config", "model", "labels", "output", "jsonl", "report"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_argument_is_a_variable_that_was_not_set(place: Path, flag: str, text: str) -> None:
    (place / "num.mp4").touch()
    done = watchline("run", "num.mp4", f"--{flag}", text)
    assert (done.code, list(place.iterdir())) == (2, [place / "num.mp4"])
    assert f"--{flag} is empty" in done.err


@pytest.mark.parametrize("args", [["run"], ["run", "num.mp4"], ["bench"]])
def test_an_empty_source_is_not_the_current_folder(place: Path, args: list[str]) -> None:
    (place / "num.mp4").touch()
    done = watchline(*args, "", "--model", "probe")
    assert (done.code, "a source is empty" in done.err) == (2, True)


def test_an_empty_folder_of_the_demo(place: Path) -> None:
    done = watchline("demo", "--folder", "")
    assert (done.code, "--folder is empty" in done.err, list(place.iterdir())) == (2, True, [])


def test_every_option_of_a_stream_is_a_field_of_its_options_and_no_other() -> None:
    """`realtime` and `loop` are options of a run only: files that are played as cameras share its clock."""
    known = {f.name.removesuffix("_s") for f in dataclasses.fields(StreamOptions)}
    assert known == {*per_stream(), "realtime", "loop"}


def test_values_of_one_stream_are_for_it_alone(place: Path) -> None:
    numbered(place / "a.mp4", frames=6)
    numbered(place / "b.mp4", frames=6)
    (place / "c.yaml").write_text("streams: {a: {source: a.mp4, stride: 2, topk: 1}, b: {source: b.mp4}}\n")
    done = watchline("run", "--config", "c.yaml", *PROBE, "--topk", "3", "--jsonl", "-")
    assert done.code == 0, done.err
    shown = {name: [k for k in done.lines if k["stream"] == name and k["status"] == "ok"] for name in ("a", "b")}
    assert [k["frame"] for k in shown["a"]] == [0, 2, 4]
    assert [len(k["labels"]) for k in shown["a"]] == [1, 1, 1]
    assert [len(k["labels"]) for k in shown["b"]] == [3] * 6


def test_quiet_and_verbose_at_once() -> None:
    done = watchline("run", "a.mp4", "-q", "-v")
    assert (done.code, "exclude each other" in done.err) == (2, True)


def test_a_file_that_is_not_there() -> None:
    done = watchline("run", "--config", "nope.yaml")
    assert (done.code, done.err) == (2, "watchline: cannot read the config 'nope.yaml': No such file or directory\n")


@pytest.mark.parametrize("flag", ["model", "labels", "output", "jsonl", "report", "config"])
@pytest.mark.parametrize("address", ["rtsp://u:{}@cam/x", "rtsp:/u:{}@cam/x", "u:{}@cam/x"])
def test_an_address_in_the_place_of_a_file(flag: str, address: str) -> None:
    done = watchline("run", "a.mp4", f"--{flag}", address.format(PASSWORD))
    assert done.code == 2
    assert f"--{flag}" in done.err
    assert "is an address" in done.err
    assert PASSWORD not in done.err


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("engine", "onnx", "allowed: auto, openvino, torch"),
        ("precision", "fp16", "allowed: auto, fp32, bf16, int8"),
        ("device", "tpu", "allowed: auto, cpu, cuda, cuda:N"),
        ("fit", "stretch", "allowed: crop, squash, pad"),
        ("topk", 0, "--topk must be more than 0, got 0"),
        ("max_batch", -1, "--max-batch must be more than 0, got -1"),
        ("max_batch", MAX_BATCH + 1, "at most 128"),
        ("stride", 0, "--stride must be more than 0"),
        ("max_fps", 0.0, "--max-fps must be more than 0"),
        ("budget_ms", float("nan"), "--budget-ms must be a finite number, got nan"),
        ("budget_ms", float("inf"), "--budget-ms must be a finite number, got inf"),
        ("max_wait_ms", -0.5, "--max-wait-ms must be 0 or more"),
        ("probe_ms_per_batch", -1.0, "--probe-ms-per-batch must be 0 or more"),
        ("probe_ms_per_frame", 1.0, "for --model probe only, not for 'lite0'"),
        ("max_wait_ms", float("inf"), "--max-wait-ms must be a finite number"),
        ("open_timeout", 0.0, "--open-timeout must be more than 0"),
        ("jobs", 0, "--jobs must be more than 0"),
    ],
)
def test_a_wrong_value_names_what_is_allowed(flag: str, value: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings({"sources": ("a.mp4",), flag: value}, None)
    assert words in str(caught.value)
