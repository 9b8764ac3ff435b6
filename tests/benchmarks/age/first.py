"""The row "first": from "ready" to the first shown frame, started warm, at any moment of a camera that was on before.

The reader waits for the camera's next key picture, half a second on average: that wait and the age of the frame are separate
figures.
"""

from __future__ import annotations

from tests.benchmarks.age.figures import Figures, Given, quantile
from tests.benchmarks.age.watching import by_time, watched
from tests.servers.clock import ClockCamera

STARTS = 5
"""Number of starts in each run."""
LENGTH_S = 3.0
"""Length of each start: the next key picture comes within one second."""


def first(given: Given) -> list[Figures]:
    """STARTS starts for each run, and one before them that does not count."""
    found: list[tuple[float, float, float]] = []
    with ClockCamera(always_on=True) as camera:
        camera.until_pushed(0, lambda pictures: len(pictures) > 1)
        for _ in range(1 + STARTS * given.runs):
            run = watched([camera.url()], LENGTH_S)
            ((lines),) = run.lines.values()
            pictures = by_time(lines, camera.pushed())
            line, picture = next(k for k in zip(lines, pictures, strict=True) if k[0]["status"] == "ok")
            times_s = line["shown_s"] - run.ready_s, picture.stamp_s - run.ready_s, line["shown_s"] - picture.stamp_s
            found.append((1e3 * times_s[0], 1e3 * times_s[1], 1e3 * times_s[2]))
    whole, wait, age = zip(*found[1:], strict=True)
    return [
        {
            "starts": len(whole),
            "p50": quantile(whole, 0.5),
            "max": quantile(whole, 1),
            "its key picture taken p50": quantile(wait, 0.5),
            "its key picture taken max": quantile(wait, 1),
            "its age p50": quantile(age, 0.5),
            "its age max": quantile(age, 1),
        }
    ]
