"""`python -m tests.soak`: see the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.promises import Seen, Verdict, seen, verdicts
from tests.soak.run import soak

WORDS = {True: "kept", False: "BROKEN", None: "not seen"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Four cameras in trouble, and the promises.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, 30; less than 2 say nothing of memory")
    parser.add_argument("--every", type=float, default=20.0, metavar="S", help="seconds from one fault to the next, 20")
    parser.add_argument("--seed", type=int, default=0, help="of what happens; the same gives the same")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the command's outputs in this folder")
    args = parser.parse_args()
    began_s = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        record = soak(60 * args.minutes, every_s=args.every, seed=args.seed, folder=folder, tell=tell)
    found = verdicts(record)
    print("", *table(seen(record)), "", *judged(found), sep="\n")
    return int(any(v.kept is False for v in found))


def table(faults: list[Seen]) -> list[str]:
    """A line for each fault."""
    lines = [f"{'camera':<8}{'what happened':<18}{'for':>8}{'outage':>10}{'first new frame':>18}"]
    for one in faults:
        lasted = f"{one.fault.back_s - one.fault.began_s:.1f} s"
        outage = f"{one.outage.seconds:.1f} s" if one.outage else "-"
        new = f"{one.first_new_s:.1f} s" if one.first_new_s is not None else "never"
        lines.append(f"{one.fault.stream:<8}{one.fault.kind:<18}{lasted:>8}{outage:>10}{new:>18}")
    return lines


def judged(found: list[Verdict]) -> list[str]:
    """A line for each promise."""
    return [f"{WORDS[v.kept]:<9} {v.promise}: {v.text}" for v in found]


if __name__ == "__main__":
    sys.exit(main())
