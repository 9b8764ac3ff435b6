"""`watchline classify`: the labels of pictures, from a service or from a model in this process."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from app.config import Settings
from app.terminal.exit_codes import DONE, FAILED, WRONG
from app.terminal.stdio import StandardOutput
from pipelines.errors import Dropped, Refused, SourceError, UsageError, WatchlineError
from pipelines.frame import Frame, Prediction, StreamInfo, Trace
from pipelines.redact import printable
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import answers_as_dict

log = logging.getLogger("watchline.classify")

AT_ONCE = 32
"""Most pictures in flight: enough to fill batches."""
QUEUE = "classify"
Submit = Callable[[bytes], Future[Prediction]]


def classify(
    pictures: Sequence[str],
    settings: Settings,
    results: StandardOutput,
    *,
    url: str | None,
    token_env: str | None,
    as_json: bool,
) -> int:
    """Print the labels of each picture, in order. Returns the exit code.

    :raises UsageError: if the options are wrong, or the service answers no request.
    """
    if token_env is not None and url is None:
        raise UsageError("--token-env is for --url: a model that is loaded here needs no token")
    with _service(url, token_env, settings) if url is not None else _here(settings) as submit:
        good = bad = 0
        for name, outcome in _in_order(pictures, submit):
            if isinstance(outcome, Prediction):
                good += 1
                results.put(_as_json(name, outcome) if as_json else _as_line(name, outcome))
            else:
                bad += 1
                log.error("%s: %s", printable(name), outcome)
    return DONE if not bad else FAILED if good else WRONG


def _in_order(pictures: Sequence[str], submit: Submit) -> Iterator[tuple[str, Prediction | Exception]]:
    waiting: list[tuple[str, Future[Prediction]]] = []
    for name in pictures:
        waiting.append((name, _begun(name, submit)))
        if len(waiting) == AT_ONCE:
            first, future = waiting.pop(0)
            yield first, _outcome(future)
    for name, future in waiting:
        yield name, _outcome(future)


def _begun(name: str, submit: Submit) -> Future[Prediction]:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return submit(data)
    except (OSError, SourceError) as error:
        failed: Future[Prediction] = Future()
        failed.set_exception(SourceError(error.strerror or str(error)) if isinstance(error, OSError) else error)
        return failed


def _outcome(future: Future[Prediction]) -> Prediction | Exception:
    """:raises UsageError: if the service answers no request."""
    try:
        return future.result()
    except UsageError:
        raise
    except Refused as refused:
        return WatchlineError(f"the service is busy; try again in {math.ceil(refused.retry_after_s)} s")
    except Dropped:
        return WatchlineError("no answer before the deadline")
    except Exception as error:
        return error


@contextmanager
def _service(url: str, token_env: str | None, settings: Settings) -> Iterator[Submit]:
    from app.serve.client import Client
    from app.serve.serve_options import token_from

    token = None if token_env is None else token_from(token_env)
    with Client(url, token=token) as client:
        yield lambda data: client.submit_encoded(data, topk=settings.topk)


@contextmanager
def _here(settings: Settings) -> Iterator[Submit]:
    from app import build
    from pipelines.predict.models.model_options import Load
    from pipelines.predict.predictor import PredictorEvents
    from pipelines.sources.files.encoded import EncodedPictures

    model = build.make_model(settings, PredictorEvents(), Load(stills=True))
    decoder = EncodedPictures()
    log.debug("model %s: %s", settings.model, model.why)
    with model.predictor as predictor:
        predictor.open_requests(QUEUE, capacity=AT_ONCE)

        def submit(data: bytes) -> Future[Prediction]:
            began_s = time.monotonic()
            picture = decoder.decode(data)
            return predictor.submit(Frame(QUEUE, 0, 0, picture, None, StreamInfo(), Trace(began_s, time.monotonic())))

        yield submit


def _as_json(name: str, prediction: Prediction) -> str:
    return json.dumps({"file": name, **answers_as_dict(prediction, ClassificationTask.as_dict)}, ensure_ascii=False)


def _as_line(name: str, prediction: Prediction) -> str:
    return f"{printable(name)}: {prediction.answer}"
