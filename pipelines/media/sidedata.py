"""Reading a frame's side data without PyAV's leaks and crashes."""

from __future__ import annotations

import ctypes
import gc
from typing import cast

import av
from av.dictionary import Dictionary
from av.sidedata.sidedata import SideDataContainer


def display_matrix(frame: av.VideoFrame) -> bytes | None:
    """The frame's display matrix (ISO 14496-12, 8.2.2), nine 32-bit integers; None if it has none.

    `frame.side_data` is not used: it makes a reference cycle, and pictures would stay until the garbage collector runs, after
    200 of them.

    PyAV 18.1 frees memory of the frame when it frees side data with metadata, such as a PNG's colour profile (its name); the
    process would crash when the frame is freed. So the wrapper of the metadata, a hundred bytes, is leaked on purpose.
    """
    found = SideDataContainer(frame)  # type: ignore[call-arg]
    for one in found:
        for part in gc.get_referents(one):
            if isinstance(part, Dictionary) and len(part):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
    return cast(bytes | None, found.get("DISPLAYMATRIX"))
