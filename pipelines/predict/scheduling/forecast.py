"""When the device should have ended what it was given."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.predict.scheduling.profile import Profile


@dataclass(slots=True)
class _Running:
    """A batch of n. `begins_s`: when the device began with it, or will; None while it waits for one before it."""

    n: int
    begins_s: float | None


class Forecast:
    """Batches that are staged or running, and when they should end. Guarded by the scheduler's lock.

    The device computes `parallel` of them side by side; what is staged beyond that begins when the oldest ends.
    """

    def __init__(self, profile: Profile, parallel: int = 1) -> None:
        self.last = 1
        """Frames of the batch that was taken last."""
        self.stage_s = 0.0
        """Measured time of putting one frame into a slot."""
        self._profile = profile
        self.parallel = parallel
        self._batches: list[_Running] = []
        self._free_s = [float("-inf")] * parallel

    @property
    def running(self) -> int:
        """Batches that are staged or running."""
        return len(self._batches)

    @property
    def busy(self) -> bool:
        """Whether a further batch would wait for one that runs."""
        return len(self._batches) >= self.parallel

    @property
    def free_s(self) -> float:
        """When the device should be able to begin with a further batch."""
        return self._free_s[0]

    def end_s(self, now: float, n: int, takes_s: float) -> float:
        """When a batch of n would end that is staged from now on and takes the device so long."""
        return max(now + n * self.stage_s, self.free_s) + takes_s

    def overdue_s(self, now: float) -> float:
        """For how long what runs should have ended. It may take as long again: it is slow in a way that nobody has measured."""
        return max(now - self.free_s, 0.0) if self.busy else 0.0

    def taken(self, now: float, n: int) -> None:
        """A batch of n goes to the device."""
        self._batches.append(_Running(n, None if self.busy else now + n * self.stage_s))
        self.last = n
        self._look(now)

    def staged(self, n: int, seconds: float) -> None:
        """Putting a batch of n into its slot took so long."""
        # An eighth, as with the streams' periods: it is there after a second and follows within one.
        self.stage_s += (seconds / n - self.stage_s) / 8

    def done(self, now: float, *, newest: bool = False) -> None:
        """The oldest batch has left the device; newest: the last one did not get there."""
        self._batches.pop(-1 if newest else 0)
        # What was staged begins now, not when it should have: else every slow batch would move all later forecasts.
        if self.busy and not newest:
            self._batches[self.parallel - 1].begins_s = now
        self._look(now)

    def _look(self, now: float) -> None:
        """When each of the places that batches run in will be free, the first one first."""
        free_s = [float("-inf")] * self.parallel
        for batch in self._batches:
            begins_s = free_s[0] if batch.begins_s is None else batch.begins_s
            free_s[0] = max(begins_s, free_s[0]) + self._profile.median(batch.n)
            free_s.sort()
        self._free_s = free_s
