"""The values of `--model`: names, checkpoints, exported programs and ONNX files; and the messages for those it refuses."""

from __future__ import annotations

import io
import os
import pickle
import socket
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import timm
import torch
from onnx import TensorProto, helper

from pipelines.errors import UsageError
from pipelines.predict.engines import openvino_convert as convert
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.torch import HostDevice, TorchEngine
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models.catalog import find
from pipelines.predict.models.labels import imagenet_names, read_labels
from pipelines.predict.preprocess import InputSpec

pytestmark = pytest.mark.timeout(60)
SIDE = 16
CLASSES = 5


class Tiny(torch.nn.Module):
    """A classifier of 16x16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, CLASSES, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    torch.manual_seed(1)
    return Tiny().eval()


def _said(work: Callable[[], object]) -> str:
    """The one line of the UsageError that `work` ends with."""
    with pytest.raises(UsageError) as caught:
        work()
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text


def _pixels(n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(1).integers(0, 256, (n, 3, SIDE, SIDE), np.uint8)


def _answers(engine: Any, max_batch: int, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    (slot,) = engine.open(max_batch, 1)
    n = len(pixels)
    slot.input[:n] = pixels
    engine.start(slot, n)
    logits = np.array(engine.wait(slot, n)[0])
    engine.close()
    return logits


def _expected(net: torch.nn.Module, spec: InputSpec, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (spec.mean, spec.std))
    with torch.inference_mode():
        return net((torch.from_numpy(pixels).float() / 255 - mean) / std).numpy()


# Names.


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet5o", "resnet50"), ("efficientnet-b0", "efficientnet_b0"), ("timm:resnet5o", "timm:resnet50"), ("x", None)],
)
def test_a_name_that_nobody_knows_is_answered_with_the_nearest(name: str, near: str | None) -> None:
    text = _said(find(name).load)
    assert repr(name) in text
    assert "lite0" in text
    assert (near is None) == ("Near:" not in text)
    assert near is None or near in text


@pytest.mark.parametrize("name", ["fcn_resnet50", "timm:botnet50ts_256", "timm:resnet10t.nosuch"])
def test_a_network_that_classifies_nothing_or_has_no_weights_is_refused_before_any_download(name: str) -> None:
    _said(find(name).load)


def test_a_tag_that_does_not_exist_is_answered_with_those_that_do() -> None:
    assert "timm:resnet10t.c3_in1k" in _said(find("timm:resnet10t.nosuch").load)


def test_the_identity_of_a_file_is_its_content(tmp_path: Path) -> None:
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    a.write_bytes(b"1")
    b.write_bytes(b"1")
    same = find(str(a)).identity
    assert find(str(b)).identity == same
    b.write_bytes(b"2")
    assert find(str(b)).identity != same


@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".pt", ".PT"])
def test_a_model_file_that_is_not_there_or_empty_is_one_line(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    assert str(path) in _said(lambda: find(str(path)))
    path.mkdir()
    assert str(path) in _said(lambda: find(str(path)))
    path.rmdir()
    path.write_bytes(b"")
    assert "empty" in _said(lambda: find(str(path)))


# Weights that must come over the network.


@pytest.mark.parametrize("error", [urllib.error.URLError("LoadedModel is unreachable"), TimeoutError(), OSError("a\nb")])
@pytest.mark.parametrize("name", ["resnet18", "timm:resnet10t"])
def test_weights_that_cannot_be_downloaded_are_said_plainly(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: object, **how: object) -> None:
        raise error

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr(torch.hub, "urlopen", refuse)
    monkeypatch.setattr(timm.models._builder, "load_state_dict_from_hf", refuse)
    text = _said(find(name).load)
    assert repr(name) in text
    assert "could not be downloaded" in text
    assert "lite0" in text


def test_weights_that_came_and_do_not_fit_are_no_failed_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would look for a fault of the program, or of a library, in the network."""
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *args, **how: {})
    with pytest.raises(RuntimeError, match="Missing key"):
        find("resnet18").load()


