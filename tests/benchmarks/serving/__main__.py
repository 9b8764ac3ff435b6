"""`watchline serve` beside LitServe and mosec: same model, same engine and precision, same machine, in turn.

    python -m tests.benchmarks.serving [--rounds 3] [--seconds 6] [--precision bf16] [--only NAME ...] [--folder build/serving]

640x480 JPEGs of a real clip over 32 kept connections, from another process. For each service the closed loop of 1, 8 and 32
callers, and the highest rate of an open loop at which 99 % of the requests are answered within the budget. Then the promises of
Watchline alone: twice that rate, a worker that is killed under load, the cost of HTTP, the gain on a device with a GPU's shape
of time, and two workers of one thread beside one of two.

Writes result.json, table.md and picture.png into the folder. The peers' environments are made at the first call.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.machine.machine import machine
from samples import FOLDER
from tests.benchmarks import environment
from tests.benchmarks.serving import services
from tests.benchmarks.serving.load import Plan
from tests.benchmarks.serving.messages import MIXED, SMALL, VGA, jpegs, write
from tests.benchmarks.serving.services import Running, Service, running
from tests.serve.process import children_of, command_of

GOODPUT = 0.99
BUDGET_S = 0.050
PICTURES = 64
CLOSED = (1, 8, 32)
STEPS = 5
"""Halvings of the search: the rate is found to 3 % of the closed loop's."""
LEAST, MOST = 0.1, 1.1
"""The search looks between these shares of the rate of the closed loop of 32."""
TRIES = 2
"""A rate that fails is tried once more: one short stall of the machine makes too many of a thousand requests late."""
SENT_MS = 45
"""The deadline that requests carry for an answer within the budget; the rest is for the network."""
KILLED_S, RECOVERY_S = 5, 25
"""A worker is killed KILLED_S seconds after the beginning of a load of RECOVERY_S seconds."""
GPU_LIKE = ("--model", "probe", "--probe-ms-per-batch", "8", "--probe-ms-per-frame", "0.5", "--workers", "1")

WATCHLINE, LITSERVE, MOSEC = "Watchline", "LitServe", "mosec"
BARS = ((WATCHLINE, LITSERVE, 1.3), (WATCHLINE, MOSEC, 1.0))


