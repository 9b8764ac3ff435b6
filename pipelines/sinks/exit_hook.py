"""A last word before a library ends the process.

When the X server goes away, Qt writes a line and calls `exit(1)`, from within whatever OpenCV asked of it: outputs would
stay unfinished and the report unwritten. The C library runs what was registered with it before it ends the process, in
that thread, and all other threads still live then.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Callable, Iterator

_Last = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@contextlib.contextmanager
def before_exit(rescue: Callable[[], None]) -> Iterator[None]:
    """Within the `with`, `exit` of the C library calls `rescue` first, which should end the process itself.

    Only with glibc: a registration must be taken back in time, as nothing of Python can be called when it has ended, and
    that is done in glibc's own way, which unloading a library uses (Itanium C++ ABI, 3.3.6).
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
