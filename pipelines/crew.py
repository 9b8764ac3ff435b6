"""A group of threads that end together: the first error is raised, and leaving the `with` waits for all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crew:
    """A group of named threads that are not daemons.

    If a thread raises, `abort` is called once, in that thread, and must make the other threads end. The `with` then raises
    the first error, with the thread's name as a note. `abort` is also called if the body of the `with` raises.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.error: BaseException | None = None
        """The first error of any thread; None so far."""

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a new thread with this name, which `work` may change. Threads of the crew may start further threads."""
        thread = threading.Thread(target=self._run, args=(work,), name=name)
        with self._lock:
            # With the lock held: `join` would mistake a thread that is about to start for one that has ended.
            thread.start()
            self._threads.append(thread)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.fail(error, threading.current_thread().name)

    def fail(self, error: BaseException, name: str) -> None:
        """Record an error of the thread `name`; the first error also calls `abort`. Any thread."""
        error.add_note(f"in thread {name}")
        with self._lock:
            first = self.error is None
            if first:
                self.error = error
        if first:
            self._abort()

    def alive(self) -> list[str]:
        """Names of the running threads."""
        with self._lock:
            return [t.name for t in self._threads if t.is_alive()]

    def join(self) -> None:
        """Wait until all threads have ended, also those that start during the wait."""
        while True:
            with self._lock:
                waiting = [t for t in self._threads if t.is_alive()]
                self._threads = waiting
            if not waiting:
                return
            for thread in waiting:
                thread.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._abort()
        self.join()
        if error is None and self.error is not None:
            raise self.error
