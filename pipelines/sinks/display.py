"""Whether a window can be opened, found out without opening one.

Without an X server that answers, Qt does not raise: it aborts the process, and all results are lost. So the server is
asked first, by the handshake that Qt's library would do, with the same choice of cookie: 1 ms, where a child process
that opens a window costs 0.4 s of a core and flashes a window at the person. What the handshake cannot see, an OpenCV
without windows and a Qt plugin whose libraries are missing, is asked of OpenCV and of the dynamic linker.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipelines.errors import UsageError

TRIES, AGAIN_S = 4, 0.1
"""For a server that hangs up."""
ANSWER_S = 2.0
"""A server on this machine answers in a millisecond; one behind a network that swallows packets never does."""
COOKIE = b"MIT-MAGIC-COOKIE-1"
FAMILY_LOCAL, FAMILY_INTERNET, FAMILY_INTERNET6, FAMILY_WILD = 256, 0, 6, 65535
Size = tuple[int, int]


class _NoDisplayError(Exception):
    """Why no window can be opened, as the end of a sentence."""


def display_there(environ: Mapping[str, str]) -> bool:
    """Whether `require_display` would succeed."""
    try:
        require_display(environ)
    except UsageError:
        return False
    return True


class Display:
    """A display on which windows can be opened, with a connection of our own, which `close` ends.

    It is held until the window has had its time: an X server without clients starts anew (Xvfb, as xvfb-run starts it,
    does), and if it has just lost the one that only asked, it may refuse Qt's connection, and Qt aborts: 1 start of 20 or so.
    """

    def __init__(self, size: Size, server: socket.socket | None) -> None:
        self.size = size
        """(width, height) of the screen."""
        self._server = server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_display(environ: Mapping[str, str]) -> Display:
    """The display that windows open on. `environ`: the process's environment.

    :raises UsageError: if there is no display that OpenCV can use.
    """
    try:
        display = _ask_server(environ) if sys.platform.startswith("linux") else Display((1280, 720), None)
        try:
            _check_toolkit()
        except BaseException:
            display.close()
            raise
    except _NoDisplayError as trouble:
        raise UsageError(f"--show needs a display: {trouble}; leave --show out, or start it under xvfb-run") from None
    return display


def require_display(environ: Mapping[str, str]) -> Size:
    """The size of the display that `open_display` would open.

    :raises UsageError: as there.
    """
    with open_display(environ) as display:
        return display.size


def _ask_server(environ: Mapping[str, str]) -> Display:
    name = environ.get("DISPLAY", "")
    if not name:
        raise _NoDisplayError(
            "DISPLAY is not set, and WAYLAND_DISPLAY does not do (OpenCV's window needs an X server, like Xwayland)"
            if environ.get("WAYLAND_DISPLAY")
            else "DISPLAY is not set"
        )
    platform = environ.get("QT_QPA_PLATFORM", "")
    if platform and not any(part.startswith("xcb") for part in platform.split(";")):
        raise _NoDisplayError(f"QT_QPA_PLATFORM={platform} keeps DISPLAY from being used (OpenCV brings only xcb)")
    try:
        return _connected(_parse(name), name, environ)
    except (OSError, EOFError, OverflowError, UnicodeError, struct.error) as error:
        raise _NoDisplayError(f"nothing answers at DISPLAY={name} ({error})") from None


def _connected(place: _Place, name: str, environ: Mapping[str, str], tries: int = TRIES) -> Display:
    server = _connect(place)
    try:
        return Display(_handshake(server, name, _cookie(server, place, environ)), server)
    except BaseException as error:
        server.close()
        if tries == 1 or not isinstance(error, EOFError | ConnectionError):
            raise
    # A server whose last client has just left starts anew, and hangs up on who comes at that moment.
    time.sleep(AGAIN_S)
    return _connected(place, name, environ, tries - 1)


class _Place(NamedTuple):
    """A display's address; an empty host is this machine's own socket."""

    host: str
    number: int


def _parse(name: str) -> _Place:
    found = re.fullmatch(r"(?:(?P<kind>\w+)/)?(?P<host>[^/]*):(?P<number>\d{1,5})(?:\.\d+)?", name)
    if not found:
        raise _NoDisplayError(f"DISPLAY={name} is no display's name, like :0 or host:10.0")
    host = "" if "unix" in (found["kind"], found["host"]) else found["host"].strip("[]")
    return _Place(host, int(found["number"]))


def _connect(place: _Place) -> socket.socket:
    """The connection that XCB would make: Linux's abstract socket, else the file, else TCP."""
    if place.host:
        return socket.create_connection((place.host, 6000 + place.number), ANSWER_S)
    path = f"/tmp/.X11-unix/X{place.number}"
    try:
        return _connect_unix("\0" + path)
    except OSError:
        return _connect_unix(path)


