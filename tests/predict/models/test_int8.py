"""int8 after training: the rounding of weights, and NNCF's form of a network, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipelines.predict.engines import openvino_convert as convert
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.openvino_import import import_openvino
from pipelines.predict.models.int8 import TOP, attends, round_weights, rounded_with_sums
from pipelines.predict.models.store import Choice, ModelFacts, ModelStore
from pipelines.predict.preprocess import InputSpec
from tests.predict.models.records import record

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[3]
SIDE = 16
Array = np.ndarray[Any, np.dtype[np.float32]]


class TestRounding:
    @pytest.fixture
    def filters(self) -> Array:
        rng = np.random.default_rng(1)
        made = rng.normal(0.02, 0.1, (64, 27)).astype(np.float32)
        made[7] = 0
        return made

    def test_every_weight_lies_on_the_grid_of_its_filter_and_near_where_it_was(self, filters: Array) -> None:
        rounded = rounded_with_sums(filters)
        step = np.abs(filters).max(axis=1, keepdims=True) / TOP
        step[7] = 1
        np.testing.assert_allclose(rounded / step, np.round(rounded / step), atol=1e-3)
        assert (np.abs(rounded - filters) <= step * 1.0001).all()
        assert (rounded[7] == 0).all()

    def test_the_largest_stays_for_the_grid_is_found_by_it(self, filters: Array) -> None:
        np.testing.assert_allclose(np.abs(rounded_with_sums(filters)).max(axis=1), np.abs(filters).max(axis=1), rtol=1e-6)

    def test_sums_are_kept(self, filters: Array) -> None:
        step = np.abs(filters).max(axis=1) / TOP
        error = np.abs(rounded_with_sums(filters).sum(axis=1) - filters.sum(axis=1))
        assert (error <= 0.51 * step + 1e-6).all()
        nearest = np.round(filters[:7] / step[:7, None]) * step[:7, None]
        assert (np.abs(nearest.sum(axis=1) - filters[:7].sum(axis=1)) > 0.51 * step[:7]).any(), "it proves nothing"

    def test_a_filter_of_equal_weights(self) -> None:
        equal = np.full((1, 9), 0.3, np.float32)
        np.testing.assert_allclose(rounded_with_sums(equal), equal, rtol=1e-6)


def depthwise(path: Path, *, batch: int | str = "n", last: Array | None = None) -> Path:
    """A classifier of 3 classes: each is the rest of one colour after a depthwise layer. The first layer sees 8 bits."""
    first = np.zeros((6, 3, 1, 1), np.float32)
    first[range(6), [0, 1, 2, 0, 1, 2]] = [[[1.0]], [[1.0]], [[1.0]], [[-1.0]], [[-1.0]], [[-1.0]]]
    second = np.random.default_rng(3).uniform(0.1, 1, (6, 1, 3, 3)).astype(np.float32)
    last = np.concatenate([np.eye(3), -np.eye(3)]).astype(np.float32) * 4 if last is None else last
    weights = {"a": first, "b": second, "c": last, "shift": np.full(6, 0.5, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "a", "shift"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Conv", ["q", "b"], ["r"], group=6),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["t"]),
        helper.make_node("Flatten", ["t"], ["u"]),
        helper.make_node("MatMul", ["u", "c"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, last.shape[1]])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def answers(model: Any, pixels: Any) -> Array:
    compiled = import_openvino().Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result: Array = compiled.create_infer_request().infer({0: pixels})[compiled.output(0)].copy()
    return result


def weights(model: Any) -> list[Array]:
    """Of the convolutions, in their order."""
    layers = [op for op in model.get_ordered_ops() if op.get_type_name().endswith("Convolution")]
    return [op.input_value(1).get_node().data.copy() for op in layers]


def test_the_weights_of_a_model_are_rounded_in_place(tmp_path: Path) -> None:
    """Of plain pictures only the sums of filters count: they are seen as before, within one step."""
    model = convert.from_onnx(depthwise(tmp_path / "m.onnx"))[0]
    before = weights(model)
    plain = np.full((2, 3, SIDE, SIDE), [[[[200]], [[30]], [[90]]], [[[10]], [[250]], [[128]]]], np.uint8)
    exact = answers(model, plain)
    round_weights(model)
    (ones, taps), (same, moved) = before, weights(model)
    np.testing.assert_array_equal(same, ones)
    assert not np.array_equal(moved, taps)
    np.testing.assert_allclose(answers(model, plain), exact, rtol=0.01, atol=0.02)
    assert not attends(model)


CODE = """
import json, sys
from pathlib import Path
import numpy as np
from pipelines.predict.engines import openvino_convert as convert
from pipelines.predict.models import int8
work = Path(sys.argv[1])
for name, batch in (("free", None), ("four", 4)):
    made = int8.quantised(work / f"{name}.xml", np.load(work / "red.npy"), batch)
    convert.save(made, work / f"{name}-int8.xml")
