"""Forecast: the expected end of the batches that the device was given."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.predict.scheduling.profile import Profile


@dataclass(slots=True)
class _Running:
    """A batch of n rows. begins_s: the time at which the device began or will begin with it; None while it waits for another
    batch."""

    n: int
    begins_s: float | None


class Forecast:
    """The staged and running batches with their expected ends. Guarded by the scheduler's lock.

    The device computes `parallel` batches side by side; a further staged one begins when the oldest ends.
    """

    def __init__(self, profile: Profile, parallel: int = 1) -> None:
        self.last = 1
        """Rows of the last taken batch."""
        self.stage_s = 0.0
        """Measured seconds of staging one row."""
        self._profile = profile
        self.parallel = parallel
        self._batches: list[_Running] = []
        self._free_s = [float("-inf")] * parallel

    @property
    def running(self) -> int:
        """Staged and running batches."""
        return len(self._batches)

    @property
    def busy(self) -> bool:
        """Whether a further batch would wait for a running one."""
        return len(self._batches) >= self.parallel

    @property
    def free_s(self) -> float:
        """The time at which the device should be able to begin with a further batch."""
        return self._free_s[0]

    def end_s(self, now: float, n: int, takes_s: float) -> float:
        """The end of a batch of n rows that is staged from now on and takes the device `takes_s`."""
        return max(now + n * self.stage_s, self.free_s) + takes_s

    def overdue_s(self, now: float) -> float:
        """Seconds since the expected end of the running batches. They may take as long again: no profile knows why."""
        return max(now - self.free_s, 0.0) if self.busy else 0.0

    def taken(self, now: float, n: int) -> None:
        """A batch of n rows goes to the device."""
        self._batches.append(_Running(n, None if self.busy else now + n * self.stage_s))
        self.last = n
        self._update(now)

    def staged(self, n: int, seconds: float) -> None:
        """Staging a batch of n rows took this many seconds."""
        # An eighth, as with the streams' periods: it is known after a second and follows a change within one.
        self.stage_s += (seconds / n - self.stage_s) / 8

    def done(self, now: float, *, newest: bool = False) -> None:
        """The oldest batch has left the device; newest: the last one did not reach it."""
        self._batches.pop(-1 if newest else 0)
        # A staged batch begins now, not at its expected time: otherwise every slow batch would move all later forecasts.
        if self.busy and not newest:
            self._batches[self.parallel - 1].begins_s = now
        self._update(now)

    def _update(self, now: float) -> None:
        """Compute the time at which each place for a running batch will be free, the earliest first."""
        free_s = [float("-inf")] * self.parallel
        for batch in self._batches:
            begins_s = free_s[0] if batch.begins_s is None else batch.begins_s
            free_s[0] = max(begins_s, free_s[0]) + self._profile.median(batch.n)
            free_s.sort()
        self._free_s = free_s
