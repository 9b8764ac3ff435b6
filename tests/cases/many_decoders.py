"""Sixteen noisy streams decoded at once, again and again, and then once more in a forked child. Run as a script:

    python -m tests.cases.many_decoders FOLDER LOOPS THREADS

FOLDER holds clean.ts, loss.ts and corrupt.ts. The last line is JSON: CPU seconds of each, captures, the most threads that it
added.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pipelines.sources.files.file import FileSource
from pipelines.sources.rtsp.ffmpeg_reader import _listen_for_losses
from pipelines.watch import NullWatch

SOURCES = 16
NAMES = ("clean", "loss", "corrupt")


def play(path: Path, threads: int, counts: list[int]) -> None:
    """Decode a file to its end; note how many captures it gave and how many threads there were."""
    captures = sum(1 for _ in FileSource(path, threads=threads).frames(threading.Event(), NullWatch()))
    counts += [captures, len(os.listdir("/proc/self/task"))]


def at_once(path: Path, threads: int) -> list[int]:
    """Decode it in sixteen threads."""
    counts: list[int] = []
    players = [threading.Thread(target=play, args=(path, threads, counts)) for _ in range(SOURCES)]
    for player in players:
        player.start()
    for player in players:
        player.join()
    return counts


def measure(folder: Path, loops: int, threads: int) -> dict[str, Any]:
    """All of it, the clean and the noisy streams by turns."""
    cpu_s = dict.fromkeys(NAMES, 0.0)
    captures = dict.fromkeys(NAMES, 0)
    most, before = 0, len(os.listdir("/proc/self/task"))
    for _ in range(loops):
        for name in NAMES:
            began_s = time.process_time()
            counts = at_once(folder / f"{name}.ts", threads)
            cpu_s[name] += time.process_time() - began_s
            captures[name] += sum(counts[::2])
            most = max(most, *counts[1::2])
    return {"cpu_s": cpu_s, "captures": captures, "most_threads": most - before}


def main() -> None:
    folder, loops, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    _listen_for_losses()  # as a camera read by FFmpeg does: from then on every line of the log wants the interpreter
    found = measure(folder, loops, threads)
    child = os.fork()
    if child == 0:
        measure(folder, max(loops // 10, 1), threads)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(json.dumps(found | {"forked": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main()
