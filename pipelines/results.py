"""Results fan out: every result goes to every consumer, through a bounded channel and a thread for each consumer.

    lane:NAME, window    put(results)       appends and returns; never waits
    lane:NAME            wait_for_room()    waits if `full`: a "block" consumer has a full channel
    consume:NAME         hands all waiting results to its consumer at once

Only lanes ever wait for a consumer, so a slow reader of JSON lines slows files and makes cameras drop frames (`overload`),
but cannot hold the window's thread, another consumer or a stop. A lane that waits holds one frame, so the channels are bounded
by their capacity plus one result for each stream and each picture before the window.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.errors import SinkError, Stopped, reason
from pipelines.frame import Result
from pipelines.monitor.reports import ConsumerReport
from pipelines.sinks.sink import Consumer

CAPACITY = 512
"""Results in a consumer's channel before lanes wait."""
MOST = 128
"""Results that a consumer gets in one call, so that an interrupt is noticed between two calls."""
DRAIN_S = 1.0
"""Time that consumers have after a stop to take the rest; then they are interrupted. A stop must end within 3 s."""
LAST_S = 0.2
"""Time that they have at least after the last result, if the lanes ended late."""
INTERRUPT_S = 0.3
"""Time that an interrupted consumer has to return."""
LOOK_S = 0.1
"""How often a waiting lane looks at its stop."""


class Callback(Consumer):
    """A consumer made of a function that is called with each result."""

    def __init__(self, call: Callable[[Result], Any], name: str | None = None) -> None:
        self.name = name or str(getattr(call, "__name__", "callback"))
        self._call = call

    def take(self, results: Sequence[Result]) -> None:
        for result in results:
            self._call(result)


Lost = Callable[[Consumer, SinkError], None]
"""Called once when a consumer has failed, in its thread."""


class Subscription:
    """One consumer, its channel and its thread."""

    def __init__(self, consumer: Consumer, lost: Lost, capacity: int = CAPACITY) -> None:
        self.consumer = consumer
        self._lost = lost
        self._capacity = capacity
        self._waiting: deque[Result] = deque()
        self._newest: dict[str, Result] = {}
        self._taken = self._skipped = self._missed = 0
        self._closed = self._interrupted = False
        self._error: SinkError | None = None
        lock = threading.Lock()
        self._arrived = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._thread = threading.Thread(target=self._run, name=f"consume:{consumer.name}")

    @property
    def failed(self) -> bool:
        """Whether the consumer has failed and gets nothing more."""
        return self._error is not None

    @property
    def full(self) -> bool:
        """Whether lanes have to wait. Read without the lock, for every frame."""
        return len(self._waiting) >= self._capacity and not (self._closed or self.failed)

    def start(self) -> None:
        self._thread.start()

    def put(self, results: Sequence[Result]) -> None:
        """Append results; never waits. Any thread."""
        with self._arrived:
            if self._closed or self.failed:
                self._missed += len(results)
                return
            if self.consumer.policy == "block":
                self._waiting.extend(results)
            else:
                for result in results:
                    self._skipped += result.frame.stream in self._newest
                    self._newest[result.frame.stream] = result
            self._arrived.notify()

    def wait_for_room(self, stop: threading.Event) -> None:
        """Wait until the channel has room, or `stop` is set. Thread: a lane's."""
        with self._room:
            while self.full and not stop.is_set():
                self._room.wait(LOOK_S)

    def close(self) -> None:
        """No further results; the waiting ones are still taken."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()
            self._room.notify_all()

    def interrupt(self) -> None:
        """Give the waiting results up and make the consumer return."""
        with self._arrived:
            self._interrupted = True
        try:
            self.consumer.interrupt()
        except Exception as error:
            self._fail(error)

    @property
    def running(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; False if it still runs."""
        self._thread.join(max(timeout_s, 0.0))
        return not self.running

    def report(self) -> ConsumerReport:
        with self._arrived:
            consumer = self.consumer
            return ConsumerReport(consumer.name, consumer.policy, self._taken, self._skipped, self._missed, self.failed)

    # Thread consume:NAME.

    def _run(self) -> None:
        batch: list[Result] = []
        # Any error, also SystemExit: without its thread the channel stays full and lanes would wait for ever.
        try:
            while batch := self._next():
                self.consumer.take(batch)
                with self._arrived:
                    self._taken += len(batch)
                batch = []
        except BaseException as error:
            with self._arrived:
                self._missed += len(batch)
            self._fail(error)
        try:
            self.consumer.close()
        except BaseException as error:
            self._fail(error)

    def _next(self) -> list[Result]:
        """The next results; empty when the channel is closed and everything was taken.

        :raises SinkError: if results wait when the consumer is interrupted.
        """
        with self._arrived:
            self._arrived.wait_for(lambda: self._waiting or self._newest or self._closed)
            if self._interrupted and (count := len(self._waiting) + len(self._newest)):
                raise SinkError(f"{self.consumer.name}: {count} results were not taken before the stop")
            if self._newest:
                batch = list(self._newest.values())
                self._newest.clear()
                return batch
            batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            self._room.notify_all()
            return batch

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, SinkError):
            failure = error
        else:
            failure = SinkError(f"{self.consumer.name} failed: {type(error).__name__}: {reason(error)}")
        with self._arrived:
            first = self._error is None
            self._error = self._error or failure
            self._give_up()
            self._room.notify_all()
        if first:
            self._lost(self.consumer, failure)

    def _give_up(self) -> None:
        """Count the waiting results as missed. With the lock held."""
        self._missed += len(self._waiting) + len(self._newest)
        self._waiting.clear()
        self._newest.clear()


