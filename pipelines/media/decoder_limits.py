"""How much a source may ask for, whatever its headers say.

A header of a hundred bytes can announce a picture of a thousand million pixels, and two megabytes of a compressed colour
profile can hold two thousand: FFmpeg believes the one and unpacks the other, as far as it gets memory.
"""

from __future__ import annotations

import ctypes

import av._core

VIDEO_PIXELS = 35_651_584
"""The largest picture that the levels of H.264 (6.2), H.265 (6.2) and AV1 (6.3) allow, 8192x4352. A file has dozens of them
on their way at a time."""
PICTURE_PIXELS = 1 << 27
"""Of a picture file, of which one at a time is held: cameras of 108 million pixels exist."""
BLOCK = 512 << 20
"""Bytes that FFmpeg may ask for in one piece, in the whole process: a still of PICTURE_PIXELS at 32 bits."""


def pixels(most: int) -> dict[str, str]:
    """Options for a demuxer or decoder, by which it refuses larger pictures before it allocates one."""
    return {"max_pixels": str(most)}


def _bound_blocks() -> None:
    """FFmpeg's own allocator refuses more (-max_alloc of its command line, 2 GiB by default). PyAV has no name for it, but
    its modules are linked to the library that has."""
    bound = ctypes.CDLL(av._core.__file__).av_max_alloc
    bound.argtypes, bound.restype = (ctypes.c_size_t,), None
    bound(BLOCK)


_bound_blocks()
