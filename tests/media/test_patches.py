"""Changes of PyAV and FFmpeg: made by one call, on names that the installed versions have, and not by an import."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import av._core
import av.container.core as core
import pytest
from av.dictionary import Dictionary
from av.sidedata.sidedata import SideDataContainer
from av.sidedata.sidedata import Type as SideDataType
from PIL import Image, ImageCms

from pipelines.media import interrupt, patches

ROOT = Path(__file__).parents[2]
STATE = """
def state():
    return core.time is time, "_missing_" in vars(Type), allocated()

def allocated():
    try:
        av.VideoFrame(15000, 15000, "rgb24")  # 644 MiB, which are never written
    except MemoryError:
        return False
    return True
"""


def _fresh(code: str) -> str:
    """The output of `code` in a new process."""
    head = "import time, av\nimport av.container.core as core\nfrom av.sidedata.sidedata import Type\n"
    done = subprocess.run([sys.executable, "-c", head + STATE + code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_import_changes_nothing() -> None:
    modules = ("session", "media.patches", "sources.make_source", "sources.files.encoded", "sinks.video", "sinks.sound")
    code = "".join(f"import pipelines.{m}\n" for m in modules)
    assert _fresh(f"{code}print(state())") == "(True, False, True)"


@pytest.mark.parametrize(
    "use",
    [
        "from pipelines.media import patches; patches.install(); patches.install()",
        "from pipelines.media.pixels import Pixels; Pixels()",
        "from pipelines.sources.files.encoded import EncodedPictures; EncodedPictures()",
    ],
    ids=["install", "pixels", "encoded"],
)
def test_every_patch_is_made(use: str) -> None:
    assert _fresh(f"{use}\nprint(state())") == "(False, True, False)"


def test_an_opened_source_has_the_patches() -> None:
    code = """
import threading
from pipelines.errors import SourceError
from pipelines.sources.opening import Timeouts, opened
try:
    with opened("file:/nonexistent", stop=threading.Event(), limits=Timeouts()):
        pass
except SourceError:
    print(state())
"""
    assert _fresh(code) == "(False, True, False)"


def test_the_patched_names_exist_before() -> None:
    assert _fresh("print(core.time.monotonic is time.monotonic)") == "True"
    assert _fresh("print(callable(Type._missing_), Type.PANSCAN.name)") == "True PANSCAN"
    assert callable(ctypes.CDLL(av._core.__file__).av_max_alloc)
    assert len(patches.PATCHES) == 3


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.target)
def test_a_patch_names_its_version_reason_and_issue(patch: patches.Patch) -> None:
    major = av.__version__.partition(".")[0]
    assert f"PyAV {major}." in patch.written_for, "a new PyAV: read its changelog, try the patch, and write the version down"
    assert patch.reason
    assert patch.upstream


def test_a_patch_is_in_place_and_can_be_made_again() -> None:
    patches.install()
    for patch in patches.PATCHES:
        patch.apply()
    assert core.time is interrupt.stop_clock  # type: ignore[attr-defined]
    assert SideDataType(9999) is SideDataType.PANSCAN


def test_the_wrapper_of_side_data_has_its_metadata_as_a_dictionary(tmp_path: Path) -> None:
    """As sidedata.display_matrix expects: without it, it would leak nothing and the process would crash."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    path = tmp_path / "profile.png"
    Image.new("RGB", (16, 16)).save(path, icc_profile=profile)
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    found = SideDataContainer(frame)  # type: ignore[call-arg]
    dictionaries = [part for one in found for part in gc.get_referents(one) if isinstance(part, Dictionary)]
    for part in dictionaries:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
    assert [dict(part) for part in dictionaries if len(part)] != []
