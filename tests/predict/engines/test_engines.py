"""One contract for every engine, and the behaviour of a real device under the torch engine: copies that run late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.predict.engines import openvino_convert as convert
from pipelines.predict.engines.engine import warm_sizes
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.engines.torch import CudaDevice, HostDevice, TorchEngine
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.preprocess import InputSpec
from pipelines.predict.workers.worker_engine import WorkerEngine
from tests.predict.fakes import LateDevice, LateStream
from tests.system import need

pytestmark = pytest.mark.timeout(60)
SPEC = InputSpec(8, 8, 9, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


class Means(torch.nn.Module):
    """Logits: the mean of each channel of the normalised input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def _torch(device: Any) -> TorchEngine:
    return TorchEngine(LoadedModel(Means().eval(), SPEC, None), device=device, precision="fp32", threads=1)


def _openvino(folder: Path) -> OpenVinoEngine:
    convert.save(convert.from_network(LoadedModel(Means().eval(), SPEC, None)), folder / "model.xml")
    return OpenVinoEngine(folder / "model.xml", "fp32", 1, None)


ENGINES: dict[str, Callable[[Path], Any]] = {
    "probe": lambda folder: ProbeEngine(),
    "openvino": _openvino,
    "torch": lambda folder: _torch(HostDevice()),
    "torch, late device": lambda folder: _torch(LateDevice()),
    "torch, late device, kernels first": lambda folder: _torch(LateDevice(lambda streams: streams[::-1])),
    "probe, in a worker": lambda folder: WorkerEngine(ProbeEngine()),
    "openvino, in a worker": lambda folder: WorkerEngine(_openvino(folder)),
}


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = ENGINES[request.param](tmp_path)
    yield made
    made.close()


def _fill(slot: Any, n: int, first: int) -> None:
    for k in range(n):
        slot.input[k] = first + k


