"""How a model runs: the options that a person or a program may choose, and the work that its predictor is sized for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipelines.choices import Batching, Fit
from pipelines.predict.models.comparison import Pictures
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import MakeTask


@dataclass(frozen=True, slots=True)
class Load:
    """The work that a predictor is sized for. cameras: up to so many live streams. files: files are possible. stills: all work
    is pictures. requests: callers wait for each picture."""

    cameras: int = 0
    files: bool = True
    stills: bool = False
    requests: bool = False

    @property
    def bulk(self) -> bool:
        """No frame has a deadline."""
        return self.cameras == 0 and not self.requests

    def largest(self, max_batch: int) -> int:
        """The largest batch that can occur: a camera has one frame at a time before the engine."""
        return max_batch if self.files or self.requests else max(1, min(max_batch, self.cameras))


REQUESTS = Load(files=False, requests=True)


def default_cache() -> Path:
    """The folder of converted models if no other is given."""
    return Path.home() / ".cache" / "watchline"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How a model runs. Times in seconds."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    engine: str = "auto"
    """auto, or a name of `kinds.KINDS`."""
    precision: str = "auto"
    """auto, or a precision of the engine."""
    fit: Fit = "crop"
    """How a frame meets the model's input."""
    labels: Path | None = None
    """A file that names the classes; None: the model's own names."""
    task: MakeTask = ClassificationTask
    """The meaning of the model's output."""
    topk: int = 5
    """Most labels of an answer."""
    threads: int | None = None
    """Of the model on the CPU, in each process; None: all cores."""
    stagers: int | None = None
    """Threads that stage the rows of a batch; None: a quarter of the cores, at least 1."""
    workers: int | None = None
    """Processes that run the model; None: this one does."""
    budget_s: float = 0.050
    """Latency budget of a live frame."""
    max_batch: int = 32
    max_wait_s: float | None = None
    """Longest wait for a full batch; None: the deadlines decide."""
    batching: Batching = "dynamic"
    """Of requests."""
    load: Load = field(default_factory=lambda: Load(cameras=16))
    cache: Path | None = None
    """Folder of converted models; None: `default_cache`."""
    pictures: Pictures | None = None
    """Pictures on which `auto` compares engines and precisions at a model's first use; None: it takes fp32."""
    probe_s: tuple[float, float] = (0.0, 0.0)
    """Time of a batch of the probe, and of each frame in it."""
