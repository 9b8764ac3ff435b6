"""Threads that end together: the first error wins, and leaving the `with` waits for every one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Crew:
    """A group of named threads, none of them daemons.

    When one raises, `abort` is called once (it should make the others end), and the error comes out of the `with`
    with the thread's name as a note.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.error: BaseException | None = None
        """The first error of any thread."""

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a new thread called `name`, a name that it may change. Threads of the crew may start others."""
        thread = threading.Thread(target=self._run, args=(work,), name=name)
        with self._lock:
            # Within the lock: `join` would take one that is about to start for one that has ended.
            thread.start()
            self._threads.append(thread)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.fail(error, threading.current_thread().name)

    def fail(self, error: BaseException, name: str) -> None:
        """Note the first error and make the others end."""
        error.add_note(f"in thread {name}")
        with self._lock:
            first = self.error is None
            if first:
                self.error = error
        if first:
            self._abort()

    def alive(self) -> list[str]:
        """Names of the threads that still run."""
        with self._lock:
            return [t.name for t in self._threads if t.is_alive()]

    def join(self) -> None:
        """Wait until every thread has ended, those that were started meanwhile too."""
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
