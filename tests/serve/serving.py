"""A real service on 127.0.0.1, in this process, and requests to it over real connections."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from app.config import Settings
from app.serve.serve import MakePool, Server, make_model
from app.serve.serve_options import ServeOptions
from pipelines.predict.engines.engine import Engine
from pipelines.predict.models.builder import Model
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduling.profile import Profile, Timing
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.tasks.classification import ClassificationTask
from tests.predict.fakes import Held, LateEngine

JPEG = {"Content-Type": "image/jpeg"}
RGB = "application/x-raw-rgb"


@dataclass(frozen=True, slots=True)
class Said:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def label(self) -> str:
        """The name of the first label: the mean luma if the model is the probe."""
        assert self.status == 200, self.body
        return str(self.json["labels"][0]["name"])


@contextmanager
def served(
    *, token: bytes | None = None, make: MakePool = make_model, model: Mapping[str, Any] | None = None, **how: Any
) -> Iterator[Server]:
    """A service that is ready. model: its settings, by default the probe; how: its options."""
    options = ServeOptions(port=0, **how)
    waits = {"max_batch": options.max_batch, "max_wait_ms": options.max_wait_ms}
    server = Server(Settings(**({"model": "probe"} | waits | dict(model or {}))), options, token, make)
    server.thread.start()
    try:
        assert server.ready.wait(60)
        assert server.error is None, server.error
        yield server
    finally:
        server.stop()
        server.thread.join()


class Caller:
    """One kept connection."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Said:
        self.connection.request(method, path, body, dict(headers or {}))
        response = self.connection.getresponse()
        return Said(response.status, {k.lower(): v for k, v in response.headers.items()}, response.read())

    def post(self, body: bytes, headers: Mapping[str, str] = JPEG, query: str = "") -> Said:
        return self.ask("POST", f"/v1/classify{query}", body, headers)


def ask(url: str, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Said:
    with Caller(url) as caller:
        return caller.ask(method, path, body, headers)


def get(url: str, path: str, **headers: str) -> Said:
    return ask(url, "GET", path, headers=headers)


def post(url: str, body: bytes, headers: Mapping[str, str] = JPEG, query: str = "") -> Said:
    return ask(url, "POST", f"/v1/classify{query}", body, headers)


def together(count: int, work: Any) -> list[Any]:
    """Call work(k) in `count` threads that begin together. Returns the results in order; raises the first error."""
    results: list[Any] = [None] * count
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(k: int) -> None:
        try:
            barrier.wait(30)
            results[k] = work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), name=f"caller:{k}") for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def encoded(picture: Image.Image, format: str = "JPEG", **how: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, format, **how)
    return out.getvalue()


def grey(level: int, size: tuple[int, int] = (64, 48)) -> bytes:
    """A JPEG with one luma: the probe answers with it."""
    return encoded(Image.new("L", size, level), quality=95)


def noise(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Random pixels: no encoder compresses them well."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8))


def halves(width: int = 64, height: int = 48) -> npt.NDArray[np.uint8]:
    """(height, width, 3) RGB: left half red, right half blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2], pixels[:, width // 2 :] = (255, 0, 0), (0, 0, 255)
    return pixels


def form(files: Mapping[str, bytes] | list[tuple[str, bytes]], boundary: str = "b0und4ry") -> tuple[bytes, dict[str, str]]:
    """A multipart body with a part for each picture, and its headers."""
    parts = files.items() if isinstance(files, Mapping) else files
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="p"; filename="{name}"\r\n\r\n'.encode() + data + b"\r\n"
        for name, data in parts
    )
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def held(gate: Held, engine: Callable[[Held], Engine] | None = None) -> MakePool:
    """A predictor in this process. Its device waits at a gate. engine: makes another device."""

    def make(settings: Settings, options: ServeOptions, events: PredictorEvents) -> Model:
        device: Engine = LateEngine(gate) if engine is None else engine(gate)
        profile = Profile({1: Timing(1e-3, 1e-3)}, options.max_batch)
        batching = options.batching
        wait_s = 1e-3 * options.max_wait_ms
        scheduler = SchedulerOptions(max_batch=options.max_batch, max_wait_s=wait_s, slots=1, batching=batching)
        names = tuple(str(k) for k in range(256))
        how = PredictorOptions(profile=profile, scheduler=scheduler)
        task = ClassificationTask(names, settings.topk)
        predictor = AsyncBatchPredictor(device, ProbePreprocess(), task, how, events=events)
        return Model(predictor, device, ProbePreprocess(), task, "held", names, "held")

    return make