print(json.dumps({"telemetry": bool(sys.modules.get("openvino_telemetry"))}))
"""


def test_what_was_silent_while_calibrating_is_heard(tmp_path: Path) -> None:
    """Calibrated on red pictures only. With a range for each channel, NNCF's own way, green and blue would be clipped to the
    little that these have of them. Also with a batch of four, which 6 frames do not fill twice."""
    rng = np.random.default_rng(2)
    red = rng.integers(118, 130, (6, 3, SIDE, SIDE), np.uint8)
    red[:, 0] = np.array([0, 50, 100, 150, 200, 255], np.uint8)[:, None, None]
    others = rng.integers(0, 256, (8, 3, SIDE, SIDE), np.uint8)
    np.save(tmp_path / "red.npy", red)
    core = import_openvino().Core()
    for name, batch in (("free", "n"), ("four", 4)):
        model = convert.from_onnx(depthwise(tmp_path / f"{name}.onnx", batch=batch))[0]
        if batch == 4:
            model.reshape([4, 3, SIDE, SIDE])
        convert.save(model, tmp_path / f"{name}.xml")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"telemetry": False}
    for name in ("free", "four"):
        int8 = core.read_model(tmp_path / f"{name}-int8.xml")
        assert sum(op.get_element_type().to_string() == "i8" for op in int8.get_ops()) >= 2, "no weights of 8 bits"
        for k in (0, 4):
            exact = answers(core.read_model(tmp_path / f"{name}.xml"), others[k : k + 4])
            np.testing.assert_allclose(answers(int8, others[k : k + 4]), exact, atol=0.08 * np.abs(exact).max())


def opened(model: Path, precision: str, cache: Path | None) -> Array:
    """The model's answer for one picture, through a cache of compiled models."""
    engine = OpenVinoEngine(model, precision, 1, cache)
    (slot,) = engine.open(1, 1)
    slot.input[:] = 77
    engine.start(slot, 1)
    answer: Array = engine.wait(slot, 1)[0].copy()
    engine.close()
    return answer


def test_what_openvino_compiled_serves_every_precision_and_goes_with_its_model(tmp_path: Path) -> None:
    """Its own key does not see that other weights came to the same place within a second: it answered with the old ones."""
    facts = ModelFacts(InputSpec(SIDE, SIDE, SIDE), None, None, Choice())
    stored = ModelStore(tmp_path).get("m", lambda folder: _saved(folder, 1) or facts)

    def calibrated(last: int) -> tuple[Path, Path]:
        kept = stored.calibrate("a CPU", lambda folder: _saved(folder, last) or record())
        return kept.model, kept.folder / "compiled"

    model, cache = calibrated(1)
    first = opened(model, "int8", cache)
    blobs = set(cache.glob("*.blob"))
    assert len(blobs) == 1
    np.testing.assert_array_equal(opened(model, "int8", cache), first)
    assert set(cache.glob("*.blob")) == blobs, "it was compiled again"
    for precision in ("bf16", "fp32"):
        np.testing.assert_array_equal(opened(model, precision, cache), opened(model, precision, None))
    assert calibrated(2) == (model, cache)
    np.testing.assert_allclose(opened(model, "int8", cache), 2 * first)


def _saved(folder: Path, last: int) -> None:
    path = depthwise(folder / "m.onnx", last=np.full((6, 3), last, np.float32))
    convert.save(convert.from_onnx(path)[0], folder / "model.xml")
