"""PyTorch, on the CPU and on CUDA, with one code: copies and kernels are work enqueued on streams, ordered by events.

On CUDA two streams of the predictor's own carry them, so that the copy of one batch runs beside the kernels of another;
pinned host memory makes the copies asynchronous. The CPU offers nothing asynchronous: a host stream keeps its work until a
thread waits for it, so that only the completion thread calls torch (each calling thread would build its own OpenMP team).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from pipelines.predict.engines.engine import HostEngine, Slot, padded
from pipelines.predict.loaded_model import LoadedModel
from pipelines.tasks.task import OutputSpec, Rows


class Event(Protocol):
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Wait until all work before the point is done. An error of that work is raised here."""


class Stream(Protocol):
    """An ordered queue of work on a device. Enqueued by one thread."""

    def run(self, work: Callable[[], object]) -> None:
        """Enqueue `work`; on CUDA: the kernels and copies that it launches."""

    def wait(self, event: Any) -> None:
        """Let all later work begin after `event`."""

    def record(self) -> Event:
        """The point after all enqueued work."""


class Device(Protocol):
    """The place of tensors and streams."""

    torch_device: torch.device

    def stream(self) -> Stream: ...

    def pinned(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Host memory that the device copies asynchronously."""


class CudaStream:
    """A CUDA stream. All kernels and copies of `run` go to it."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def run(self, work: Callable[[], object]) -> None:
        with torch.cuda.stream(self._stream):
            work()

    def wait(self, event: torch.cuda.Event) -> None:
        self._stream.wait_event(event)

    def record(self) -> torch.cuda.Event:
        # Blocking: the waiting thread sleeps instead of spinning on a core that decoders need.
        event = torch.cuda.Event(blocking=True)
        event.record(self._stream)
        return event


class CudaDevice:
    """One GPU."""

    def __init__(self, name: str) -> None:
        self.torch_device = torch.device(name)

    def stream(self) -> CudaStream:
        return CudaStream(self.torch_device)

    def pinned(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, pin_memory=True)


class HostEvent:
    """A point in a host stream. `synchronize` does the work up to it, in the calling thread."""

    def __init__(self, stream: HostStream, upto: int) -> None:
        self._stream = stream
        self._upto = upto

    def synchronize(self) -> None:
        self._stream.work_until(self._upto)


class HostStream:
    """Work that a waiting thread does. One thread enqueues it, one other does it."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()
        self._enqueued = 0
        self._done = 0

    def run(self, work: Callable[[], object]) -> None:
        self._work.append(work)
        self._enqueued += 1

    def wait(self, event: HostEvent) -> None:
        self.run(event.synchronize)

    def record(self) -> HostEvent:
        return HostEvent(self, self._enqueued)

    def work_until(self, upto: int) -> None:
        while self._done < upto:
            self._done += 1
            self._work.popleft()()


class HostDevice:
    """The CPU."""

    torch_device = torch.device("cpu")

    def stream(self) -> HostStream:
        return HostStream()

    def pinned(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)


class TorchSlot(Slot):
    """Host and device buffers of one batch, and the event after which its outputs lie on the host."""

    def __init__(self, device: Device, max_batch: int, shape: tuple[int, ...], outputs: Sequence[torch.Tensor]) -> None:
        """outputs: of the model for any batch."""
        self.host_in = device.pinned(max_batch, *shape, dtype=torch.uint8)
        super().__init__(self.host_in.numpy())
        self.device_in = torch.zeros((max_batch, *shape), dtype=torch.uint8, device=device.torch_device)
        self.host_out = [device.pinned(max_batch, *o.shape[1:], dtype=o.dtype) for o in outputs]
        self.done: Event | None = None


class TorchEngine(HostEngine):
    """An eager network behind its normalisation."""

    name = "torch"

    def __init__(self, network: LoadedModel, *, device: Device, precision: str, threads: int) -> None:
        """threads: of torch on the CPU."""
        self.precision = precision
        self.device = str(device.torch_device)
        self.sizes = None if network.batch is None else (network.batch,)
        self._network = network
        self._net: torch.nn.Module | None = None
        self._shape = (3, network.input.height, network.input.width)
        self._device = device
        self._threads = threads
        self._dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]

    def open(self, max_batch: int, slots: int) -> list[TorchSlot]:
        if self._device.torch_device.type == "cpu":
            torch.set_num_threads(self._threads)
        there = self._device.torch_device
        self._net = self._network.module.to(device=there, dtype=self._dtype, memory_format=torch.channels_last)
        spec = self._network.input
        self._mean, self._std = (torch.tensor(v, device=there).view(1, 3, 1, 1) * 255 for v in (spec.mean, spec.std))
        self._copies, self._kernels = self._device.stream(), self._device.stream()
        example = torch.zeros((self._network.batch or 1, *self._shape), dtype=torch.uint8, device=there)
        with torch.inference_mode():
            outputs = self._forward(example)
        rows = padded(self.sizes, max_batch)
        made = [TorchSlot(self._device, rows, self._shape, outputs) for _ in range(slots)]
        self.outputs = tuple(OutputSpec(tuple(h.shape[1:]), h.numpy().dtype) for h in made[0].host_out)
        if there.type == "cuda":
            # All of this ran on the default stream; the engine's own streams do not wait for it.
            torch.cuda.synchronize(there)
        return made

    def _forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normal = ((pixels.float() - self._mean) / self._std).to(self._dtype, memory_format=torch.channels_last)
        assert self._net is not None
        out = self._net(normal)
        outputs = out if isinstance(out, (tuple, list)) else (out,)
        return tuple(o.float() if o.is_floating_point() else o for o in outputs)

    def start(self, slot: TorchSlot, n: int) -> None:
        n = padded(self.sizes, n)
        self._copies.run(lambda: slot.device_in[:n].copy_(slot.host_in[:n], non_blocking=True))
        copied = self._copies.record()
        self._kernels.wait(copied)
        self._kernels.run(lambda: self._compute(slot, n))
        slot.done = self._kernels.record()

    @torch.inference_mode()
    def _compute(self, slot: TorchSlot, n: int) -> None:
        for host, output in zip(slot.host_out, self._forward(slot.device_in[:n]), strict=True):
            host[:n].copy_(output, non_blocking=True)

    def wait(self, slot: TorchSlot, n: int) -> Rows:
        if slot.done is None:
            raise RuntimeError("wait() for a slot that was never started")
        slot.done.synchronize()
        return tuple(host[:n].numpy() for host in slot.host_out)

    def memory_mb(self) -> float | None:
        if self._device.torch_device.type != "cuda":
            return None
        return torch.cuda.memory_reserved(self._device.torch_device) / 2**20

    def close(self) -> None:
        self._net = None
