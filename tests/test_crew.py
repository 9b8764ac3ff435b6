"""Threads that end together."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pipelines.crew import Crew

pytestmark = pytest.mark.timeout(20)


class Aborted:
    """An abort that counts its calls and wakes waiting threads."""

    def __init__(self) -> None:
        self.times = 0
        self.event = threading.Event()

    def __call__(self) -> None:
        self.times += 1
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(10)


@pytest.fixture
def abort() -> Aborted:
    return Aborted()


def fail(text: str = "broken") -> None:
    raise RuntimeError(text)


def raised(kind: type[BaseException], abort: Aborted, body: Callable[[Crew], None]) -> BaseException:
    """The error that a crew's `with` around `body` raises."""

    def run() -> None:
        with Crew(abort) as crew:
            body(crew)

    with pytest.raises(kind) as caught:
        run()
    return caught.value


def test_leaving_waits_for_a_thread_that_is_only_being_started(abort: Aborted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may not be listed yet, or be listed but not alive yet: `join` must wait for it in both states."""
    start = threading.Thread.start
    began, ended = threading.Event(), []

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "late":
            began.set()
            abort.event.wait(0.2)  # the main thread begins to wait for all threads
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    with Crew(abort) as crew:
        crew.start("first", lambda: crew.start("late", lambda: ended.append(abort.event.wait(0.2))))
        assert began.wait(10)
    assert ended == [False]


def test_leaving_waits_for_every_thread(abort: Aborted) -> None:
    go, done = threading.Event(), []
    with Crew(abort) as crew:
        for k in range(5):
            crew.start(f"worker:{k}", lambda k=k: (go.wait(10), done.append(k)))
        assert len(crew.alive()) == 5
        go.set()
    assert sorted(done) == list(range(5))
    assert crew.alive() == []
    assert abort.times == 0
    assert crew.error is None


def test_threads_carry_their_name_and_are_no_daemons(abort: Aborted) -> None:
    seen = []
    with Crew(abort) as crew:
        crew.start("decode:door", lambda: seen.append(threading.current_thread()))
    assert seen[0].name == "decode:door"
    assert not seen[0].daemon


def test_alive_names_who_hangs(abort: Aborted) -> None:
    go, started = threading.Event(), threading.Event()
    with Crew(abort) as crew:
        crew.start("hangs", lambda: (started.set(), go.wait(10)))
        assert started.wait(10)
        assert crew.alive() == ["hangs"]
        go.set()


def test_an_error_ends_the_others_and_comes_out_with_the_thread_s_name(abort: Aborted) -> None:
    def body(crew: Crew) -> None:
        crew.start("waits", abort.wait)
        crew.start("lane:door", fail)

    error = raised(RuntimeError, abort, body)
    assert str(error) == "broken"
    assert error.__notes__ == ["in thread lane:door"]
    assert abort.times == 1


def test_the_first_error_wins_and_abort_is_called_once(abort: Aborted) -> None:
    def second() -> None:
        abort.wait()
        fail("because of the first")

    def first_of_four(crew: Crew) -> None:
        for k in range(3):
            crew.start(f"second:{k}", second)
        crew.start("first", lambda: fail("first"))

    error = raised(RuntimeError, abort, first_of_four)
    assert str(error) == "first"
    assert abort.times == 1


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_error_that_is_no_exception_comes_out_too(kind: type[BaseException], abort: Aborted) -> None:
    def end() -> None:
        raise kind

    with pytest.raises(kind), Crew(abort) as crew:
        crew.start("ends", end)
    assert abort.times == 1


def test_an_error_of_the_body_aborts_waits_and_wins(abort: Aborted) -> None:
    ended = []

    def work() -> None:
        abort.wait()
        ended.append(1)
        fail("later")

    def body(crew: Crew) -> None:
        crew.start("works", work)
        raise ValueError("body")

    assert str(raised(ValueError, abort, body)) == "body"
    assert ended == [1]
    assert abort.times >= 1


def test_a_thread_may_start_others_which_are_waited_for(abort: Aborted) -> None:
    order: list[str] = []
    go = threading.Event()
    with Crew(abort) as crew:

        def outer() -> None:
            crew.start("inner", lambda: (go.wait(10), order.append("inner")))
            order.append("outer")

        crew.start("outer", outer)
        go.set()
    assert sorted(order) == ["inner", "outer"]


def test_an_error_from_outside_counts_like_a_thread_s(abort: Aborted) -> None:
    def body(crew: Crew) -> None:
        crew.start("waits", abort.wait)
        crew.fail(RuntimeError("window"), "main")

    error = raised(RuntimeError, abort, body)
    assert error.__notes__ == ["in thread main"]


def test_join_may_be_called_before_leaving(abort: Aborted) -> None:
    with Crew(abort) as crew:
        crew.start("short", lambda: None)
        crew.join()
        assert crew.alive() == []
        crew.start("another", lambda: None)


def test_a_thread_that_is_being_started_is_waited_for(abort: Aborted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the crew starts another one and ends while the crew waits."""
    begun, joined, ended = threading.Event(), threading.Event(), threading.Event()
    true_start, too_early = threading.Thread.start, []

    def slow_start(thread: threading.Thread) -> None:
        if thread.name == "second":
            begun.set()
            too_early.append(joined.wait(0.2))
        true_start(thread)

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    crew = Crew(abort)
    starter = threading.Thread(target=lambda: crew.start("second", ended.set), name="starter")
    starter.start()
    assert begun.wait(10)
    crew.join()
    joined.set()
    starter.join()
    assert (too_early, ended.is_set()) == ([False], True)
