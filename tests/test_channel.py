"""The queue between two threads: no item is lost, no call waits forever, and every outcome has a name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipelines.channel import Channel, Closed

pytestmark = pytest.mark.timeout(20)
SHORT_S = 0.05
LONG_S = 10.0


class Helper:
    """Runs a call in a thread. `begun` is set before the call, `result` or `error` after it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.begun = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.begun.wait(LONG_S)

    def _run(self) -> None:
        self.begun.set()
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error

    def ended(self, limit_s: float = LONG_S) -> bool:
        self._thread.join(limit_s)
        return not self._thread.is_alive()


@pytest.fixture(params=["block", "newest"])
def channel(request: pytest.FixtureRequest) -> Channel[int]:
    return Channel(3, request.param)


class TestBoth:
    def test_items_come_in_order(self, channel: Channel[int]) -> None:
        assert [channel.put(k) for k in range(3)] == [None] * 3
        assert len(channel) == 3
        assert [channel.get() for _ in range(3)] == [0, 1, 2]
        assert len(channel) == 0

    def test_a_get_waits_for_an_item(self, channel: Channel[int]) -> None:
        helper = Helper(channel.get)
        assert not helper.ended(SHORT_S)
        channel.put(7)
        assert helper.ended()
        assert helper.result == 7

    def test_a_get_waits_no_longer_than_it_was_told(self, channel: Channel[int]) -> None:
        with pytest.raises(TimeoutError, match=r"0\.01"):
            channel.get(0.01)
        with pytest.raises(TimeoutError):
            channel.get(0)
        channel.put(1)
        assert channel.get(0) == 1

    def test_what_is_inside_at_the_close_can_still_be_taken(self, channel: Channel[int]) -> None:
        channel.put(1)
        channel.put(2)
        channel.close()
        assert list(channel) == [1, 2]
        with pytest.raises(Closed):
            channel.get()

    def test_a_put_after_the_close_is_refused_and_displaces_nothing(self, channel: Channel[int]) -> None:
        for k in range(3):
            channel.put(k)
        channel.close()
        with pytest.raises(Closed):
            channel.put(9)
        assert list(channel) == [0, 1, 2]

    def test_a_close_wakes_a_get(self, channel: Channel[int]) -> None:
        helper = Helper(channel.get)
        channel.close()
        assert helper.ended()
        assert isinstance(helper.error, Closed)

    def test_closing_twice_is_fine(self, channel: Channel[int]) -> None:
        channel.close()
        channel.close()
        assert list(channel) == []

    def test_one_close_wakes_every_waiter(self, channel: Channel[int]) -> None:
        helpers = [Helper(channel.get) for _ in range(5)]
        channel.close()
        assert all(helper.ended() for helper in helpers)

    @pytest.mark.parametrize("capacity", [0, -1])
    def test_a_capacity_that_holds_nothing(self, capacity: int) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            Channel(capacity, "block")


class TestBlock:
    def test_a_put_waits_for_room(self) -> None:
        channel: Channel[int] = Channel(1, "block")
        channel.put(0)
        helper = Helper(lambda: channel.put(1))
        assert not helper.ended(SHORT_S)
        assert len(channel) == 1
        assert channel.get() == 0
        assert helper.ended()
        assert helper.error is None
        assert channel.get() == 1

    def test_a_close_wakes_a_put_that_waits_and_refuses_its_item(self) -> None:
        channel: Channel[int] = Channel(1, "block")
        channel.put(0)
        helper = Helper(lambda: channel.put(1))
        channel.close()
        assert helper.ended()
        assert isinstance(helper.error, Closed)
        assert list(channel) == [0]

    @pytest.mark.parametrize("capacity", [1, 2, 7])
    def test_nothing_is_lost_between_many_threads(self, capacity: int) -> None:
        channel: Channel[tuple[int, int]] = Channel(capacity, "block")
        most = 0

        def produce(who: int) -> None:
            for k in range(200):
                channel.put((who, k))

        def consume() -> list[tuple[int, int]]:
            nonlocal most
            found = []
            for item in channel:
                most = max(most, len(channel))
                found.append(item)
            return found

        takers = [Helper(consume) for _ in range(3)]
        givers = [Helper(lambda who=who: produce(who)) for who in range(3)]
        assert all(giver.ended() for giver in givers)
        channel.close()
        assert all(taker.ended() for taker in takers)
        assert sorted(item for taker in takers for item in taker.result) == [(w, k) for w in range(3) for k in range(200)]
        assert most <= capacity


class TestNewest:
    def test_the_oldest_makes_room_and_is_given_back(self) -> None:
        channel: Channel[int] = Channel(2, "newest")
        assert [channel.put(k) for k in range(5)] == [None, None, 0, 1, 2]
        channel.close()
        assert list(channel) == [3, 4]

    def test_every_item_is_taken_or_given_back(self) -> None:
        channel: Channel[int] = Channel(1, "newest")
        taker = Helper(lambda: list(channel))
        displaced = [out for k in range(2000) if (out := channel.put(k)) is not None]
        channel.close()
        assert taker.ended()
        assert sorted(displaced + taker.result) == list(range(2000))
        assert taker.result == sorted(taker.result)
        assert taker.result[-1] == 1999


def test_iteration_ends_between_items(channel: Channel[int]) -> None:
    channel.put(1)
    items: Iterator[int] = iter(channel)
    assert next(items) == 1
    channel.close()
    assert next(items, None) is None
