"""The service from outside: every answer that the API promises, over real connections."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from app.serve.serve import Server
from pipelines.errors import EngineError
from pipelines.predict.workers.supervisor import PoolOptions
from tests.cases import bombs
from tests.predict.fakes import Held, LateEngine
from tests.serve.serving import JPEG, RGB, Caller, Said, ask, encoded, form, get, grey, held, post, served, together

pytestmark = pytest.mark.timeout(60)
RESTARTS = PoolOptions(2).restarts


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(max_upload_mb=0.25, workers=2) as server:
        yield server.url


def rgb(width: int, height: int, **more: str) -> dict[str, str]:
    return {"Content-Type": RGB, "X-Width": str(width), "X-Height": str(height)} | more


def problem(said: Said) -> tuple[int, str]:
    assert set(said.json) == {"error", "message"}
    assert said.json["message"]
    return said.status, said.json["error"]


def counted(url: str, name: str, **labels: str) -> float:
    """One sample of the metrics."""
    text = get(url, "/metrics").body.decode()
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found[0] if found else 0.0


# Answers.


def test_one_picture(url: str) -> None:
    said = post(url, grey(77))
    assert said.status == 200
    answer = said.json
    assert set(answer) == {"labels", "batch", "latency_ms"}
    assert [set(label) for label in answer["labels"]] == [{"id", "name", "p"}] * 5
    assert answer["labels"][0] == {"id": 77, "name": "77", "p": 1.0}
    assert answer["batch"]["size"] >= 1
    times = answer["latency_ms"]
    assert list(times) == ["receive", "decode", "queue", "preprocess", "infer", "answer", "total"]
    assert sum(times.values()) - times["total"] == pytest.approx(times["total"], abs=0.01)


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif"])
def test_the_data_decides_what_it_is(url: str, kind: str) -> None:
    data = encoded(Image.new("RGB", (32, 32), (200, 200, 200)), "PNG")
    said = post(url, data, {"Content-Type": f"image/{kind}; charset=binary"})
    assert said.label == "200"


def test_samples(url: str) -> None:
    pixels = np.full((30, 41, 3), 90, np.uint8)
    assert post(url, pixels.tobytes(), rgb(41, 30)).label == "90"


def test_topk(url: str) -> None:
    assert len(post(url, grey(5), query="?topk=1").json["labels"]) == 1
    assert len(post(url, grey(5), query="?topk=20").json["labels"]) == 20
    for wrong in ("0", "21", "-1", "x", "", "1.5", "9" * 30, "0000000059", "000000005" + "0" * 4300):
        assert problem(post(url, grey(5), query=f"?topk={wrong}")) == (422, "wrong_shape")


def test_many_in_their_order_each_with_its_own_failure(url: str) -> None:
    levels = [10 * k + 5 for k in range(12)]
    files = [(f"{level}.jpg", grey(level)) for level in levels]
    files[4] = ("bad.jpg", b"no picture")
    said = post(url, *form(files))
    assert said.status == 200
    results = said.json["results"]
    assert [k["file"] for k in results] == [name for name, _ in files]
    assert [k["labels"][0]["id"] for k in results if "labels" in k] == [v for v in levels if v != 45]
    assert results[4] == {
        "file": "bad.jpg",
        "status": 400,
        "error": "undecodable",
        "message": "no picture of a known kind: JPEG, PNG, WebP or GIF",
    }


def test_many_bad_ones(url: str) -> None:
    assert post(url, *form({"a": b"x", "b": b""})).status == 400


def test_a_name_may_be_any(url: str) -> None:
    said = post(url, *form({"ü \\ é.jpg": grey(50)}))
    assert said.json["results"][0]["labels"][0]["id"] == 50


# Refusals.


OTHERS = ["text/plain", "application/json", "", "application/x-www-form-urlencoded", "image/bmp"]


@pytest.mark.parametrize("content_type", OTHERS)
def test_a_kind_that_is_not_taken(url: str, content_type: str) -> None:
    assert problem(post(url, grey(5), {"Content-Type": content_type})) == (415, "unsupported")


def test_what_is_no_picture(url: str) -> None:
    assert problem(post(url, b"")) == (400, "empty")
    for body in (b"GIF89a", grey(5)[:200], b"\0" * 1000):
        assert problem(post(url, body)) == (400, "undecodable")


def test_malformed_forms(url: str) -> None:
    body, headers = form({"a": grey(5)})
    assert problem(post(url, body[:-20], headers)) == (400, "undecodable")
    assert problem(post(url, body, {"Content-Type": "multipart/form-data"})) == (400, "undecodable")
    assert problem(post(url, body, {"Content-Type": "multipart/form-data; boundary=other"})) == (400, "undecodable")
    assert problem(post(url, *form({}))) == (400, "empty")


def test_too_many_pictures(url: str) -> None:
    assert problem(post(url, *form([("a", b"")] * 97))) == (413, "too_large")


def test_too_many_bytes(url: str) -> None:
    said = post(url, bytes(300_000))
    assert problem(said) == (413, "too_large")
    with Caller(url) as caller:  # without a length, in chunks
        assert problem(caller.ask("POST", "/v1/classify", iter([bytes(100_000)] * 4), JPEG)) == (413, "too_large")  # type: ignore[arg-type]


def test_a_connection_goes_on_after_a_refusal(url: str) -> None:
    with Caller(url) as caller:
        assert caller.post(bytes(300_000)).status == 413
        assert caller.post(grey(5), {"Content-Type": "text/plain"}).status == 415
        assert caller.post(grey(9)).label == "9"


def test_too_many_pixels_are_refused_before_they_are_decoded(url: str) -> None:
    data = bytearray(encoded(Image.new("L", (16, 16)), "PNG"))
    data[16:24] = struct.pack(">II", 50_000, 50_000)
    assert problem(post(url, bytes(data))) == (413, "too_large")
    assert problem(post(url, b"x", rgb(50_000, 50_000))) == (413, "too_large")


@pytest.mark.parametrize(
    "headers",
    [{"X-Width": "4"}, rgb(4, 0), rgb(-4, -4), rgb(4, 5), {"X-Width": "a", "X-Height": "b"}],
    ids=["one", "none", "negative", "another", "text"],
)
def test_samples_of_a_wrong_shape(url: str, headers: dict[str, str]) -> None:
    assert problem(post(url, bytes(4 * 4 * 3), {"Content-Type": RGB} | headers)) == (422, "wrong_shape")


@pytest.mark.parametrize("aspect", ["1e999999999", "0", "1/0", "a", "1" * 60, "-1", ""])
def test_a_sample_aspect_that_is_none(url: str, aspect: str) -> None:
    """Fraction would compute the first one, for minutes, in the event loop."""
    headers = {"Content-Type": "application/x-yuv420p", "X-Width": "2", "X-Height": "2", "X-Sample-Aspect": aspect}
    assert problem(post(url, bytes(6), headers)) == (422, "wrong_shape")


@pytest.mark.parametrize("deadline", ["0", "-5", "soon", "nan", "inf", ""])
def test_a_deadline_that_is_none(url: str, deadline: str) -> None:
    assert problem(post(url, grey(5), JPEG | {"X-Deadline-Ms": deadline})) == (422, "wrong_shape")


def test_unknown_paths_and_methods(url: str) -> None:
    assert problem(get(url, "/nowhere")) == (404, "not_found")
    assert problem(get(url, "/v1/classify")) == (405, "method_not_allowed")


def test_what_is_no_http_gets_a_400(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert post(url, grey(3)).label == "3"


# Under load.


def test_a_full_queue_says_no_at_once() -> None:
    gate = Held()
    with served(make=held(gate), max_batch=1, queue_depth=2, request_timeout=20) as server, opened(gate):
        handler = server.service.handler
        threads, results = [], []
        for k in range(3):  # one on the device, two wait
            threads.append(threading.Thread(target=lambda k=k: results.append(post(server.url, grey(k)).status)))
            threads[-1].start()
            until(lambda now=(k + 1, k): (handler.in_flight, handler.waiting) == now)
        said = post(server.url, grey(9))
        assert problem(said) == (503, "queue_full")
        assert int(said.headers["retry-after"]) >= 1
        gate.open()
        for thread in threads:
            thread.join()
        assert results == [200] * 3
        assert counted(server.url, "watchline_requests_total", outcome="queue_full") == 1


@contextmanager
def opened(gate: Held) -> Iterator[None]:
    """Opens the gate at the end, also after an error: a service ends when its device does."""
    try:
        yield
    finally:
        gate.open()


def until(true: object) -> None:
    """Wait until a condition that another thread fulfils is true."""
    step = threading.Event()
    for _ in range(2000):
        if true():  # type: ignore[operator]
            return
        step.wait(0.005)
    raise AssertionError("it did not come about")


def test_a_deadline_that_cannot_be_met_is_refused_and_one_that_passes_is_said() -> None:
    gate = Held()
    with served(make=held(gate), max_batch=1) as server, opened(gate):
        first = threading.Thread(target=lambda: post(server.url, grey(1)))
        first.start()
        gate.until_waiting()
        said = post(server.url, grey(2), JPEG | {"X-Deadline-Ms": "0.5"})
        assert said.status in (503, 504)  # the deadline may have passed before the check
        late = post(server.url, grey(2), JPEG | {"X-Deadline-Ms": "100"})
        assert problem(late) == (504, "deadline_passed")
        gate.open()
        first.join()
        assert post(server.url, grey(3)).label == "3"


def test_where_all_workers_are_lost_for_a_while_that_is_said() -> None:
    """The reason of the refusal is not a full queue: nothing waits."""
    with served(workers=2) as server:
        service = server.service

        def lost() -> bool:
            for worker in service.workers():
                if worker.state == "ready" and worker.pid is not None:
                    with suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGKILL)
            return service.restarts() >= RESTARTS and all(w.state == "dead" for w in service.workers())

        until(lost)
        said = post(server.url, grey(1))
        assert problem(said) == (503, "no_worker")
        assert said.json["message"] == "no worker is ready"
        assert int(said.headers["retry-after"]) >= 1


def test_a_request_without_a_deadline_has_the_services_own() -> None:
    gate = Held()
    with served(make=held(gate), request_timeout=0.2) as server, opened(gate):
        assert problem(post(server.url, grey(1))) == (504, "deadline_passed")


def test_decoding_that_took_long_once_does_not_refuse_for_ever() -> None:
    """If the service refused all requests after a slow picture, no new picture would correct the estimate."""
    with served(request_timeout=2.0) as server:
        classifier = server.service.handler.classifier
        assert classifier is not None
        classifier._decode_s = 1000.0
        assert post(server.url, grey(7)).label == "7"


def test_a_body_that_does_not_come_is_given_up() -> None:
    with served(request_timeout=0.3) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 10) as slow:
            slow.sendall(head(9999) + b"abc")
            assert slow.recv(100).startswith(b"HTTP/1.1 504")


def head(length: int) -> bytes:
    """The headers of a request with a picture of `length` bytes."""
    return f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\nContent-Length: {length}\r\n\r\n".encode()


def test_who_hangs_up_is_not_computed() -> None:
    gate = Held()
    engines: list[LateEngine] = []

    def engine(gate: Held) -> LateEngine:
        engines.append(LateEngine(gate))
        return engines[0]

    with served(make=held(gate, engine), max_batch=1, request_timeout=20) as server, opened(gate):
        first = threading.Thread(target=lambda: post(server.url, grey(1)))
        first.start()
        gate.until_waiting()
        host, port = server.url.removeprefix("http://").split(":")
        data = grey(2)
        for _ in range(3):
            with socket.create_connection((host, int(port)), 10) as caller:
                caller.sendall(head(len(data)) + data)
                until(lambda: server.service.handler.in_flight == 2)
            until(lambda: server.service.handler.in_flight == 1)
        gate.open()
        first.join()
        assert counted(server.url, "watchline_requests_total", outcome="gone") == 3
        assert post(server.url, grey(3)).label == "3"
        assert sum(engines[0].batches) <= 3  # the first, the last, and at most one that was taken before it was cancelled


def test_an_error_of_the_model_shows_nothing_of_its_inside() -> None:
    gate = Held()
    gate.open()

    def engine(gate: Held) -> LateEngine:
        made = LateEngine(gate)

        def fail(values: object) -> None:
            if 66 in values:  # type: ignore[operator]
                raise EngineError("secret path /srv/model")

        made.fail = fail
        return made

    with served(make=held(gate, engine)) as server:
        said = post(server.url, grey(66))
        assert problem(said) == (500, "failed")
        assert b"secret" not in said.body
        assert post(server.url, grey(67)).label == "67"


# Other routes.


def test_probes(url: str) -> None:
    assert get(url, "/live").json == {"live": True}
    for path in ("/live", "/ready"):
        said = ask(url, "HEAD", path)
        assert (said.status, said.body) == (200, b"")
    assert get(url, "/ready").json == {"ready": True, "state": "ready", "workers": 2, "wanted": 2}


def test_the_model(url: str) -> None:
    model = get(url, "/v1/model").json
    assert (model["model"], model["classes"], len(model["labels"])) == ("probe", 256, 256)
    assert (model["workers"], model["queue_capacity"], model["max_batch"]) == (2, 96, 16)
    assert model["profile_ms"]


def test_metrics(url: str) -> None:
    before = {name: counted(url, "watchline_requests_total", outcome=name) for name in ("ok", "undecodable", "unsupported")}
    together(8, lambda k: post(url, grey(k)))
    post(url, b"x")
    post(url, b"x", {"Content-Type": "a/b"})
    for name, more in (("ok", 8), ("undecodable", 1), ("unsupported", 1)):
        assert counted(url, "watchline_requests_total", outcome=name) == before[name] + more
    count = counted(url, "watchline_latency_seconds_count", stage="total")
    assert count >= 8
    assert counted(url, "watchline_latency_seconds_count", stage="infer") == count
    assert counted(url, "watchline_batch_size_sum") >= 8
    assert counted(url, "watchline_queue_capacity") == 96
    assert counted(url, "watchline_worker_ready", worker="1", device="cpu") == 1
    assert counted(url, "watchline_device_memory_bytes", worker="0", device="cpu") > 2**20
    assert counted(url, "watchline_worker_restarts_total") == 0
    assert counted(url, "watchline_held_bytes") == 0


def test_a_form_of_broken_pictures_counts_as_what_the_first_is(url: str) -> None:
    bad, big = ("bad.jpg", b"x"), ("big.png", bombs.png(20_000, 20_000, b""))
    before = {name: counted(url, "watchline_requests_total", outcome=name) for name in ("ok", "undecodable", "too_large")}
    for pictures in ((bad, big), (big, bad), (bad, ("good.png", grey(7)))):
        post(url, *form(list(pictures)))
    for name in before:
        assert counted(url, "watchline_requests_total", outcome=name) == before[name] + 1


def test_two_services_have_metrics_of_their_own(url: str) -> None:
    with served() as other:
        assert counted(other.url, "watchline_requests_total", outcome="ok") == 0
        post(other.url, grey(1))
        assert counted(other.url, "watchline_requests_total", outcome="ok") == 1


def test_the_health_report(url: str) -> None:
    for k in range(24):
        post(url, grey(k))
    report = get(url, "/v1/health-report").json
    assert set(report["figures"]) == {"device_use", "batch_size", "queue_wait_p99_ms", "device_memory"}
    for figure in report["figures"].values():
        assert set(figure) == {"value", "unit", "healthy", "ok", "hint"}
        assert isinstance(figure["ok"], bool)
    assert report["figures"]["batch_size"]["ok"] is False
    assert "--max-wait-ms" in report["figures"]["batch_size"]["hint"]
    assert 0 < report["figures"]["device_memory"]["value"] < 1


def test_the_documentation_says_what_is_answered(url: str) -> None:
    schema = get(url, "/openapi.json").json
    assert set(schema["paths"]) == {"/v1/classify", "/v1/model", "/v1/health-report", "/live", "/ready", "/metrics"}
    said = set(schema["paths"]["/v1/classify"]["post"]["responses"])
    assert said == {"200", "400", "401", "413", "415", "422", "500", "503", "504"}
    parts = schema["components"]["schemas"]
    real = {
        "Answer": post(url, grey(5)).json,
        "ModelReport": get(url, "/v1/model").json,
        "State": get(url, "/ready").json,
        "HealthReport": get(url, "/v1/health-report").json,
        "Failure": post(url, b"x").json,
        "Answers": post(url, *form({"a": grey(5)})).json,
    }
    for name, answer in real.items():
        assert set(answer) == set(parts[name]["properties"]), name
        example = parts[name]["examples"][0]
        assert set(example) == set(answer), name
    assert set(real["Answer"]["latency_ms"]) == set(parts["LatencyMs"]["properties"])


def test_the_page_loads_nothing(url: str) -> None:
    page = get(url, "/docs").body.decode()
    assert "POST /v1/classify" in page
    assert "fox squirrel" in page
    assert not re.findall(r"<script|(?:src|href)=.?(?:https?:)?//", page)


def test_the_service_is_ready_when_the_pool_is(url: str) -> None:
    """The service answers probes while it loads the model, and refuses requests."""
    gate = threading.Event()
    make = held(Held())

    def slow(*args: object) -> object:
        assert gate.wait(30)
        return make(*args)  # type: ignore[arg-type]

    from app.config import Settings
    from app.serve.serve_options import ServeOptions

    server = Server(Settings(model="probe"), ServeOptions(port=0), make=slow)  # type: ignore[arg-type]
    server.thread.start()
    try:
        assert get(server.url, "/live").status == 200
        assert (get(server.url, "/ready").status, get(server.url, "/ready").json["state"]) == (503, "starting")
        said = post(server.url, grey(1))
        assert problem(said) == (503, "starting")
        assert "retry-after" in said.headers
        assert get(server.url, "/v1/model").status == 503
    finally:
        gate.set()
        assert server.ready.wait(30)
        assert get(server.url, "/v1/model").json["model"] == "probe"
        server.stop()
        server.thread.join()