def main() -> None:
    """Run all trials and write the results."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--seconds", type=float, default=6.0, help="of each trial (6)")
    args.add_argument("--precision", default="bf16", choices=["fp32", "bf16"])
    names = [WATCHLINE, LITSERVE, MOSEC]
    args.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    args.add_argument("--folder", default="build/serving")
    given = args.parse_args()
    folder = Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for result in Bench(Path(place), given.seconds, given.precision).run(given.rounds, given.only):
            (folder / "result.json").write_text(json.dumps(result, indent=1))
            (folder / "table.md").write_text(table(result))
    print(table(result))
    plot = [str(environment.interpreter("plain")), str(Path(__file__).with_name("plot.py")), str(folder / "result.json")]
    subprocess.run([*plot, str(folder / "picture.png")], check=True)


class Bench:
    """All trials. place: folder for their files."""

    def __init__(self, place: Path, seconds: float, precision: str) -> None:
        clip = FOLDER / "bigbuckbunny.mp4"
        self._place = place
        self._seconds = seconds
        self._precision = precision
        sizes = {"vga": (VGA,), "small": (SMALL,), "mixed": MIXED}
        self._pictures = {name: jpegs(clip, PICTURES, of) for name, of in sizes.items()}
        self._written: dict[tuple[str, bytes], str] = {}

    def run(self, rounds: int, only: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Run the services in rounds, then the promises of Watchline alone; yields the result after each of the two parts."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in only}
        for k in range(rounds):
            for name in only:
                found[name].append(self._service(name))
                print(f"{k + 1}/{rounds} {name}: {_short(found[name][-1])}", flush=True)
        result = {
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "precision": self._precision,
            "rounds": rounds,
            "seconds": self._seconds,
            "budget_s": BUDGET_S,
            "picture": f"{VGA[0]}x{VGA[1]} JPEG",
            "services": found,
            "ratios": _ratios(found),
            "own": {},
            "versions": _versions(only),
        }
        yield result
        if WATCHLINE in only and any(_rate(r, "poisson") for r in found[WATCHLINE]):
            yield result | {"own": self._own(found[WATCHLINE], rounds)}

    def _make(self, name: str) -> Service:
        make: dict[str, Callable[[], Service]] = {
            WATCHLINE: lambda: services.watchline("--precision", self._precision),
            LITSERVE: lambda: services.litserve(self._precision),
            MOSEC: lambda: services.mosec(self._precision),
        }
        return make[name]()

    def _service(self, name: str) -> dict[str, Any]:
        """One service in one round."""
        with self._up(self._make(name)) as (service, up):
            closed = {str(c): self.load(service, up, connections=c) for c in CLOSED}
            top = closed["32"]["per_s"]
            rates = {kind: self._highest(service, up, top, kind) for kind in ("poisson", "constant")}
            mixed = self.load(service, up, "mixed", rate=0.5 * rates["poisson"]["per_s"]) if rates["poisson"] else None
        return {"closed": closed, **rates, "mixed": mixed}

    @contextmanager
    def _up(self, service: Service) -> Any:
        with running(service, self._pictures["vga"][0]) as up:
            self.load(service, up, connections=32)  # the first seconds of a service are its slowest
            yield service, up

    def _highest(self, service: Service, up: Running, top: float, kind: str) -> dict[str, Any] | None:
        """The trial with the highest rate that was served."""
        low, high, best = LEAST, MOST, None
        for _ in range(STEPS):
            share = (low + high) / 2
            trial = self._served(service, up, share * top, kind)
            low, high = (share, high) if trial is not None else (low, share)
            best = trial or best
        return best

    def _served(self, service: Service, up: Running, rate: float, kind: str) -> dict[str, Any] | None:
        for seed in range(TRIES):
            trial = self.load(service, up, rate=rate, arrivals=kind, seed=seed + 1)
            if trial["goodput"] >= GOODPUT:
                return trial
        return None

    def load(self, service: Service, up: Running, pictures: str = "vga", **how: Any) -> dict[str, Any]:
        """One trial, by a process of its own."""
        how = {"seconds": self._seconds, "budget_s": BUDGET_S, **how}
        plan = Plan("127.0.0.1", up.port, self._bodies(service, pictures), **how)
        path = self._place / "plan.json"
        path.write_text(json.dumps(asdict(plan)))
        command = [sys.executable, "-m", "tests.benchmarks.serving.load", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def _bodies(self, service: Service, pictures: str) -> str:
        messages = [service.message(jpeg) for jpeg in self._pictures[pictures]]
        head = messages[0].partition(b"\r\n\r\n")[0]
        key = pictures, head
        if key not in self._written:
            self._written[key] = write(self._place / str(len(self._written)), messages)
        return self._written[key]

    # Promises of Watchline alone.

    def _own(self, found: Sequence[dict[str, Any]], rounds: int) -> dict[str, Any]:
        rate = statistics.median(_rate(r, "poisson") for r in found)
        rows = {
            "twice": lambda: self._twice(rate),
            "killed": lambda: self._killed(rate),
            "cost": self._cost,
            "gpu_like": self._gpu_like,
            "workers": lambda: self._workers(rounds),
        }
        own = {}
        for name, row in rows.items():
            own[name] = row()
            print(f"{name}: {json.dumps(own[name])}", flush=True)
        return own

    def _twice(self, rate: float) -> dict[str, Any]:
        """Goodput at the sustainable rate and at twice that rate, for requests with a deadline."""
        service = services.watchline("--precision", self._precision, headers={"X-Deadline-Ms": str(SENT_MS)})
        with self._up(service) as (service, up):
            rounds = []
            for seed in range(3):
                once = self.load(service, up, rate=rate, seed=seed)
                twice = self.load(service, up, rate=2 * rate, connections=128, seed=seed)
                rounds.append((once, twice))
        once, twice = sorted(rounds, key=lambda r: r[1]["good_per_s"] / r[0]["good_per_s"])[1]
        shares = [t["good_per_s"] / o["good_per_s"] for o, t in rounds]
        return {"rate": rate, "share": statistics.median(shares), "shares": shares, "once": once, "twice": twice}

    def _killed(self, rate: float) -> dict[str, Any]:
        """One of two workers is killed under three quarters of the rate."""
        service = services.watchline("--precision", self._precision, "--workers", "2")
        with self._up(service) as (service, up):
            worker = next(pid for pid in children_of(up.pid) if "pipelines.predict.workers.child" in command_of(pid))
            kill = f"import os,time; time.sleep({KILLED_S}); os.kill({worker}, {int(signal.SIGKILL)})"
            with subprocess.Popen([sys.executable, "-c", kill]):
                trial = self.load(service, up, rate=0.75 * rate, seconds=RECOVERY_S, budget_s=1.0)
        return {"killed_after_s": KILLED_S - 1, "trial": trial}

    def _cost(self) -> dict[str, Any]:
        """Time of a request beyond decoding, preprocessing and inference."""
        with self._up(services.watchline("--precision", self._precision)) as (service, up):
            return {str(c): self.load(service, up, connections=c, stages=True)["beyond_ms"] for c in (1, 4)}

    def _gpu_like(self) -> dict[str, Any]:
        """A device on which batching pays: one caller at a time, and 32. With pictures of two sizes: on such a
        fast device the machine spends most of its time on decoding."""
        found: dict[str, Any] = {}
        with self._up(services.watchline(*GPU_LIKE)) as (service, up):
            for pictures in ("small", "vga"):
                rounds = [{c: self.load(service, up, pictures, connections=c) for c in (1, 32)} for _ in range(3)]
                gains = [r[32]["per_s"] / r[1]["per_s"] for r in rounds]
                found[pictures] = {
                    "gain": statistics.median(gains),
                    "gains": gains,
                    "one": rounds[-1][1],
                    "many": rounds[-1][32],
                    "per_s": statistics.median(r[32]["per_s"] for r in rounds),
                    "p99_ms": statistics.median(r[32]["latency_ms"]["p99"] for r in rounds),
                }
        return found

    def _workers(self, rounds: int) -> dict[str, Any]:
        """Two workers of one thread, one of two, in turn."""
        ways = {
            "2 workers of 1 thread": ("--workers", "2", "--threads", "1"),
            "1 worker of 2 threads": ("--workers", "1", "--threads", "2"),
        }
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, flags in ways.items():
                with self._up(services.watchline("--precision", self._precision, *flags)) as (service, up):
                    found[name].append(self.load(service, up, connections=32))
        return {
            name: {
                "per_s": statistics.median(t["per_s"] for t in trials),
                "all": [t["per_s"] for t in trials],
                "p99_ms": statistics.median(t["latency_ms"]["p99"] for t in trials),
            }
            for name, trials in found.items()
        }


def _short(row: dict[str, Any]) -> str:
    closed = ", ".join(f"{c} callers {t['per_s']:.0f}/s" for c, t in row["closed"].items())
    rates = ", ".join(f"{kind} {_rate(row, kind):.0f}/s" for kind in ("poisson", "constant"))
    return f"{closed}; within the budget: {rates}"


def _rate(row: dict[str, Any], kind: str) -> float:
    return float(row[kind]["plan"]["rate"]) if row[kind] else 0.0


def _ratios(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    ratios = []
    for one, other, bar in BARS:
        for kind in ("poisson", "constant"):
            if one in found and other in found:
                pairs = zip(found[one], found[other], strict=True)
                rounds = [_rate(a, kind) / b if (b := _rate(c, kind)) else None for a, c in pairs]
                known = [r for r in rounds if r is not None]
                ratios.append(
                    {
                        "one": one,
                        "other": other,
                        "arrivals": kind,
                        "bar": bar,
                        "rounds": rounds,
                        "median": statistics.median(known) if known else None,
                    }
                )
    return ratios


def _versions(only: Sequence[str]) -> dict[str, str]:
    peers = {LITSERVE: "litserve", MOSEC: "mosec"}
    return {name: environment.version(peers[name], peers[name]) for name in only if name in peers}


def table(result: dict[str, Any]) -> str:
    """In Markdown: the services, the ratios beside their bars, and Watchline's own rows."""
    lines = ["| service | poisson, requests/s | constant | 1 caller, /s (p50 / p99 ms) | 8 | 32 |", "|---|---|---|---|---|---|"]
    for name, rounds in result["services"].items():
        cells = [_spread([_rate(r, kind) for r in rounds]) for kind in ("poisson", "constant")]
        for c in map(str, CLOSED):
            trial = sorted((r["closed"][c] for r in rounds), key=lambda t: t["per_s"])[len(rounds) // 2]
            cells.append(f"{trial['per_s']:.0f} ({trial['latency_ms']['p50']:.0f} / {trial['latency_ms']['p99']:.0f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| ratio | median | rounds | bar |", "|---|---|---|---|"]
    for r in result["ratios"]:
        rounds = ", ".join("-" if x is None else f"{x:.2f}" for x in r["rounds"])
        median = "-" if r["median"] is None else f"{r['median']:.2f}"
        lines.append(f"| {r['one']} / {r['other']}, {r['arrivals']} | {median} | {rounds} | {r['bar']} |")
    own = result["own"]
    if own:
        lines += ["", "| Watchline | found | bar |", "|---|---|---|", *_own_rows(own)]
    return "\n".join(lines) + "\n"


def _own_rows(own: dict[str, Any]) -> list[str]:
    twice, gpu, killed, cost = own["twice"], own["gpu_like"], own["killed"]["trial"], own["cost"]
    lost = {k: n for k, n in killed["outcomes"].items() if k != "200" and n}
    workers = ", ".join(f"{name} {w['per_s']:.0f}/s, p99 {w['p99_ms']:.0f} ms" for name, w in own["workers"].items())
    refused = twice["twice"]["refused_ms"] or {"p99": 0.0}
    return [
        f"| twice the rate: goodput of once | {twice['share']:.2f}, p99 of a 503 {refused['p99']:.1f} ms | 0.9, 20 ms |",
        *(
            f"| GPU-like, {words}, 32 callers / 1 | {g['gain']:.1f} times ({g['per_s']:.0f}/s), p99 {g['p99_ms']:.1f} ms | "
            "5 times, 50 ms |"
            for g, words in ((gpu["small"], "320x240"), (gpu["vga"], "640x480"))
        ),
        f"| beyond decode, preprocess, inference | p50 {cost['1']['p50']:.2f} ms (4 callers: {cost['4']['p50']:.2f}) | 2 ms |",
        f"| a worker killed under load | answers but 200: {lost or 0}; good by second {killed['good_by_second']} | all, 15 s |",
        f"| default model, 32 callers | {workers} | the default is the better |",
    ]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


if __name__ == "__main__":
    main()