def _check(engine: Any, logits: Any, n: int, first: int) -> None:
    assert logits.shape == (n, *engine.outputs[0].shape)
    assert logits.dtype == np.float32
    for k in range(n):
        value = first + k
        if engine.name == "probe":
            assert logits[k].argmax() == value
        else:
            np.testing.assert_allclose(logits[k], (value / 255 - 0.5) / 0.5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_row_gets_its_own_answer_at_every_size(engine: Any, n: int) -> None:
    slots = engine.open(8, 2)
    assert len(slots) == 2
    _fill(slots[0], n, 10)
    engine.start(slots[0], n)
    _check(engine, engine.wait(slots[0], n)[0], n, 10)
    engine.close()


def test_two_batches_in_flight_do_not_touch_each_other(engine: Any) -> None:
    a, b = engine.open(4, 2)
    for turn in range(3):
        _fill(a, 3, 20 + turn)
        engine.start(a, 3)
        _fill(b, 4, 120 + turn)
        engine.start(b, 4)
        _check(engine, np.array(engine.wait(a, 3)[0]), 3, 20 + turn)
        _check(engine, np.array(engine.wait(b, 4)[0]), 4, 120 + turn)
    engine.close()


def test_a_smaller_batch_after_a_larger_one_has_nothing_of_it(engine: Any) -> None:
    (slot,) = engine.open(8, 1)
    for n, first in ((8, 10), (3, 100), (1, 200), (8, 30)):
        _fill(slot, n, first)
        engine.start(slot, n)
        _check(engine, engine.wait(slot, n)[0], n, first)
    engine.close()


def test_sizes_that_are_warmed_reach_the_largest_batch(engine: Any) -> None:
    sizes = warm_sizes(engine, 5)
    assert sizes == [] if engine.sizes is None else sizes[-1] >= 5


def test_kernels_wait_for_the_copy_and_the_answer_for_the_kernels() -> None:
    """Without the events in between, the late device would compute on an empty buffer or read an empty answer."""
    device = LateDevice(lambda streams: streams[::-1])
    engine = _torch(device)
    (slot,) = engine.open(2, 1)
    _fill(slot, 2, 50)
    engine.start(slot, 2)
    assert all(s.done == 0 for s in device.streams), "nothing may run before somebody waits"
    _check(engine, engine.wait(slot, 2)[0], 2, 50)


@pytest.mark.parametrize("forgotten", ["copy", "kernels"])
def test_the_test_above_can_fail_without_the_events_answers_are_wrong(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _torch(LateDevice(lambda streams: streams[::-1]))
    (slot,) = engine.open(2, 1)
    if forgotten == "copy":
        monkeypatch.setattr(LateStream, "wait", lambda stream, event: None)
    _fill(slot, 2, 50)
    engine.start(slot, 2)
    if forgotten == "kernels":
        slot.done = engine._copies.record()
    with pytest.raises(AssertionError):
        _check(engine, engine.wait(slot, 2)[0], 2, 50)


def test_a_slot_that_was_never_started_cannot_be_waited_for() -> None:
    engine = _torch(HostDevice())
    (slot,) = engine.open(2, 1)
    with pytest.raises(RuntimeError, match="never started"):
        engine.wait(slot, 1)


def test_bf16_is_the_same_but_for_rounding() -> None:
    engine = TorchEngine(LoadedModel(Means().eval(), SPEC, None), device=HostDevice(), precision="bf16", threads=1)
    (slot,) = engine.open(2, 1)
    _fill(slot, 2, 50)
    engine.start(slot, 2)
    logits = engine.wait(slot, 2)[0]
    np.testing.assert_allclose(logits[0], (50 / 255 - 0.5) / 0.5, atol=0.01)
    assert not np.allclose(logits[0], (50 / 255 - 0.5) / 0.5, atol=1e-6)


def test_a_file_of_one_size_is_padded_by_openvino(tmp_path: Path) -> None:
    convert.save(convert.from_network(LoadedModel(Means().eval(), SPEC, None, batch=4)), tmp_path / "model.xml")
    engine = OpenVinoEngine(tmp_path / "model.xml", "fp32", 1, None, batch=4)
    (slot,) = engine.open(4, 1)
    _fill(slot, 3, 30)
    engine.start(slot, 3)
    _check(engine, engine.wait(slot, 3)[0], 3, 30)
    assert engine.sizes == (4,)


def test_a_kernel_that_raises_raises_where_it_is_waited_for_and_the_next_batch_is_fine() -> None:
    class Picky(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.max() > 0.99:
                raise RuntimeError("too bright")
            return x.mean((2, 3))

    engine = TorchEngine(LoadedModel(Picky().eval(), SPEC, None), device=HostDevice(), precision="fp32", threads=1)
    (slot,) = engine.open(2, 1)
    _fill(slot, 1, 255)
    engine.start(slot, 1)
    with pytest.raises(RuntimeError, match="too bright"):
        engine.wait(slot, 1)
    _fill(slot, 1, 70)
    engine.start(slot, 1)
    _check(engine, engine.wait(slot, 1)[0], 1, 70)


def test_a_network_of_one_size_is_padded(tmp_path: Path) -> None:
    network = LoadedModel(Means().eval(), SPEC, None, batch=4)
    engine = TorchEngine(network, device=HostDevice(), precision="fp32", threads=1)
    (slot,) = engine.open(4, 1)
    _fill(slot, 3, 30)
    engine.start(slot, 3)
    _check(engine, engine.wait(slot, 3)[0], 3, 30)
    assert engine.sizes == (4,)


@pytest.mark.needs_cuda
def test_cuda_slots_are_read_in_time_and_answers_equal_the_cpus() -> None:
    need("cuda")
    engine = _torch(CudaDevice("cuda:0"))
    slots = engine.open(8, 2)
    assert slots[0].host_in.is_pinned()
    assert slots[0].host_out[0].is_pinned()
    for turn in range(200):
        slot = slots[turn % 2]
        _fill(slot, 8, turn)
        engine._copies.run(lambda: torch.cuda._sleep(200_000))
        engine.start(slot, 8)
        _check(engine, engine.wait(slot, 8)[0], 8, turn)
    engine.close()


@pytest.mark.needs_cuda
def test_cuda_work_goes_to_streams_of_its_own() -> None:
    need("cuda")
    seen: list[int] = []

    class Spy(Means):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.cuda.current_stream().cuda_stream)
            return super().forward(x)

    network = LoadedModel(Spy().eval(), SPEC, None)
    engine = TorchEngine(network, device=CudaDevice("cuda:0"), precision="fp32", threads=1)
    (slot,) = engine.open(1, 1)
    engine.start(slot, 1)
    engine.wait(slot, 1)
    assert seen[-1] != torch.cuda.default_stream().cuda_stream
    engine.close()


@pytest.mark.needs_cuda
def test_cuda_answers_equal_the_cpus_and_no_cuda_tensor_leaves() -> None:
    need("cuda")
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    answers = []
    for device in (HostDevice(), CudaDevice("cuda:0")):
        engine = TorchEngine(LoadedModel(net.eval(), SPEC, None), device=device, precision="fp32", threads=1)
        (slot,) = engine.open(4, 1)
        slot.input[:] = np.random.default_rng(4).integers(0, 256, slot.input.shape, np.uint8)
        engine.start(slot, 4)
        logits = engine.wait(slot, 4)[0]
        assert type(logits) is np.ndarray
        answers.append(np.array(logits))
        engine.close()
        net.cpu()
    np.testing.assert_allclose(answers[0], answers[1], atol=2e-3)
