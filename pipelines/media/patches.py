"""All changes of PyAV and FFmpeg that the library makes, and a list of every other use of their private parts.

`install()` makes the changes in PATCHES, which hold for the whole process and are never undone. The program calls it at its
start; a session, every opened source and every converter of pictures call it, too. Importing this module changes nothing.

Private parts that are used without a change:

- `decoder_limits`: the file of `av._core` gives access to FFmpeg's own functions, for av_max_alloc. No issue is known.
- `sidedata`: `SideDataContainer` is constructed directly, since `frame.side_data` makes a reference cycle; the wrapper of the
  metadata is leaked (Py_IncRef), since PyAV 18.1 frees memory of the frame with it. No issue is known of either.
- `packets`: an IndexError at the end of `demux` is ignored: PyAV 18.1 may raise it if a stream appears late. None is known.
- `pixels`: the garbage collector is run because of the reference cycles above.

Changes of other libraries, elsewhere: `predict/engines/openvino_import.py` hides the package openvino_telemetry from OpenVINO;
`predict/models/loaders.py` replaces torch.load and sets Hugging Face's offline mode while it loads a model;
`sources/rtsp/ffmpeg_reader.py` sets FFmpeg's log level through PyAV's public functions; `sinks/display.py` loads a library of
X11 with global symbols, where the Qt in OpenCV looks for it. The command (`app/dispatch.py`) sets environment variables that
Hugging Face and Qt read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import av.container.core as core
from av.sidedata.sidedata import Type as SideDataType

from pipelines.media.decoder_limits import BLOCK, limit_blocks
from pipelines.media.interrupt import stop_clock


@dataclass(frozen=True, slots=True)
class Patch:
    """One change of another library."""

    target: str
    """The changed attribute, or the function with a lasting effect."""
    written_for: str
    """The library with the version against which the change was written and tested."""
    reason: str
    """Why the program needs it."""
    upstream: str
    """The issue or release of the library that makes the change unnecessary, or "none known"."""
    apply: Callable[[], None]
    """Makes the change. A second call has no further effect."""


def _replace_clock() -> None:
    core.time = stop_clock  # type: ignore[attr-defined]


def _accept_unknown_types() -> None:
    SideDataType._missing_ = classmethod(lambda cls, value: cls.PANSCAN)  # type: ignore[assignment,method-assign]


PATCHES = (
    Patch(
        "av.container.core.time",
        "PyAV 18.1",
        "FFmpeg's blocking calls end when a stop is set, not only at their time limit; see interrupt.py",
        "PyAV issue 351 asks for a way to interrupt a read; it is closed",
        _replace_clock,
    ),
    Patch(
        "av.sidedata.sidedata.Type._missing_",
        "PyAV 18.1",
        "A type of side data that PyAV does not list, such as a photo's EXIF block, makes all of a frame's unreadable. "
        "Unlisted types are mapped to PANSCAN, which is not used here",
        "PyAV 19 names unlisted types UNKNOWN_<number> (its changelog; pull request 2392)",
        _accept_unknown_types,
    ),
    Patch(
        "av_max_alloc",
        "FFmpeg 8.1 in PyAV 18.1",
        f"FFmpeg allocates blocks of up to 2 GiB if a header asks for them; the limit becomes {BLOCK >> 20} MiB",
        "none known: PyAV does not export the function",
        limit_blocks,
    ),
)


@cache
def install() -> None:
    """Apply all PATCHES, once in the process. Any thread; a call that returns has all patches in place.

    :raises AttributeError: if the installed FFmpeg has no av_max_alloc.
    """
    # Two threads that call it first at the same time both apply everything, which does no harm.
    for patch in PATCHES:
        patch.apply()
