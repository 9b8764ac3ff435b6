"""Requests over kept connections, from a process of its own, against a service that is measured.

    python -m tests.benchmarks.serving.load PLAN.json

The plan names address, requests, arrivals and length (`Plan`); one JSON object with the figures is printed. In an open loop
requests come at times that were drawn before the trial, and latency counts from that time: a late service does not slow its own
clients down. In a closed loop each connection sends its next request when the last one is answered.

The client is a bare asyncio protocol that writes prepared bytes and reads a status line, a length and a body, so that on two
cores the service has most of them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SETTLE_S = 1.0
"""Seconds at the beginning with requests that do not count."""
DRAIN_S = 10.0
"""Time for answers after the last request."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The requests of one trial. bodies: folder of prepared requests (whole HTTP messages), used in turn. rate: requests per
    second of an open loop; None: closed loop. arrivals: "constant" or "poisson". budget_s: largest latency of a good answer.
    stages: the answers are Watchline's, and their own stages are subtracted from the client's latency."""

    host: str
    port: int
    bodies: str
    seconds: float
    connections: int = 32
    rate: float | None = None
    arrivals: str = "poisson"
    seed: int = 1
    budget_s: float = 0.050
    stages: bool = False


@dataclass(slots=True)
class Answers:
    """The answers. latency_s: seconds from the scheduled time to the last byte, by status. good_at: scheduled times of requests
    with a good answer within the budget, in seconds from the first counted one."""

    latency_s: dict[int, list[float]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    good_at: list[float] = field(default_factory=list)
    beyond: list[tuple[float, bytes]] = field(default_factory=list)

    def add(self, status: int, body: bytes, due_s: float, seconds: float, plan: Plan) -> None:
        self.outcomes[str(status)] += 1
        self.latency_s.setdefault(status, []).append(seconds)
        if status == 200 and seconds <= plan.budget_s:
            self.good_at.append(due_s)
        if status == 200 and plan.stages:
            self.beyond.append((seconds, body))


class Connection(asyncio.Protocol):
    """One kept connection with at most one request on it. If the service closes it, the next request opens it again."""

    def __init__(self, host: str, port: int) -> None:
        self.transport: asyncio.Transport | None = None
        self._address = host, port
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the service hung up"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, there, body = self._buffer.partition(b"\r\n\r\n")
        if not there:
            return
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), None)
        if length is None:
            raise ValueError(f"an answer without a length: {head!r}")
        if len(body) < length:
            return
        self._buffer = body[length:]
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((int(lines[0].split()[1]), body[:length]))

    async def open(self) -> None:
        """Connect. :raises OSError: if no service listens."""
        self._buffer = b""
        await asyncio.get_running_loop().create_connection(lambda: self, *self._address)

    async def request(self, message: bytes) -> tuple[int, bytes]:
        """Send one, and wait for its status and body. :raises OSError: if the service hangs up."""
        if self.transport is None:
            await self.open()
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(message)
        return await self._answer


async def run(plan: Plan) -> dict[str, Any]:
    """Send the requests of the plan; returns the figures."""
    messages = [path.read_bytes() for path in sorted(Path(plan.bodies).iterdir())]
    loop = asyncio.get_running_loop()
    connections = [Connection(plan.host, plan.port) for _ in range(plan.connections)]
    for connection in connections:
        await connection.open()
    answers = Answers()
    began_s = loop.time()
    gc.disable()  # a pause of the client would count as the service's
    if plan.rate is None:
        await asyncio.gather(*(_closed(c, messages, k, plan, answers, began_s) for k, c in enumerate(connections)))
    else:
        await _open(connections, messages, plan, answers, began_s)
    for connection in connections:
        if connection.transport is not None:
            connection.transport.abort()
    return figures(plan, answers)


async def _closed(
    connection: Connection, messages: Sequence[bytes], k: int, plan: Plan, answers: Answers, began_s: float
) -> None:
    loop = asyncio.get_running_loop()
    while (sent_s := loop.time()) < began_s + SETTLE_S + plan.seconds:
        await _one(connection, messages[k % len(messages)], sent_s, answers, plan, began_s + SETTLE_S)
        k += plan.connections


async def _open(connections: list[Connection], messages: Sequence[bytes], plan: Plan, answers: Answers, began_s: float) -> None:
    """A request takes a free connection at its time, or waits for one. Its latency counts from that time."""
    assert plan.rate is not None
    loop = asyncio.get_running_loop()
    free, waiting, under_way = deque(connections), deque[tuple[int, float]](), set[asyncio.Task[None]]()

    def send(k: int, due_s: float) -> None:
        task = loop.create_task(work(free.popleft(), k, due_s))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    async def work(connection: Connection, k: int, due_s: float) -> None:
        await _one(connection, messages[k % len(messages)], due_s, answers, plan, began_s + SETTLE_S)
        free.append(connection)
        if waiting:
            send(*waiting.popleft())

    for k, due_s in enumerate(arrivals(plan, began_s)):
        if (ahead_s := due_s - loop.time()) > 0:
            await asyncio.sleep(ahead_s)
        if free:
            send(k, due_s)
        else:
            waiting.append((k, due_s))
    ends_s = loop.time() + DRAIN_S
    while under_way and loop.time() < ends_s:
        await asyncio.wait(under_way, timeout=ends_s - loop.time(), return_when=asyncio.FIRST_COMPLETED)
    answers.outcomes["unanswered"] += len(under_way) + len(waiting)
    for task in under_way:
        task.cancel()


def arrivals(plan: Plan, began_s: float) -> Sequence[float]:
    """Times at which requests come: all drawn before the first is sent."""
    assert plan.rate is not None
    draw, times, at_s = random.Random(plan.seed), [], began_s
    while at_s < began_s + SETTLE_S + plan.seconds:
        times.append(at_s)
        at_s += 1 / plan.rate if plan.arrivals == "constant" else draw.expovariate(plan.rate)
    return times


async def _one(
    connection: Connection, message: bytes, due_s: float, answers: Answers, plan: Plan, counts_from_s: float
) -> None:
    try:
        status, body = await connection.request(message)
    except OSError:
        answers.outcomes["hung up"] += due_s >= counts_from_s
        return
    if due_s >= counts_from_s:
        answers.add(status, body, due_s - counts_from_s, asyncio.get_running_loop().time() - due_s, plan)


def figures(plan: Plan, answers: Answers) -> dict[str, Any]:
    """Rates and percentiles: of good answers, and of refusals apart."""
    good, refused = answers.latency_s.get(200, []), answers.latency_s.get(503, [])
    use = resource.getrusage(resource.RUSAGE_SELF)
    sent = sum(answers.outcomes.values())
    by_second = Counter(int(at_s) for at_s in answers.good_at)
    return {
        "plan": asdict(plan),
        "outcomes": dict(answers.outcomes),
        "per_s": round(len(good) / plan.seconds, 1),
        "goodput": len(answers.good_at) / sent if sent else 0.0,
        "good_per_s": round(len(answers.good_at) / plan.seconds, 1),
        "good_by_second": [by_second[k] for k in range(int(plan.seconds))],
        "latency_ms": percentiles(good),
        "refused_ms": percentiles(refused),
        "beyond_ms": percentiles(_beyond(answers)),
        "client_cpu_s": round(use.ru_utime + use.ru_stime, 2),
    }


def _beyond(answers: Answers) -> list[float]:
    """Seconds of each request that were neither decoding nor preprocessing nor inference."""
    work = ((seconds, json.loads(body)["latency_ms"]) for seconds, body in answers.beyond)
    return [seconds - 1e-3 * (ms["decode"] + ms["preprocess"] + ms["infer"]) for seconds, ms in work]


def percentiles(seconds: Sequence[float]) -> dict[str, float] | None:
    """p50, p90, p99 and maximum in milliseconds; None without values."""
    if not seconds:
        return None
    ranked = sorted(seconds)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(1e3 * ranked[min(int(q * len(ranked)), len(ranked) - 1)], 2) for name, q in at.items()}


def main() -> None:
    """Run the plan of the first argument."""
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    began_s = time.monotonic()
    result = asyncio.run(run(plan))
    print(json.dumps(result | {"took_s": round(time.monotonic() - began_s, 1)}))


if __name__ == "__main__":
    main()
