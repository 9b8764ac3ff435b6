"""Converted models on disk: converted once, whole or not there, and a second start that needs neither torch nor timm."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import TensorProto, helper

from pipelines.errors import UsageError
from pipelines.predict.engines import openvino_convert as convert
from pipelines.predict.models.catalog import find
from pipelines.predict.models.record import Int8Record
from pipelines.predict.models.store import Choice, ModelFacts, ModelStore
from pipelines.predict.preprocess import InputSpec
from pipelines.predict.scheduling.profile import Timing
from tests.predict.models.records import record

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[3]
SPEC = InputSpec(8, 9, 10, "bilinear", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
FACTS = ModelFacts(SPEC, ("ein", "zwei", "Größe"), 4, Choice("x", single_ms={"fp32": 6.5}))
WAIT_S = 10


class Converter:
    """Writes a model of some bytes and counts."""

    def __init__(self, facts: ModelFacts = FACTS) -> None:
        self.facts = facts
        self.folders: list[Path] = []

    def __call__(self, folder: Path) -> ModelFacts:
        self.folders.append(folder)
        (folder / "model.xml").write_text(f"model {len(self.folders)}")
        return self.facts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ModelStore]:
    yield ModelStore(tmp_path / "some" / "cache")
    left = [p.name for p in (tmp_path / "some" / "cache").glob(".*")]
    assert not left, "a temporary folder was left"


def test_a_model_is_converted_once_and_its_facts_come_back_whole(store: ModelStore) -> None:
    converter = Converter()
    first = store.get("a", converter)
    second = ModelStore(store.folder).get("a", converter)
    assert len(converter.folders) == 1
    assert second.folder == first.folder
    assert second.facts() == FACTS
    assert second.model.read_text() == "model 1"


def test_a_disk_that_is_full_is_said(store: ModelStore, tmp_path: Path) -> None:
    """The kernel refuses to let a file grow, as a full disk does; OpenVINO only says "iostream error"."""
    model = convert.from_onnx(_big_onnx(tmp_path / "m.onnx"))[0]

    def written(folder: Path) -> ModelFacts:
        convert.save(model, folder / "model.xml")
        return FACTS

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(UsageError, match=r"cannot be kept in .*: File too large; .* `cache`") as caught:
            store.get("a", written)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(store.folder) in str(caught.value)
    assert store.get("a", written).whole()


def _big_onnx(path: Path) -> Path:
    weights = onnx.numpy_helper.from_array(np.zeros((3, 100_000), np.float32), "w")
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["f"])]
    nodes.append(helper.make_node("MatMul", ["f", "w"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 100_000])
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.mark.parametrize("facts", [replace(FACTS, names=None, batch=None), replace(FACTS, names=())])
def test_nothing_and_none_are_different_facts(store: ModelStore, facts: ModelFacts) -> None:
    assert store.get("a", Converter(facts)).facts() == facts


def test_other_models_have_other_folders(store: ModelStore) -> None:
    converter = Converter()
    assert store.get("a", converter).folder != store.get("b", converter).folder
    assert len(converter.folders) == 2


def test_a_conversion_that_fails_leaves_nothing_behind(store: ModelStore) -> None:
    def broken(folder: Path) -> ModelFacts:
        (folder / "model.xml").write_text("half")
        raise UsageError("cannot convert")

    with pytest.raises(UsageError, match="cannot convert"):
        store.get("a", broken)
    assert not list(store.folder.iterdir())
    assert store.get("a", Converter()).model.read_text() == "model 1"


@pytest.mark.parametrize(
    "what", ["no facts", "half of the facts", "other facts", "no model", "an empty model", "half of a model"]
)
def test_a_model_that_is_not_whole_is_converted_again(store: ModelStore, what: str) -> None:
    converter = Converter()
    folder = store.get("a", converter).folder
    facts = folder / "facts.json"
    if what == "no facts":
        facts.unlink()
    elif what == "half of the facts":
        facts.write_text(facts.read_text()[:50])
    elif what == "other facts":
        facts.write_text(json.dumps({"input": {"height": 3}}))
    elif what == "no model":
        (folder / "model.xml").unlink()
    else:
        (folder / "model.xml").write_text("" if what == "an empty model" else "mod")
    again = store.get("a", converter)
    assert again.folder == folder
    assert again.facts() == FACTS
    assert again.model.read_text() == "model 2"


def test_two_that_convert_at_once_do_not_see_each_others_half(store: ModelStore) -> None:
    both = threading.Barrier(2)
    results = []

    def slow(folder: Path) -> ModelFacts:
        (folder / "model.xml").write_text("whole")
        both.wait(WAIT_S)
        return FACTS

    threads = [threading.Thread(target=lambda: results.append(store.get("a", slow))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [r.facts() for r in results] == [FACTS, FACTS]
    assert results[0].folder == results[1].folder
    assert len(list(store.folder.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file.*`cache`"):
        ModelStore(tmp_path / "file").get("a", Converter())


# int8 forms.


def test_an_int8_form_that_was_cut_is_none(store: ModelStore) -> None:
    made = store.get("a", Converter()).calibrate("this CPU", _int8("one"))
    made.model.write_text("o")
    assert store.get("a", Converter()).calibrated("this CPU") is None


def test_an_int8_form_is_found_by_model_cpu_and_versions(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store.get("a", Converter())
    assert stored.calibrated("this CPU") is None
    made = stored.calibrate("this CPU", _int8("one"))
    found = ModelStore(store.folder).get("a", Converter()).calibrated("this CPU")
    assert found == made
    assert (made.record(), made.model.read_text()) == (record("one"), "one")
    assert stored.calibrated("another CPU") is None
    assert store.get("other weights", Converter()).calibrated("this CPU") is None
    (made.folder / "compiled").mkdir()
    assert stored.calibrate("this CPU", _int8("two")) == made
    assert made.record() == record("two")
    assert sorted(p.name for p in made.folder.iterdir()) == ["model.xml", "record.json", "sizes.json"], "the old one's stayed"
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "99")
    assert store.get("a", Converter()).calibrated("this CPU") is None


@pytest.mark.parametrize("what", ["no record", "half of the record", "no model"])
def test_half_of_an_int8_form_is_none(store: ModelStore, what: str) -> None:
    stored = store.get("a", Converter())
    made = stored.calibrate("this CPU", _int8("one"))
    if what == "no model":
        made.model.unlink()
    elif what == "no record":
        (made.folder / "record.json").unlink()
    else:
        (made.folder / "record.json").write_text('{"of": ')
    assert stored.calibrated("this CPU") is None
    assert stored.calibrate("this CPU", _int8("two")).record() == record("two")


def test_calibrating_that_fails_leaves_the_one_before(store: ModelStore) -> None:
    def broken(folder: Path) -> dict[str, str]:
        (folder / "model.xml").write_text("half")
        raise UsageError("refused")

    stored = store.get("a", Converter())
    with pytest.raises(UsageError, match="refused"):
        stored.calibrate("this CPU", broken)
    assert stored.calibrated("this CPU") is None
    made = stored.calibrate("this CPU", _int8("one"))
    with pytest.raises(UsageError, match="refused"):
        stored.calibrate("this CPU", broken)
    assert stored.calibrated("this CPU") == made
    assert not list(stored.folder.glob(".*"))


def test_what_a_killed_process_left_is_cleared_away_after_a_while(store: ModelStore) -> None:
    stored = store.get("a", Converter())
    old, new = stored.folder / ".int8-77-abc", stored.folder / ".int8-78-def"
    for left in (old, new):
        left.mkdir()
    os.utime(old, (0, 0))
    stored.calibrate("this CPU", _int8("one"))
    assert not old.exists()
    assert new.exists(), "another process may be writing there"
    new.rmdir()


def test_what_this_process_has_begun_can_be_forgotten(store: ModelStore) -> None:
    def hanging(folder: Path) -> dict[str, str]:
        (store.folder / ".other-1-abc").mkdir()
        store.forget_unfinished()
        assert not folder.exists()
        raise UsageError("gone")

    with pytest.raises(UsageError, match="gone"):
        store.get("a", Converter()).calibrate("this CPU", hanging)
    (store.folder / ".other-1-abc").rmdir()


def _int8(name: str) -> Callable[[Path], Int8Record]:
    def make(folder: Path) -> Int8Record:
        (folder / "model.xml").write_text(name)
        return record(name)

    return make


# Profiles.


def test_figures_are_kept_by_engine_and_machine(store: ModelStore) -> None:
    stored = store.get("a", Converter())
    assert stored.profile("openvino fp32 2 cores") is None
    stored.keep_profile("openvino fp32 2 cores", {1: Timing(0.001, 0.002), 32: Timing(0.03, 0.04)})
    assert store.get("a", Converter()).profile("openvino fp32 2 cores") == {1: Timing(0.001, 0.002), 32: Timing(0.03, 0.04)}
    assert stored.profile("openvino bf16 2 cores") is None


@pytest.mark.parametrize("text", ["", "{", '{"a": [1, 2]}', '{"1": 3}', '{"1": [1, 2, 3]}', "[]"])
def test_figures_that_cannot_be_read_are_none(store: ModelStore, text: str) -> None:
    stored = store.get("a", Converter())
    stored.keep_profile("k", {1: Timing(0.001, 0.002)})
    (file,) = stored.folder.glob("profile-*")
    file.write_text(text)
    assert stored.profile("k") is None


def test_a_full_disk_is_no_reason_to_fail(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store.get("a", Converter())

    def full(*args: object, **how: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    stored.keep_profile("k", {1: Timing(0.001, 0.002)})
    assert stored.profile("k") is None


# The second start.


def test_a_second_start_of_the_default_model_imports_neither_torch_nor_timm(tmp_path: Path) -> None:
    name = find("lite0")

    def to_openvino(folder: Path) -> ModelFacts:
        network = name.load()
        convert.save(convert.from_network(network), folder / "model.xml")
        return ModelFacts(network.input, network.names, network.batch, Choice())

    ModelStore(tmp_path).get(name.identity, to_openvino)
    code = """
import sys
from app.build import Load, make_model
from pipelines.predict.predictor import PredictorEvents
from app.config import Settings
model = make_model(Settings(sources=("x",)), PredictorEvents(), Load())
with model.predictor:
    pass
heavy = {"torch", "timm", "torchvision", "nncf"} & set(sys.modules)
assert not heavy, heavy
print(model.predictor.engine.name, model.names[335])
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "WATCHLINE_CACHE": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, env=environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "openvino fox squirrel\n"
