"""The soak itself: a short one, that each promise can be broken, and that its schedule is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.soak.__main__ import judged, table
from tests.soak.promises import seen, verdicts
from tests.soak.record import Happened, Line, Outage, Record, Sample, Stream
from tests.soak.run import soak
from tests.soak.schedule import KINDS, schedule
from tests.system import need

START_S = 1000.0


@pytest.mark.field
@pytest.mark.timeout(150)
def test_a_minute_of_it(tmp_path: Path) -> None:
    """Every kind of fault once. Memory is for longer ones."""
    need("gst-rtsp-server")
    record = soak(66, every_s=7, seed=1, folder=tmp_path)
    found = verdicts(record)
    assert {h.kind for h in record.happened} == set(KINDS)
    assert not [v for v in found if v.kept is False], "\n".join([*table(seen(record)), *judged(found), record.said])
    assert [v.promise for v in found if v.kept is None] == [found[-1].promise]


class TestSchedule:
    def test_cameras_take_turns_and_every_kind_comes_before_one_comes_again(self) -> None:
        faults = schedule(1800, 20, seed=3, cameras=4)
        assert [f.camera for f in faults[:5]] == [0, 1, 2, 3, 0]
        assert [f.at_s for f in faults[:3]] == [20, 40, 60]
        for k in range(0, len(faults) - 6, 6):
            assert {f.kind for f in faults[k : k + 6]} == set(KINDS)

    def test_the_seed_decides_and_the_end_is_left_alone(self) -> None:
        assert schedule(600, 20, 1, 4) == schedule(600, 20, 1, 4)
        assert schedule(600, 20, 1, 4) != schedule(600, 20, 2, 4)
        last = schedule(600, 20, 1, 4)[-1]
        assert last.at_s + last.for_s <= 600 - 14


def lines(first_s: float, count: int, *, frame: int = 0, session: int = 0) -> list[Line]:
    """Frames as they come, 25 a second."""
    return [Line(session, frame + k, first_s + k / 25, "ok", None, (frame + k) % 100) for k in range(count)]


def report(captured: int, **other: Any) -> dict[str, Any]:
    """All of them shown."""
    dropped = {"overload": 0, "corrupt": 0}
    return {"captured": captured, "shown": captured, "failed": 0, "dropped": dropped, "errors": [], **other}


def good() -> Record:
    """A camera that was seen for 140 s, was killed for 5 s after 50 of them, and had a clock that began anew after 100."""
    before = lines(START_S, 1250)
    after = lines(START_S + 56, 2000, frame=1250, session=1)
    stream = Stream([*before, *after], report(3250), [Outage(START_S + 50, 6.0)])
    killed = Happened("cam0", "killed", START_S + 50, START_S + 55)
    restarted = Happened("cam0", "clock restarted", START_S + 100, START_S + 100)
    samples = [Sample(START_S + k, 100.0 + (k % 3) / 10, 14, 8, calm=k % 20 == 5) for k in range(140)]
    return Record([killed, restarted], samples, {"cam0": stream}, 143, 0.2)


def with_stream(record: Record, **changes: Any) -> Record:
    return replace(record, streams={"cam0": replace(record.streams["cam0"], **changes)})


def with_lines(record: Record, change: Callable[[list[Line]], None]) -> Record:
    changed = list(record.streams["cam0"].lines)
    change(changed)
    return with_stream(record, lines=changed)


def twice(lines: list[Line]) -> None:
    lines[2000] = replace(lines[2000], number=lines[1999].number)


def backwards(lines: list[Line]) -> None:
    lines[2000], lines[2001] = (replace(lines[k], number=lines[j].number) for k, j in ((2000, 2001), (2001, 2000)))


def lost(lines: list[Line]) -> None:
    del lines[2000]


def other_cause(lines: list[Line]) -> None:
    lines[2000] = replace(lines[2000], status="dropped", cause="corrupt", number=None)


def late(lines: list[Line]) -> None:
    lines[1250:1500] = [replace(line, status="dropped", cause="corrupt", number=None) for line in lines[1250:1500]]


GOOD = good()
KILLED = Outage(START_S + 50, 6.0)
BROKEN: dict[str, tuple[str, Record]] = {
    "the machine stood still": ("not held up", replace(GOOD, samples=[*GOOD.samples[:60], *GOOD.samples[80:]])),
    "captured is more than what ended": ("ledger", with_stream(GOOD, report=report(3250, shown=3249))),
    "a line is missing": ("ledger", with_lines(GOOD, lost)),
    "a line says something else": ("ledger", with_lines(GOOD, other_cause)),
    "the stream has an error": ("ledger", with_stream(GOOD, report=report(3250, errors=["lost"]))),
    "no report": ("ledger", replace(GOOD, streams={})),
    "an outage is not reported": ("every outage", with_stream(GOOD, outages=[])),
    "an outage without a reason": ("every outage", with_stream(GOOD, outages=[KILLED, Outage(START_S + 80, 2.0)])),
    "an outage at a restarted clock": ("every outage", with_stream(GOOD, outages=[KILLED, Outage(START_S + 100, 1.0)])),
    "an outage of a wrong length": ("every outage", with_stream(GOOD, outages=[Outage(START_S + 50, 12.0)])),
    "back too late": ("new frame within", with_lines(GOOD, late)),
    "never back": ("new frame within", with_stream(GOOD, lines=lines(START_S, 1250), report=report(1250))),
    "a picture twice": ("no picture", with_lines(GOOD, twice)),
    "pictures in another order": ("no picture", with_lines(GOOD, backwards)),
    "a thread more": ("threads and", replace(GOOD, samples=[*GOOD.samples, replace(GOOD.samples[5], threads=15)])),
    "nothing to compare": ("threads and", replace(GOOD, samples=GOOD.samples[:60])),
    "a descriptor more": ("threads and", replace(GOOD, samples=[*GOOD.samples, replace(GOOD.samples[5], descriptors=9)])),
    "another code": ("exit code", replace(GOOD, code=1)),
    "killed": ("exit code", replace(GOOD, code=None, ended_in_s=10.0)),
    "a slow end": ("exit code", replace(GOOD, ended_in_s=3.5)),
    "a traceback": ("exit code", replace(GOOD, said="Traceback (most recent call last):")),
    "memory grows": ("memory", replace(GOOD, samples=[replace(s, rss_mb=100 + (s.at_s - START_S) / 55) for s in GOOD.samples])),
}


class TestPromises:
    def test_all_of_a_good_record_are_kept(self) -> None:
        found = verdicts(GOOD)
        assert [v.kept for v in found] == [True] * 8, judged(found)
        killed, clock = seen(GOOD)
        assert killed.outage == Outage(START_S + 50, 6.0)
        assert killed.first_new_s == pytest.approx(1.0)
        assert clock.outage is None

    @pytest.mark.parametrize("what", BROKEN)
    def test_each_can_be_broken(self, what: str) -> None:
        promise, record = BROKEN[what]
        broken = [v for v in verdicts(record) if v.kept is False]
        assert any(promise in v.promise for v in broken), broken

    def test_a_camera_that_stood_still_goes_on_with_a_later_picture_but_not_with_the_same(self) -> None:
        after = lines(START_S + 10, 100, frame=100)
        fault = Happened("cam0", "no pictures", START_S + 4, START_S + 9.5)
        for number, kept in ((50, True), (99, False)):
            leapt = [replace(line, number=(number + k) % 100) for k, line in enumerate(after)]
            stream = Stream([*lines(START_S, 100), *leapt], report(200), [])
            found = verdicts(replace(GOOD, happened=[fault], streams={"cam0": stream}))
            (verdict,) = (v for v in found if "no picture is" in v.promise)
            assert verdict.kept is kept

    def test_a_short_one_says_nothing_of_memory(self) -> None:
        (verdict,) = (v for v in verdicts(replace(GOOD, samples=GOOD.samples[:100])) if "memory" in v.promise)
        assert verdict.kept is None
