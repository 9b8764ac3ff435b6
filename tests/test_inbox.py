"""The inbox between decoder and lane: frame order, one wake-up, an end that is always reached."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from pipelines.channel import Closed
from pipelines.frame import NOTHING, Frame, Prediction, StreamInfo, Trace
from pipelines.inbox import Inbox

pytestmark = pytest.mark.timeout(10)


def _frame(index: int) -> Frame:
    return Frame("a", 0, index, NOTHING, None, StreamInfo(), Trace(0.0, 0.0))


def _filled(count: int) -> tuple[Inbox, list[Future[Prediction]]]:
    inbox, futures = Inbox(10), [Future[Prediction]() for _ in range(count)]
    for index, future in enumerate(futures):
        inbox.put(_frame(index), future)
    return inbox, futures


def test_frames_come_in_frame_order_whatever_the_order_of_their_answers() -> None:
    inbox, futures = _filled(4)
    taken: list[int] = []
    third = threading.Event()

    def lane() -> None:
        for frame, _ in inbox:
            taken.append(frame.index)
            if frame.index == 2:
                third.set()

    thread = threading.Thread(target=lane)
    thread.start()
    for k in (2, 1, 0):
        assert taken == []
        futures[k].set_result(Prediction({}, 1, 1))
    assert third.wait(5)
    assert taken == [0, 1, 2]
    futures[3].cancel()
    inbox.close()
    thread.join()
    assert taken == [0, 1, 2, 3]


def test_what_was_done_before_it_was_put_is_taken_at_once() -> None:
    inbox = Inbox(1)
    future: Future[Prediction] = Future()
    future.set_exception(ValueError("bad"))
    inbox.put(_frame(0), future)
    inbox.close()
    assert [frame.index for frame, _ in inbox] == [0]


def test_a_full_inbox_waits_for_room_and_closing_it_ends_the_wait() -> None:
    inbox = Inbox(1)
    inbox.put(_frame(0), Future())
    outcome: list[type[BaseException]] = []

    def decoder() -> None:
        try:
            inbox.put(_frame(1), Future())
        except Closed as closed:
            outcome.append(type(closed))

    thread = threading.Thread(target=decoder)
    thread.start()
    inbox.close()
    thread.join()
    assert outcome == [Closed]
    with pytest.raises(Closed):
        inbox.put(_frame(2), Future())