class Results:
    """All consumers of a session. Any thread."""

    def __init__(self, lost: Lost = lambda consumer, error: None) -> None:
        self._lost = lost
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._leaving: list[Subscription] = []
        """Unsubscribed ones that may still take results."""
        self._closed = False

    def subscribe(self, consumer: Consumer, capacity: int = CAPACITY) -> None:
        """Give the consumer every result from now on.

        :raises Stopped: after `close`.
        """
        subscription = Subscription(consumer, self._lost, capacity)
        with self._lock:
            if self._closed:
                raise Stopped("no consumer can be subscribed after the end")
            subscription.start()
            self._subscriptions = (*self._subscriptions, subscription)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Let the consumer take its waiting results, and close it. Returns at once.

        :raises ValueError: if it is not subscribed.
        """
        with self._lock:
            found = next((s for s in self._subscriptions if s.consumer is consumer), None)
            if found is None:
                raise ValueError(f"{consumer.name} is not subscribed")
            self._subscriptions = tuple(s for s in self._subscriptions if s is not found)
            self._leaving = [*(s for s in self._leaving if s.running), found]
        found.close()

    @property
    def alive(self) -> bool:
        """Whether any consumer takes results."""
        return any(not s.failed for s in self._subscriptions)

    @property
    def failed(self) -> tuple[Consumer, ...]:
        """The subscribed consumers that have failed."""
        return tuple(s.consumer for s in self._subscriptions if s.failed)

    def put(self, results: Sequence[Result]) -> None:
        """Hand results to every consumer; never waits. Results of one stream come in frame order from one thread at a time."""
        for subscription in self._subscriptions:
            subscription.put(results)

    @property
    def full(self) -> bool:
        """Whether `wait_for_room` would wait. Read by lanes before each frame."""
        return any(s.full for s in self._subscriptions)

    def wait_for_room(self, stop: threading.Event) -> None:
        """Wait until every "block" consumer has room, or `stop` is set. Thread: a lane's."""
        for subscription in self._subscriptions:
            if subscription.full:
                subscription.wait_for_room(stop)

    def close(self, stopped_s: Callable[[], float | None]) -> list[str]:
        """Let all consumers take the rest and close them. Returns the names of the threads that do not end.

        stopped_s: when the session was stopped (monotonic), None before. Until a stop, consumers have all the time they need.
        After it they have DRAIN_S, and at least LAST_S from now; then they are interrupted.
        """
        with self._lock:
            self._closed = True
            left = [*self._leaving, *self._subscriptions]
        for subscription in left:
            subscription.close()
        least_s = time.monotonic() + LAST_S
        while left := [s for s in left if not s.join(LOOK_S / len(left))]:
            stop_s = stopped_s()
            if stop_s is not None and time.monotonic() >= max(stop_s + DRAIN_S, least_s):
                break
        for subscription in left:
            subscription.interrupt()
        end_s = time.monotonic() + INTERRUPT_S
        for subscription in left:
            subscription.join(end_s - time.monotonic())
        return self.running()

    def running(self) -> list[str]:
        """Names of the threads that run."""
        return [f"consume:{s.consumer.name}" for s in (*self._leaving, *self._subscriptions) if s.running]

    def join(self) -> None:
        """Wait for all threads, without a limit."""
        for subscription in (*self._leaving, *self._subscriptions):
            subscription.join(threading.TIMEOUT_MAX)

    def report(self) -> tuple[ConsumerReport, ...]:
        """Figures of the subscribed consumers."""
        return tuple(s.report() for s in self._subscriptions)
