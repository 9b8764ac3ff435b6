"""The load of a predictor follows from the streams that it will serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app import build
from app.build import load_of
from app.config import Settings
from app.streams import StreamPlan
from pipelines.choices import SourceKind
from pipelines.predict.models.model_options import Load
from pipelines.sources.stream_options import StreamOptions
from pipelines.sources.stream_spec import StreamSpec


def _load(kinds: Sequence[SourceKind], **settings: Any) -> Load:
    return load_of([StreamPlan(StreamSpec(f"s{k}", kind, "x")) for k, kind in enumerate(kinds)], Settings(**settings))


@pytest.mark.parametrize(
    ("kinds", "settings", "cameras", "files", "stills"),
    [
        (["file"], {}, 0, True, False),
        (["file", "file"], {"realtime": True}, 2, False, False),
        (["rtsp", "device", "synthetic"], {}, 3, False, False),
        (["rtsp", "file"], {}, 1, True, False),
        (["network"], {}, 1, True, False),
        (["images"], {}, 0, True, True),
        (["images", "file"], {}, 0, True, False),
    ],
)
def test_the_streams_say_what_will_be_asked(
    kinds: Sequence[SourceKind], settings: dict[str, Any], cameras: int, files: bool, stills: bool
) -> None:
    assert _load(kinds, **settings) == Load(cameras, files, stills)


def test_no_batch_is_larger_than_the_cameras_are_many() -> None:
    assert _load(["rtsp"] * 3).largest(32) == 3
    assert _load(["rtsp"] * 40).largest(32) == 32
    assert _load(["rtsp", "file"]).largest(32) == 32


def test_only_files_alone_may_take_their_time() -> None:
    assert _load(["file"]).bulk
    assert not _load(["file"], realtime=True).bulk
    assert not _load(["file", "rtsp"]).bulk
    assert not _load(["network"]).bulk


@pytest.mark.parametrize(
    ("at_once", "settings", "threads"),
    [(1, {}, 12), (2, {}, 6), (3, {}, 4), (20, {}, 1), (1, {"stride": 25}, 1), (1, {"max_fps": 1.0}, 1)],
)
def test_cores_are_shared_by_encoders_unless_frames_come_slowly(
    at_once: int, settings: dict[str, Any], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread more than one holds a frame back: at one frame a second that would be seconds."""
    monkeypatch.setattr(build, "cores", lambda: 8)
    assert build.encoders(at_once, StreamOptions(**settings)) == threads
