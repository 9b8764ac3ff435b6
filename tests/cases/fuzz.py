"""Broken files by the thousand, in a process of their own: `python -m tests.cases.fuzz FOLDER SEED SECONDS`.

The folder holds good files, with names that begin with "good". One after the other is mutated by numbers drawn from the seed,
written to the folder as input.SUFFIX, and read; every fifth goes through the whole command. Before each its number goes
out on a line of its own. So the caller knows which input ended the process or made it hang: the file that is in the folder
then.
"""

from __future__ import annotations

import itertools
import random
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pipelines.errors import SourceError
from pipelines.sources.address import PICTURE_SUFFIXES
from pipelines.sources.files.file import FileSource, check_file
from pipelines.sources.files.images import ImagesSource
from pipelines.sources.source import Source
from pipelines.watch import NullWatch
from tests.command import PROBE, watchline

WHOLE = 5
LENGTHS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
HEAD = 600
"""Bytes at the start with most of a container's facts; an mp4 has facts at its end, too."""


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The file with one to eight things done to it."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        dice.choice(MUTATIONS)(found, _place(found, dice), dice)
    return bytes(found)


def _place(data: bytearray, dice: random.Random) -> int:
    where = dice.random()
    if where < 0.5:
        return dice.randrange(max(1, min(len(data), HEAD)))
    if where < 0.7:
        return max(0, len(data) - 1 - dice.randrange(HEAD))
    return dice.randrange(max(1, len(data)))


def _flip(data: bytearray, at: int, dice: random.Random) -> None:
    if at < len(data):
        data[at] ^= 1 << dice.randrange(8)


def _noise(data: bytearray, at: int, dice: random.Random) -> None:
    count = min(dice.randint(1, 16), len(data) - at)
    data[at : at + count] = dice.randbytes(max(count, 0))


def _length(data: bytearray, at: int, dice: random.Random) -> None:
    size, form = dice.choice(((1, "B"), (2, ">H"), (2, "<H"), (4, ">I"), (4, "<I")))
    data[at : at + size] = struct.pack(form, dice.choice(LENGTHS) & (256**size - 1))


def _cut(data: bytearray, at: int, dice: random.Random) -> None:
    del data[at : at + dice.choice((1, 2, 4, 188, 1000, len(data)))]


def _again(data: bytearray, at: int, dice: random.Random) -> None:
    data[at:at] = data[at : at + dice.choice((1, 8, 64, 188, 2000))]


def _swap(data: bytearray, at: int, dice: random.Random) -> None:
    count, to = dice.choice((4, 16, 188)), _place(data, dice)
    data[at : at + count], data[to : to + count] = data[to : to + count], data[at : at + count]


MUTATIONS: tuple[Callable[[bytearray, int, random.Random], None], ...] = (_flip, _noise, _length, _length, _cut, _again, _swap)


def read(path: Path) -> None:
    """Read a file as a run would.

    :raises AssertionError: if its times do not rise.
    """
    source: Source = ImagesSource([path]) if path.suffix in PICTURE_SUFFIXES else FileSource(path, threads=2)
    last_s = -1.0
    try:
        if path.suffix not in PICTURE_SUFFIXES:
            check_file(path)
        for capture in itertools.islice(source.frames(threading.Event(), NullWatch()), 500):
            assert capture.pts_s is None or capture.pts_s > last_s, f"{capture.pts_s} after {last_s}"
            last_s = -1.0 if capture.pts_s is None else capture.pts_s
    except SourceError:
        return


def command(path: Path) -> None:
    """:raises AssertionError: if the whole command ends otherwise than it may."""
    out = path.with_name("out.mp4")
    out.unlink(missing_ok=True)
    done = watchline("run", str(path), *PROBE, "--max-frames", "500", "-o", str(out), "--jsonl", "-")
    assert done.code in (0, 1, 2), done.err
    assert "Traceback" not in done.err
    assert not [line for line in done.errors() if "Error" in line and "rror " not in line], done.err
    assert [line["frame"] for line in done.lines] == list(range(len(done.lines)))


def main(folder: Path, seed: int, seconds: float) -> int:
    goods = sorted(folder.glob("good*"))
    end_s = time.monotonic() + seconds
    for k in itertools.count():
        if time.monotonic() > end_s:
            break
        dice = random.Random(f"{seed} {k}")
        good = dice.choice(goods)
        path = folder / f"input{good.suffix}"
        path.write_bytes(mutated(good.read_bytes(), dice))
        print(k, path.name, flush=True)
        try:
            (command if k % WHOLE == 0 else read)(path)
        except BaseException:
            traceback.print_exc()
            return 3
    print("done", k, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
