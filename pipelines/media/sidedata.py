"""What lies beside a frame's samples, read so that it does no harm."""

from __future__ import annotations

import ctypes
import gc
from typing import cast

import av
from av.dictionary import Dictionary
from av.sidedata.sidedata import SideDataContainer


def display_matrix(frame: av.VideoFrame) -> bytes | None:
    """The frame's display matrix (ISO 14496-12, 8.2.2), nine numbers of 32 bits.

    Not by `frame.side_data`, which makes a circle: pictures would stay until the garbage collector comes by, 200 of them.

    PyAV 18.1 frees what belongs to the frame when it lets go of side data that has words of its own, as a PNG's colour
    profile has (its name): the process dies when the frame is freed, too. So the wrapper of those words, a hundred bytes, is
    never let go of.
    """
    found = SideDataContainer(frame)  # type: ignore[call-arg]
    for one in found:
        for part in gc.get_referents(one):
            if isinstance(part, Dictionary) and len(part):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
    return cast(bytes | None, found.get("DISPLAYMATRIX"))
