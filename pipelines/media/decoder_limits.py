"""Limits of picture size and of memory blocks, against headers that announce too much.

A header of a hundred bytes can announce a picture of a thousand million pixels, and two megabytes of a compressed colour
profile can expand to two thousand: FFmpeg allocates the one and unpacks the other if it gets the memory. `patches.install()`
limits FFmpeg's blocks in the whole process.
"""

from __future__ import annotations

import ctypes

import av._core

VIDEO_PIXELS = 35_651_584
"""The largest picture that the levels of H.264 (6.2), H.265 (6.2) and AV1 (6.3) allow, 8192x4352. While a video is
decoded, dozens of pictures are in memory."""
PICTURE_PIXELS = 1 << 27
"""The largest picture file, in pixels. Only one is in memory at a time; cameras of 108 million pixels exist."""
BLOCK = 512 << 20
"""The largest block in bytes that FFmpeg may allocate, in the whole process: a picture of PICTURE_PIXELS at 32 bits."""


def pixels(most: int) -> dict[str, str]:
    """Options that make a demuxer or decoder refuse pictures of more than `most` pixels before it allocates one."""
    return {"max_pixels": str(most)}


def limit_blocks() -> None:
    """Make FFmpeg's allocator refuse blocks of more than BLOCK bytes (-max_alloc of its command line, 2 GiB by default). PyAV
    does not export the function, but its modules are linked to the library that has it."""
    bound = ctypes.CDLL(av._core.__file__).av_max_alloc
    bound.argtypes, bound.restype = (ctypes.c_size_t,), None
    bound(BLOCK)
