"""`watchline bench`: its commands end to end, tiny, with the probe; and the closed forms, by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.bench.concurrency_bench import first_use
from app.bench.ideal import Ideal, by_cores, by_device, in_step, jain
from app.bench.stream_bench import reached
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.scheduling.profile import Profile, Timing
from tests.clips import numbered
from tests.command import watchline
from tests.predict.scheduling.simulation import profile

pytestmark = pytest.mark.timeout(60)
SHAPE = ("--probe-ms-per-batch", "8", "--probe-ms-per-frame", "0.5")
TINY = ("--model", "probe", "--json")


def test_files(place: Path) -> None:
    numbered(place / "num.mp4")
    done = watchline("bench", "files", "num.mp4", *TINY)
    result = json.loads(done.out)
    assert done.code == 0
    assert result["streams"]["num"]["shown"] == 100
    assert set(result["parts_cpu_ms"]) == {"decode", "preprocess", "model"}
    assert result["share_of_limit"] > 0


def test_a_clip_alone_means_files(place: Path) -> None:
    numbered(place / "num.mp4", frames=20)
    assert "20 frames, " in watchline("bench", "num.mp4", "--model", "probe").out
    assert "20 frames, " in watchline("bench", "--model", "probe", "num.mp4").out


class TestStreams:
    def test_so_many_of_a_clip(self, place: Path) -> None:
        """The clip is over after a quarter of the time: it is played again."""
        numbered(place / "num.mp4", frames=20, b_frames=2)
        done = watchline("bench", "streams", "--source", "num.mp4", "--streams", "3", "--seconds", "1", *TINY)
        result = json.loads(done.out)
        trial = result["trial"]
        assert (done.code, trial["adds_up"], trial["streams"]) == (0, True, 3)
        # With B-frames the two that the decoder holds at the end of each turn are left out.
        assert 60 <= trial["captured"] <= 76
        assert trial["captured"] == trial["shown"] + sum(trial["dropped"].values())
        assert trial["latency_ms"]["decode"]["p50"] > 0

    def test_the_search_and_twice_as_many(self) -> None:
        """A device of 15 ms a frame serves one stream of 25 fps, or two; never four."""
        shape = ("--probe-ms-per-frame", "15", "--seconds", "0.4")
        done = watchline("bench", "streams", "--source", "synthetic:64x64@25", *shape, *TINY)
        result = json.loads(done.out)
        assert done.code == 0
        assert (result["ideal"], result["ideal_device"]) == (2, 2)
        assert result["reached"] in (0, 1, 2), result
        assert result["double"]["streams"] == 2 * max(result["reached"], 1)
        assert result["double"]["adds_up"]
        if result["double"]["streams"] == 4:
            assert sum(result["double"]["dropped"].values()) > 0

    def test_the_table(self) -> None:
        source = ("--source", "synthetic:64x64@25", "--streams", "2", "--seconds", "0.4")
        done = watchline("bench", "streams", *source, "--model", "probe", *SHAPE)
        assert done.code == 0
        rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.split()}
        assert rows["streams"] == ["2"]
        assert rows["ledger"] == ["adds", "up"]
        assert {"goodput", "dropped", "fairness", "decode", "queue", "infer", "total"} <= rows.keys()

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["--source", "nope.mp4"], ["nope.mp4"]),
            (["--source", "."], ["no videos"]),
            (["--source", ""], ["empty"]),
            (["--source", "0"], ["rtsp://", "synthetic"]),
            (["--seconds", "0"], ["--seconds must be more than 0"]),
            (["--seconds", "nan"], ["--seconds must be a finite number"]),
            (["--streams", "0"], ["--streams must be more than 0"]),
        ],
    )
    def test_what_is_wrong_is_said(self, place: Path, args: list[str], words: list[str]) -> None:
        done = watchline("bench", "streams", "--model", "probe", *args)
        assert done.code == 2
        assert all(word in done.err for word in words), done.err


class TestConcurrency:
    def test_a_device_that_likes_batches(self) -> None:
        done = watchline("bench", "concurrency", "--seconds", "0.9", *TINY, *SHAPE)
        (found,) = json.loads(done.out)["models"]
        at_once, batching, overlap = found["compared"]
        assert done.code == 0
        # 16 at once: 16 ms a batch of 16 against 136 ms one by one. On a machine that others use, too.
        assert batching["kept"]["mean_batch"] > 3 > batching["without"]["mean_batch"] == 1
        assert batching["gain"] > 1.5
        assert at_once["without"]["mean_batch"] == 1
        assert at_once["kept"]["p50_ms"] > 8.5
        assert overlap["promise"] == "staging overlapped"
        assert list(found["first_ms"]) == ["1", "2", "4", "8", "16", "32"]

    def test_the_sentences(self) -> None:
        out = watchline("bench", "concurrency", "--seconds", "0.3", "--model", "probe", *SHAPE, "--max-batch", "8").out
        assert "dynamic batching pays: " in out
        assert re.search(r"a batch of 8 takes \d\d % of the time of 8 single ones", out)
        assert "warming up makes no difference" in out

    def test_a_size_is_slow_once(self) -> None:
        class Compiling(ProbeEngine):
            """The first batch of each size takes 30 ms longer."""

            def start(self, slot: object, n: int) -> None:
                self.seen = getattr(self, "seen", set())
                self._per_batch_s = 0.0 if n in self.seen else 0.03
                self.seen.add(n)
                super().start(slot, n)  # type: ignore[arg-type]

        first, warm = first_use(Compiling(), 4)
        assert list(first) == list(warm) == [1, 2, 4]
        assert min(first.values()) > 30 > max(warm.values())


class TestIdeal:
    def test_a_line_is_the_closed_form(self) -> None:
        # (T / beta) (1 - a / S) = 80 * 0.84 = 67.2, if batches of 84 are allowed; of 32 at most, 32 / 24 ms * 40 ms = 53.3.
        assert by_device(profile(0.008, 0.0005, 128), 0.04, 0.05) == 67
        assert by_device(profile(0.008, 0.0005, 32), 0.04, 0.05) == 53

    def test_side_by_side(self) -> None:
        assert by_device(profile(0.008, 0.0005, 32), 0.04, 0.05, 2) == 106
        assert in_step(profile(0.008, 0.0005, 32), 0.04, 0.05, 2) == 96

    def test_in_step(self) -> None:
        # A batch of 24 takes 20 ms: two of them a period. One of 25 fits once only.
        assert in_step(profile(0.008, 0.0005, 32), 0.04, 0.05) == 48

    def test_a_table_that_pads(self) -> None:
        """3.4 ms a single frame: 11.8 of them in 40 ms. 16 take 48 ms, which is still within the budget: 13.3."""
        table = {1: 3.4, 2: 6.6, 4: 12.7, 8: 25.0, 16: 48.0, 32: 82.0}
        lite0 = Profile({b: Timing(ms / 1e3, ms / 1e3) for b, ms in table.items()}, 32, pads=True)
        assert by_device(lite0, 0.04, 0.05) == 13
        # In step, 16 do not fit into a period: 2 * floor(40 / 6.6), or 4 * floor(40 / 12.7).
        assert in_step(lite0, 0.04, 0.05) == 12
        assert by_device(lite0, 0.04, 0.03) == 12

    def test_a_device_that_is_too_slow(self) -> None:
        assert by_device(profile(0.06, 0.0), 0.04, 0.05) == in_step(profile(0.06, 0.0), 0.04, 0.05) == 0

    def test_cores(self) -> None:
        assert by_cores({"decode": 1.8, "preprocess": 0.5, "model": 6.2}, 2, 0.04) == pytest.approx(80 / 8.5)

    def test_the_smaller_counts_in_whole_streams(self) -> None:
        assert [Ideal(12, 9.41).streams, Ideal(8, 9.41).streams, Ideal(12, 9.0).streams] == [9, 8, 9]


@pytest.mark.parametrize(
    ("shares", "index"), [([1, 1, 1, 1], 1.0), ([1, 0, 0, 0], 0.25), ([3, 1], 0.8), ([0.5, 0.25], 0.9), ([0, 0], 1.0)]
)
def test_jain(shares: list[float], index: float) -> None:
    assert jain(shares) == pytest.approx(index)


@pytest.mark.parametrize("most", [0, 1, 2, 5, 8, 13, 64])
@pytest.mark.parametrize("first", [1, 3, 8, 50])
def test_the_search_finds_the_last_that_is_good(most: int, first: int) -> None:
    asked: list[int] = []
    assert reached(lambda n: asked.append(n) or n <= most, first) == most  # type: ignore[func-returns-value]
    assert len(asked) == len(set(asked)) <= 14