def _connect_unix(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.settimeout(ANSWER_S)
    try:
        server.connect(path)
    except OSError:
        server.close()
        raise
    return server


def _cookie(server: socket.socket, place: _Place, environ: Mapping[str, str]) -> bytes | None:
    """The secret that XCB would send to this server: the file's first that fits, or none."""
    path = environ.get("XAUTHORITY") or (environ["HOME"] + "/.Xauthority" if environ.get("HOME") else None)
    if path is None:
        return None
    try:
        data = Path(path).read_bytes()
    except OSError:
        return None
    family, address = _address(server)
    for entry in _entries(data):
        fits = entry.family == FAMILY_WILD or (entry.family, entry.address) == (family, address)
        if fits and entry.number in (b"", str(place.number).encode()) and entry.name == COOKIE:
            return entry.data
    return None


def _address(server: socket.socket) -> tuple[int, bytes]:
    """The peer as Xauthority files name it: over loopback it is this machine by its name."""
    local = FAMILY_LOCAL, socket.gethostname().encode()
    if server.family == socket.AF_UNIX:
        return local
    raw = socket.inet_pton(server.family, server.getpeername()[0].partition("%")[0])
    if server.family == socket.AF_INET6 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    if raw in (socket.inet_aton("127.0.0.1"), bytes(15) + b"\1"):
        return local
    return (FAMILY_INTERNET if len(raw) == 4 else FAMILY_INTERNET6), raw


class _Entry(NamedTuple):
    family: int
    address: bytes
    number: bytes
    name: bytes
    data: bytes


def _entries(data: bytes) -> Iterator[_Entry]:
    """The entries of an Xauthority file: the family, then four counted strings, big-endian. Ends at what is cut off."""
    at = 0
    while at + 2 <= len(data):
        (family,) = struct.unpack_from(">H", data, at)
        at += 2
        fields = []
        for _ in range(4):
            if at + 2 > len(data):
                return
            (length,) = struct.unpack_from(">H", data, at)
            fields.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        if at > len(data):
            return
        yield _Entry(family, *fields)


def _handshake(server: socket.socket, name: str, cookie: bytes | None) -> Size:
    """Set a connection up (X11 protocol, section 8), and read the size of the first screen out of the answer."""
    label = COOKIE if cookie is not None else b""
    secret = cookie or b""
    hello = struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(label), len(secret))
    server.sendall(hello + _padded(label) + _padded(secret))
    status, reason_length, words = struct.unpack("<BBxxxxH", _receive(server, 8))
    body = _receive(server, 4 * words)
    if status != 1:
        reason = body[:reason_length].decode(errors="replace").strip()
        raise _NoDisplayError(f"DISPLAY={name} refuses the connection ({reason or 'authentication needed'})")
    vendor_length, _, screens, formats = struct.unpack_from("<HHBB", body, 16)
    if not screens:
        raise _NoDisplayError(f"DISPLAY={name} has no screen")
    screen = 32 + len(_padded(bytes(vendor_length))) + 8 * formats
    width, height = struct.unpack_from("<HH", body, screen + 20)
    return width, height


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _receive(server: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = server.recv(size - len(data))
        if not part:
            raise EOFError("it hung up")
        data += part
    return data


@cache
def mend_toolkit() -> None:
    """Make Qt get all its events. Called before the first window is opened; thread: any.

    opencv-python carries a libX11-xcb of its own, which must fit libX11, and takes libX11 from the system. With a newer
    one (1.8) its XSetEventQueueOwner sets a field that has moved, and Xlib goes on taking events that are Qt's: on a
    busy machine 11 of 40 windows lost the news that they were mapped, and stayed black for ever. With the system's own
    libX11-xcb, found first because it is global, 0 of 40.
    """
    with contextlib.suppress(OSError):  # not there: then it is as it was
        ctypes.CDLL("libX11-xcb.so.1", mode=ctypes.RTLD_GLOBAL)


def _check_toolkit() -> None:
    import cv2  # only needed by who has a display

    if not cv2.currentUIFramework():
        raise _NoDisplayError("this OpenCV has no windows (opencv-python does, opencv-python-headless does not)")
    plugin = Path(cv2.__file__).parent / "qt" / "plugins" / "platforms" / "libqxcb.so"
    if plugin.exists():
        mend_toolkit()
        try:
            ctypes.CDLL(str(plugin))
        except OSError as error:
            raise _NoDisplayError(f"Qt's X11 plugin cannot be loaded ({error})") from None
