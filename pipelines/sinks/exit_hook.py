"""A hook that runs before a library ends the process.

When the X server goes away, Qt writes a line and calls `exit(1)` within a call of OpenCV: outputs would stay unfinished and the
report unwritten. Before the C library ends the process, it runs the registered functions in that thread, while all other
threads still live.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Callable, Iterator

_Last = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@contextlib.contextmanager
def before_exit(rescue: Callable[[], None]) -> Iterator[None]:
    """Inside the `with`, `exit` of the C library first calls `rescue`, which should end the process itself.

    Without glibc nothing is registered: a registration must be removed before Python ends, and glibc's function for that, which
    serves the unloading of libraries (Itanium C++ ABI, 3.3.6), is not everywhere.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    armed = True

    def last(_: object) -> None:
        if armed:
            rescue()

    c, call, mark = ctypes.CDLL(None), _Last(last), ctypes.create_string_buffer(1)
    c.__cxa_atexit(call, None, ctypes.byref(mark))
    try:
        yield
    finally:
        armed = False
        c.__cxa_finalize(ctypes.byref(mark))
