"""The clock camera, read over RTSP: exactly the pictures in its list arrive."""

from __future__ import annotations

import pytest

from pipelines.frame import Capture
from tests.servers.clock import ClockCamera, Pushed
from tests.servers.stamp import read_stamp, strip_of
from tests.sources.play import Player, camera
from tests.system import need

SIZE = (640, 368)
KEY_EVERY = 10
LOSING = range(3, 15)
LAST = 22
"""The last picture that is looked at."""


def stamp_of(capture: Capture) -> int | None:
    return read_stamp(strip_of(capture.picture.y))


def check(player: Player, sent: list[Pushed]) -> None:
    """All pictures that lean on no loss come, in order, with their stamps; every lost packet is counted, each once."""
    player.until_one(lambda capture: stamp_of(capture) == sent[LAST].stamp)
    stamps = [stamp_of(capture) for capture in player.captures if not capture.corrupt]
    damaged = {p.index for p in sent if p.dropped}
    assert damaged
    assert damaged <= set(LOSING)
    whole = [p.stamp for p in sent if damaged.isdisjoint(range(p.index - p.index % KEY_EVERY, p.index + 1))]
    assert stamps[: len(whole)] == whole[: len(stamps)]
    assert sent[LAST].stamp in stamps
    assert player.reports.counts.lost == sum(len(p.dropped) for p in sent)


@pytest.mark.timeout(60)
def test_stamps_come_and_losses_are_known() -> None:
    need("gst-rtsp-server")
    with (
        ClockCamera(2, size=SIZE, key_every=KEY_EVERY, drop=0.2, dropping=LOSING) as cameras,
        Player(camera(cameras.url(0), "native tcp")) as first,
        Player(camera(cameras.url(1), "native udp")) as second,
    ):
        for number, player in enumerate((first, second)):
            sent = cameras.until_pushed(number, lambda pictures: len(pictures) > LAST and pictures[LAST].encoded_s is not None)
            check(player, sent)
            assert [p.index for p in sent[:LAST] if p.key] == [0, 10, 20]
            assert all(p.encoded_s and p.due_s - 0.01 < p.stamp_s < p.encoded_s for p in sent[:LAST])