# .pt: checkpoints.


@pytest.fixture(scope="module")
def checkpoint() -> dict[str, Any]:
    torch.manual_seed(2)
    net = timm.create_model("resnet10t", num_classes=3).eval()
    return {"arch": "resnet10t", "state_dict": net.state_dict(), "labels": ["cat", "dog", "Großfuß"]}


def _saved(path: Path, content: object) -> str:
    torch.save(content, path)
    return str(path)


def test_a_checkpoint_that_names_its_network_is_loaded_with_its_labels(tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    network = find(_saved(tmp_path / "m.pt", checkpoint)).load()
    assert network.names == ("cat", "dog", "Großfuß")
    assert (network.input.height, network.input.width, network.batch) == (176, 176, None)
    net = timm.create_model("resnet10t", num_classes=3).eval()
    net.load_state_dict(checkpoint["state_dict"])
    x = torch.rand(2, 3, 176, 176)
    with torch.inference_mode():
        assert torch.allclose(network.module(x), net(x), atol=1e-5)
    assert not network.module.training


def test_a_checkpoint_of_torchvision_is_loaded(tmp_path: Path) -> None:
    import torchvision

    net = torchvision.models.squeezenet1_1(weights=None, num_classes=2)
    content = {"arch": "squeezenet1_1", "state_dict": net.state_dict(), "labels": ["a", "b"]}
    network = find(_saved(tmp_path / "m.pt", content)).load()
    with torch.inference_mode():
        assert network.module(torch.zeros(1, 3, 224, 224)).shape == (1, 2)


class _Mischief:
    """Makes a file when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._proof),)


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    proof = tmp_path / "ran"
    path = _saved(tmp_path / "evil.pt", {**checkpoint, "extra": _Mischief(proof)})
    assert "weights_only" in _said(find(path).load)
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the file would have run its code"


def test_code_in_an_exported_program_does_not_run(tmp_path: Path, tiny: Tiny) -> None:
    """torch.export.load falls back to plain unpickling where weights alone will not do."""
    proof = tmp_path / "ran"
    good, evil = tmp_path / "good.pt2", tmp_path / "evil.pt2"
    _export(good, tiny, (torch.zeros(1, 3, SIDE, SIDE),))
    payload = io.BytesIO()
    torch.save((_Mischief(proof),), payload)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(evil, "w") as target:
        for name in source.namelist():
            target.writestr(name, payload.getvalue() if "sample_inputs" in name else source.read(name))
    load = torch.load
    _said(find(str(evil)).load)
    assert not proof.exists()
    assert torch.load is load
    pickle.loads(pickle.dumps(_Mischief(proof)))
    assert proof.exists(), "the mischief works where it is unpickled"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arch": "resnet10x"}, "no model named"),
        ({"arch": None}, "does not say of which network"),
        ({"state_dict": [1, 2]}, "do not fit"),
        ({"state_dict": {"fc.weight": torch.zeros(2)}}, "Missing key"),
        ({"labels": ["one"]}, "are for 3 classes, and it names 1"),
        ({"labels": None}, "are for 3 classes, and it names none"),
        ({"labels": 3}, "list of names"),
        ({"labels": "abc"}, "list of names"),
        ({"labels": [1, 2, 3]}, "list of names"),
    ],
)
def test_what_is_wrong_with_a_checkpoint_is_said(
    tmp_path: Path, checkpoint: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    assert says in _said(find(_saved(tmp_path / "m.pt", {**checkpoint, **change})).load)


def test_weights_without_a_network_a_whole_network_and_rubbish_are_refused(tmp_path: Path, tiny: Tiny) -> None:
    for content in (tiny.state_dict(), tiny, torch.zeros(3)):
        _said(find(_saved(tmp_path / "m.pt", content)).load)
    (tmp_path / "m.pt").write_bytes(b"rubbish" * 100)
    _said(find(str(tmp_path / "m.pt")).load)


# .pt2: exported programs.


def _export(path: Path, net: torch.nn.Module, args: tuple[Any, ...], **how: Any) -> str:
    torch.export.save(torch.export.export(net, args, **how), path)
    return str(path)


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_an_exported_program_answers_like_the_network_in_both_engines(tmp_path: Path, tiny: Tiny, batch: int | None) -> None:
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if batch is None else {}
    path = _export(tmp_path / "m.pt2", tiny, (torch.zeros(batch or 2, 3, SIDE, SIDE),), **shapes)
    network = find(path).load()
    assert network.batch == batch
    assert (network.input.height, network.input.width) == (SIDE, SIDE)
    pixels = _pixels(min(3, batch or 3))
    expected = _expected(tiny, network.input, pixels)
    engine = TorchEngine(network, device=HostDevice(), precision="fp32", threads=1)
    np.testing.assert_allclose(_answers(engine, batch or 4, pixels), expected, atol=1e-4)
    convert.save(convert.from_network(network), tmp_path / "model.xml")
    openvino = OpenVinoEngine(tmp_path / "model.xml", "fp32", 1, None, network.batch)
    np.testing.assert_allclose(_answers(openvino, batch or 4, pixels), expected, atol=1e-3)


class _Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).mean((2, 3))


class _Scaled(torch.nn.Module):
    def forward(self, factor: int, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) * factor


class _None(torch.nn.Module):
    def forward(self) -> torch.Tensor:
        return torch.ones(1, 3)


@pytest.mark.parametrize(
    ("net", "args"),
    [
        (torch.nn.Linear(2, 2), (torch.zeros(1, 2),)),
        (torch.nn.Conv2d(1, 2, 3), (torch.zeros(1, 1, 8, 8),)),
        (_Two(), (torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8))),
        (_Scaled(), (3, torch.zeros(1, 3, 8, 8))),
        (_None(), ()),
    ],
    ids=["a vector", "grey pictures", "two inputs", "a number", "no input"],
)
def test_a_program_that_classifies_no_pictures_is_refused(tmp_path: Path, net: torch.nn.Module, args: tuple[Any, ...]) -> None:
    assert "(batch, 3, height, width)" in _said(find(_export(tmp_path / "m.pt2", net.eval(), args)).load)


def test_a_damaged_program_is_one_line(tmp_path: Path, tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    path = Path(_export(tmp_path / "m.pt2", tiny, (torch.zeros(1, 3, SIDE, SIDE),)))
    whole = path.read_bytes()
    for damaged in (b"rubbish" * 100, whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert "torch.export.save" in _said(find(str(path)).load)
    assert capfd.readouterr().err == ""


# .onnx


def _onnx(path: Path, batch: int | None, *, channels: int = 3, side: int | str = SIDE, fixed_inside: bool = False) -> Path:
    """The mean of every channel; `fixed_inside`: the graph itself works for one batch size only."""
    input_ = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch or "b", channels, side, side])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch or "b", channels])
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["m"]), helper.make_node("Flatten", ["m"], ["f"])]
    extra = []
    if fixed_inside:
        extra.append(helper.make_tensor("shape", TensorProto.INT64, [2], [batch or 1, channels]))
        nodes.append(helper.make_node("Reshape", ["f", "shape"], ["y"]))
    else:
        nodes.append(helper.make_node("Identity", ["f"], ["y"]))
    graph = helper.make_graph(nodes, "means", [input_], [output], extra)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.mark.parametrize(
    ("batch", "fixed_inside", "takes"), [(None, False, None), (1, False, None), (4, False, None), (4, True, 4)]
)
def test_an_onnx_file_runs_in_openvino_at_any_batch_that_its_graph_allows(
    tmp_path: Path, batch: int | None, fixed_inside: bool, takes: int | None
) -> None:
    path = _onnx(tmp_path / "m.onnx", batch, fixed_inside=fixed_inside)
    model, spec, only = convert.from_onnx(path)
    assert only == takes
    convert.save(model, tmp_path / "model.xml")
    pixels = _pixels(3)
    engine = OpenVinoEngine(tmp_path / "model.xml", "fp32", 1, None, only)
    mean, std = (np.array(v, np.float32) for v in (spec.mean, spec.std))
    expected = (pixels.mean((2, 3)) / 255 - mean) / std
    np.testing.assert_allclose(_answers(engine, 4, pixels), expected, atol=1e-4)


@pytest.mark.parametrize(("how", "says"), [({"channels": 1}, "3 (RGB)"), ({"side": "s"}, "(batch, 3, height, width)")])
def test_an_onnx_file_that_takes_no_pictures_is_refused(tmp_path: Path, how: dict[str, Any], says: str) -> None:
    assert says in _said(lambda: convert.from_onnx(_onnx(tmp_path / "m.onnx", None, **how)))


def test_a_damaged_onnx_file_is_one_line(tmp_path: Path) -> None:
    path = _onnx(tmp_path / "m.onnx", None)
    for damaged in (b"rubbish" * 100, path.read_bytes()[:40]):
        path.write_bytes(damaged)
        assert "ONNX" in _said(lambda: convert.from_onnx(path))


def test_an_onnx_file_is_not_for_torch(tmp_path: Path) -> None:
    assert "OpenVINO" in _said(find(str(_onnx(tmp_path / "m.onnx", None))).load)


def test_a_network_that_gives_no_classes_is_refused_by_the_converter() -> None:
    conv = torch.nn.Conv2d(3, 2, 3).eval()
    text = _said(lambda: convert.from_network(LoadedModel(conv, InputSpec(SIDE, SIDE, SIDE), None)))
    assert "(batch, classes)" in text


# Labels.


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"a\nb\n", ("a", "b")),
        (b"a\nb", ("a", "b")),
        (b"\xef\xbb\xbfa\r\nb\r\n", ("a", "b")),
        (b"a\n\n b \n\n", ("a", "", " b ", "")),
        ("Großfuß\n猫\u2028x\n".encode(), ("Großfuß", "猫\u2028x")),
    ],
    ids=["plain", "no last newline", "BOM and CRLF", "empty names", "other scripts"],
)
def test_line_k_names_class_k(tmp_path: Path, content: bytes, names: tuple[str, ...]) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    assert read_labels(path) == names


def test_empty_labels_are_refused_and_not_passed_over(tmp_path: Path) -> None:
    for content in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "names.txt").write_bytes(content)
        with pytest.raises(UsageError, match="are empty"):
            read_labels(tmp_path / "names.txt")


def test_labels_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    assert str(path) in _said(lambda: read_labels(path))
    path.write_bytes("für".encode("latin-1"))
    assert "byte 1" in _said(lambda: read_labels(path))
    assert str(tmp_path) in _said(lambda: read_labels(tmp_path))


def test_the_default_models_names_are_imagenets() -> None:
    names = imagenet_names()
    assert len(names) == 1000
    assert (names[335], names[948]) == ("fox squirrel", "Granny Smith")


def test_junk_is_one_line_and_nothing_of_openvino_s_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "junk.onnx"
    path.write_bytes(bytes(range(256)) * 20)
    said = _said(lambda: convert.from_onnx(path))
    assert "Model can't be parsed" in said
    assert "src/" not in said
    assert capfd.readouterr() == ("", "")


def test_a_hub_that_does_not_answer_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is asked once, not for a minute, and its cache is still used."""
    from huggingface_hub import constants

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("pipelines.predict.models.loaders.getproxies", dict)
    said = _said(find("timm:mobilenetv3_small_050").load)
    assert f"127.0.0.1:{port} does not answer" in said
    assert constants.HF_HUB_OFFLINE is False
