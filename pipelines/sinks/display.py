"""The check of the display: can a window be opened? It opens no window.

Without an X server that answers, Qt raises no error: it aborts the process, and all results are lost. So the server is asked
first, by the handshake of Qt's own library (XCB), with the same choice of cookie. That takes below 1 ms; a child process that
opens a window takes 0.4 s of a core, and the window flashes on the screen. The handshake cannot find an OpenCV without windows
or a Qt plugin with missing libraries: OpenCV and the dynamic linker are asked for these.

python-xlib 0.33 was measured as a replacement for the handshake: 21 to 47 ms against 0.2 to 0.3 ms, and 42 ms more for its
import. It has no time limit: it still waited after 6 s for a server that accepts and sends nothing (here the limit is 2 s). It
reads the environment itself, and it ignores Xauthority entries of the family "wild".
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
"""Connections to a server that hangs up, and seconds between them."""
ANSWER_S = 2.0
"""Limit for each step. A server on this machine answers in 1 ms; one behind a network that drops packets never answers."""
COOKIE = b"MIT-MAGIC-COOKIE-1"
FAMILY_LOCAL, FAMILY_INTERNET, FAMILY_INTERNET6, FAMILY_WILD = 256, 0, 6, 65535
Size = tuple[int, int]
"""(width, height) in pixels."""


class _NoDisplayError(Exception):
    """No window can be opened; the text gives the reason and ends a sentence."""


def display_there(environ: Mapping[str, str]) -> bool:
    """Whether `require_display` would succeed."""
    try:
        require_display(environ)
    except UsageError:
        return False
    return True


class Display:
    """A display on which windows can be opened. It holds a connection to the X server until `close`.

    The owner closes it after the window. An X server without clients restarts (Xvfb under xvfb-run does), and while it restarts
    it may refuse Qt's connection, and Qt aborts: about 1 start of 20 if the connection of the check ended before.
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
    """Connect to the display that windows open on. environ: the process's environment variables.

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
        raise UsageError(f"`show` needs a display: {trouble}; leave `show` out, or start it under xvfb-run") from None
    return display


def require_display(environ: Mapping[str, str]) -> Size:
    """The size of the display that `open_display` would open.

    :raises UsageError: if there is no display that OpenCV can use.
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
    # A server without clients restarts, and hangs up on connections meanwhile.
    time.sleep(AGAIN_S)
    return _connected(place, name, environ, tries - 1)


class _Place(NamedTuple):
    """The address of a display. host: empty for a socket on this machine."""

    host: str
    number: int


def _parse(name: str) -> _Place:
    found = re.fullmatch(r"(?:(?P<kind>\w+)/)?(?P<host>[^/]*):(?P<number>\d{1,5})(?:\.\d+)?", name)
    if not found:
        raise _NoDisplayError(f"DISPLAY={name} is no display's name, like :0 or host:10.0")
    host = "" if "unix" in (found["kind"], found["host"]) else found["host"].strip("[]")
    return _Place(host, int(found["number"]))


def _connect(place: _Place) -> socket.socket:
    """Connect in the order of XCB: Linux's abstract socket, then the socket file; TCP if the display names a host."""
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
    """The cookie that XCB would send to this server: the first entry of the file that fits the server; None without one."""
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
    """The server's family and address in the form of an Xauthority file: this machine's name for a loopback address."""
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
    """The entries of an Xauthority file: the family, then four counted strings, big-endian. A truncated entry ends the list."""
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
    """Set up the connection (X11 protocol, section 8). Returns the size of the first screen."""
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
    """Let Qt receive all its events: load the system's libX11-xcb. Called before the first window is opened; thread: any.

    opencv-python ships its own libX11-xcb, which must fit libX11, and uses the system's libX11. With a newer libX11 (1.8) its
    XSetEventQueueOwner sets a field that has moved, and Xlib continues to take events that belong to Qt: on a busy machine 11
    of 40 windows missed the event that they were mapped, and stayed black for ever. With the system's libX11-xcb, which is
    found first because it is loaded globally, none of 40 did.
    """
    with contextlib.suppress(OSError):  # without a system library nothing changes
        ctypes.CDLL("libX11-xcb.so.1", mode=ctypes.RTLD_GLOBAL)


def _check_toolkit() -> None:
    import cv2  # only needed if there is a display

    if not cv2.currentUIFramework():
        raise _NoDisplayError("this OpenCV has no windows (opencv-python does, opencv-python-headless does not)")
    plugin = Path(cv2.__file__).parent / "qt" / "plugins" / "platforms" / "libqxcb.so"
    if plugin.exists():
        mend_toolkit()
        try:
            ctypes.CDLL(str(plugin))
        except OSError as error:
            raise _NoDisplayError(f"Qt's X11 plugin cannot be loaded ({error})") from None
