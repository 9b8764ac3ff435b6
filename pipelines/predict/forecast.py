"""When the device should have ended what it was given."""

from __future__ import annotations

from collections import deque

from pipelines.predict.profile import Profile


class Forecast:
    """Batches that are staged or running, and when they should end. Guarded by the scheduler's lock."""

    def __init__(self, profile: Profile) -> None:
        self.last = 1
        """Frames of the batch that was taken last."""
        self.stage_s = 0.0
        """Measured time of putting one frame into a slot."""
        self.free_s = float("-inf")
        """When the device should have ended all that was taken."""
        self._profile = profile
        self._sizes: deque[int] = deque()

    @property
    def running(self) -> int:
        """Batches that are staged or running."""
        return len(self._sizes)

    def end_s(self, now: float, n: int, takes_s: float) -> float:
        """When a batch of n would end that is staged from now on and takes the device so long."""
        return max(now + n * self.stage_s, self.free_s) + takes_s

    def overdue_s(self, now: float) -> float:
        """For how long what runs should have ended. It may take as long again: it is slow in a way that nobody has measured."""
        return max(now - self.free_s, 0.0) if self._sizes else 0.0

    def taken(self, now: float, n: int) -> None:
        """A batch of n goes to the device."""
        self._sizes.append(n)
        self.last = n
        self.free_s = self.end_s(now, n, self._profile.median(n))

    def staged(self, n: int, seconds: float) -> None:
        """Putting a batch of n into its slot took so long."""
        # An eighth, as with the streams' periods: it is there after a second and follows within one.
        self.stage_s += (seconds / n - self.stage_s) / 8

    def done(self, now: float) -> None:
        """The oldest batch has left the device."""
        self._sizes.popleft()
        # What was staged begins now, not when it should have: else every slow batch would move all later forecasts.
        self.free_s = now + sum(self._profile.median(n) for n in self._sizes)
