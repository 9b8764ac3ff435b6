"""The answers of the service, as schemas for its documentation; the examples are true answers of the default model.

The reports are frozen dataclasses: the service makes them, FastAPI documents them. `answer` makes the answers of pictures as
dictionaries: they pass no validation on their way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from pipelines.frame import Frame, Prediction
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import answers_as_dict

LABELS: list[Any] = [{"id": 335, "name": "fox squirrel", "p": 0.8831}, {"id": 356, "name": "weasel", "p": 0.0071}]
LATENCY: dict[str, Any] = {
    "receive": 0.31,
    "decode": 1.92,
    "queue": 0.42,
    "preprocess": 0.61,
    "infer": 6.74,
    "answer": 0.25,
    "total": 10.25,
}


class Label(BaseModel):
    """A class of the model, with its probability."""

    id: int = Field(description="Class number, from 0")
    name: str
    p: float = Field(description="Probability, 0 to 1")


class Batch(BaseModel):
    """The batch of the picture."""

    id: int
    size: int = Field(description="Pictures in it")


class LatencyMs(BaseModel):
    """Milliseconds of each stage. They add up to `total`, from the request's headers to its answer."""

    receive: float = Field(description="The body came in")
    decode: float
    queue: float = Field(description="Waiting: for a decoding thread, and for a batch")
    preprocess: float
    infer: float
    answer: float = Field(description="Waiting for the other pictures of the request; the answer was made")
    total: float


class Answer(BaseModel):
    """The labels of one picture, most probable first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"labels": LABELS, "batch": {"id": 17, "size": 4}, "latency_ms": LATENCY}]}
    )
    labels: list[Label]
    batch: Batch
    latency_ms: LatencyMs


class Failure(BaseModel):
    """Why there is no result. `error` is for programs, `message` for people."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "undecodable", "message": "the picture is cut off: its end is missing"}]}
    )
    error: str
    message: str


class FailedPicture(Failure):
    """One picture of a form that has no result; the others have theirs."""

    status: int = Field(description="The HTTP status of this picture in a request of its own")
    file: str | None = None


class AnswerOfMany(Answer):
    """The labels of one picture of a form."""

    file: str | None = Field(default=None, description="The file name in the form")


class Answers(BaseModel):
    """One result for each picture, in their order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "results": [
                        {"file": "a.jpg", "labels": LABELS, "batch": {"id": 17, "size": 2}, "latency_ms": LATENCY},
                        {"file": "b.jpg", "status": 400, "error": "undecodable", "message": "the picture is cut off"},
                    ]
                }
            ]
        }
    )
    results: list[AnswerOfMany | FailedPicture]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The model, its engine, and the limits of the service."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "lite0",
                    "classes": 1000,
                    "labels": ["tench", "goldfish", "..."],
                    "engine": "openvino",
                    "precision": "fp32",
                    "device": "cpu",
                    "why": "openvino fp32 on the CPU (...)",
                    "workers": 2,
                    "batching": "dynamic",
                    "max_batch": 16,
                    "max_wait_ms": 5.0,
                    "queue_capacity": 96,
                    "request_timeout_s": 5.0,
                    "max_upload_mb": 16.0,
                    "topk": 5,
                    "most_topk": 20,
                    "profile_ms": {"1": 6.7, "2": 12.6},
                }
            ]
        },
    )
    model: str
    classes: int
    labels: Sequence[str]
    engine: str
    precision: str
    device: str
    why: str
    workers: int
    batching: str
    max_batch: int
    max_wait_ms: float
    queue_capacity: int
    request_timeout_s: float
    max_upload_mb: float
    topk: int
    most_topk: int
    profile_ms: Annotated[Mapping[str, float], Field(description="Median time of a batch, by its size")]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class State:
    """Whether the service takes requests."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"examples": [{"ready": True, "state": "ready", "workers": 2, "wanted": 2}]}
    )
    ready: bool
    state: Annotated[
        str, Field(description="starting, ready, degraded (workers are replaced), failed (none is left), or stopping")
    ]
    workers: Annotated[int, Field(description="Workers that are warm")]
    wanted: Annotated[int, Field(description="Workers that the options ask for")]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HealthFigure:
    """One figure, its healthy range, and the options that change it."""

    value: float | None
    unit: str
    healthy: Annotated[tuple[float | None, float | None], Field(description="Least and most, null: no bound")]
    ok: Annotated[bool | None, Field(description="null: too little was measured")]
    hint: Annotated[str, Field(description="The options to change")]


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The four figures that operators watch, over the last 30 to 60 seconds."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "healthy": True,
                    "seconds": 47.2,
                    "pictures": 9312,
                    "figures": {
                        "queue_wait_p99_ms": {"value": 3.1, "unit": "ms", "healthy": [None, 5], "ok": True, "hint": "-"}
                    },
                }
            ]
        },
    )
    healthy: bool
    seconds: float
    pictures: int
    figures: Mapping[str, HealthFigure]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


STAGES = tuple(LatencyMs.model_fields)
"""Stages of an answered picture, and `total`."""


def answer(prediction: Prediction, stages: dict[str, float]) -> dict[str, Any]:
    """The answer of one picture. stages: the seconds of each stage, see `stages`."""
    return {
        **answers_as_dict(prediction, ClassificationTask.as_dict),
        "batch": {"id": prediction.batch_id, "size": prediction.batch_size},
        "latency_ms": {name: round(1e3 * seconds, 3) for name, seconds in stages.items()},
    }


def stages(frame: Frame, arrived_s: float, received_s: float, now_s: float) -> dict[str, float]:
    """Seconds of each stage of an answered picture. All times are monotonic. arrived_s: the headers of the request came;
    received_s: its body is complete. The arrival in the frame's trace is the begin of decoding.

    :raises ValueError: if the frame has no prediction.
    """
    t = frame.trace
    begun, decoded, taken, staged, inferred = t.arrived_s, t.decoded_s, t.taken_s, t.staged_s, t.inferred_s
    if taken is None or staged is None or inferred is None:
        raise ValueError(f"stages() needs a frame with a prediction, got {frame}")
    return {
        "receive": received_s - arrived_s,
        "decode": decoded - begun,
        "queue": (begun - received_s) + (taken - decoded),
        "preprocess": staged - taken,
        "infer": inferred - staged,
        "answer": now_s - inferred,
        "total": now_s - arrived_s,
    }
