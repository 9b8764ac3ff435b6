"""Peers on 127.0.0.1 that misbehave or keep a record. Each is a context manager; its end closes and joins all."""

from __future__ import annotations

import base64
import contextlib
import mimetypes
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CHUNK = 1 << 16


class SilentPeer:
    """Accepts every connection and never answers. `accepted` is set at the first."""

    def __init__(self) -> None:
        self.accepted = threading.Event()
        self.port = 0
        self._open: list[socket.socket] = []

    def __enter__(self) -> SilentPeer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="silent-peer")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept, which close alone does not
        self._thread.join()
        for one in (self._listener, *self._open):
            one.close()

    def url(self, scheme: str = "rtsp", name: str = "cam") -> str:
        """An address of this peer."""
        return f"{scheme}://127.0.0.1:{self.port}/{name}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._open.append(self._listener.accept()[0])
                self.accepted.set()


class FullBacklog:
    """A port that listens with a full queue: a connect to it gets no answer at all."""

    def __init__(self) -> None:
        self.port = 0
        self._open: list[socket.socket] = []

    def __enter__(self) -> FullBacklog:
        listener = socket.socket()
        self._open.append(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        self.port = listener.getsockname()[1]
        with contextlib.suppress(TimeoutError):
            while True:
                one = socket.socket()
                self._open.append(one)
                one.settimeout(0.3)
                one.connect(("127.0.0.1", self.port))
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open:
            one.close()


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in: path decoded and without query; `span` is the Range header; `status` the answer."""

    method: str
    path: str
    query: str
    span: str | None
    agent: str | None
    status: int


class _Server(ThreadingHTTPServer):
    """Threads are joined at the end, and those that wait on a client are woken by closing its connection."""

    daemon_threads = False
    block_on_close = True
    owner: Any

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.ending = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        threading.current_thread().name = f"{type(self.owner).__name__}:{client_address[1]}"
        with self._lock:
            self._open.add(request)
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End every connection, also those on which nobody reads."""
        self.ending.set()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _HttpPeer:
    """An HTTP server in threads of its own."""

    handler: type[BaseHTTPRequestHandler]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Request] = []

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order in which they were answered."""
        with self._lock:
            return list(self._requests)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def note(self, request: Request) -> None:
        """Keep a request. Thread: any."""
        with self._lock:
            self._requests.append(request)

    def _begin(self) -> None:
        self._server = _Server(self.handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name=type(self).__name__)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr: the peer keeps a list."""

    def start(self, status: int, fields: Mapping[str, str], length: int) -> None:
        """Note the request and send status and header."""
        parts = urlsplit(self.path)
        span, agent = self.headers["Range"], self.headers["User-Agent"]
        self.server.owner.note(Request(self.command, unquote(parts.path), parts.query, span, agent, status))
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(length), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True


class _Stopping(_Handler):
    def do_GET(self) -> None:
        peer: StoppingHttp = self.server.owner
        size = peer.path.stat().st_size
        self.start(200, {"Content-Type": _kind(peer.path)}, size)
        self.wfile.write(peer.path.read_bytes()[: peer.after])
        self.wfile.flush()
        peer.stalled.set()
        self.server.ending.wait()


class StoppingHttp(_HttpPeer):
    """Serves the first `after` bytes of a file and then nothing, with the connection open. `stalled` is set by then."""

    handler = _Stopping

    def __init__(self, path: Path, after: int) -> None:
        super().__init__()
        self.path, self.after = path, after
        self.stalled = threading.Event()

    def __enter__(self) -> StoppingHttp:
        self._begin()
        return self

    @property
    def url(self) -> str:
        """Where the file is."""
        return f"http://127.0.0.1:{self.port}/{self.path.name}"


class _Files(_Handler):
    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        peer: HttpFiles = self.server.owner
        path = unquote(urlsplit(self.path).path)
        if path in peer.moved:
            self.start(302, {"Location": peer.moved[path]}, 0)
            return
        status = peer.answers.get(path, 200)
        if status == 200 and not peer.lets_in(self.headers["Authorization"]):
            status = 401
        file = peer.folder / path.lstrip("/")
        if status == 200 and not (file.is_file() and file.resolve().is_relative_to(peer.folder.resolve())):
            status = 404
        if status != 200:
            fields = {"WWW-Authenticate": 'Basic realm="tests"'} if status == 401 else {}
            self.start(status, fields, 0)
            return
        self._send(file, body)

    def _send(self, file: Path, body: bool) -> None:
        size = file.stat().st_size
        begin, end = _span(self.headers["Range"], size)
        fields = {"Content-Type": _kind(file), "Accept-Ranges": "bytes"}
        if begin >= end:
            self.start(416, {"Content-Range": f"bytes */{size}"}, 0)
            return
        partial = self.headers["Range"] is not None
        if partial:
            fields["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        self.start(206 if partial else 200, fields, end - begin)
        with file.open("rb") as data:
            data.seek(begin)
            while body and begin < end:
                part = data.read(min(CHUNK, end - begin))
                self.wfile.write(part)
                begin += len(part)


def _kind(file: Path) -> str:
    return mimetypes.guess_type(file.name)[0] or "application/octet-stream"


def _span(header: str | None, size: int) -> tuple[int, int]:
    """First byte and the byte after the last that a Range header asks for: "bytes=5-", "bytes=5-9" or "bytes=-5"."""
    first, _, last = (header or "bytes=0-").removeprefix("bytes=").partition("-")
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


class HttpFiles(_HttpPeer):
    """Serves the files of a folder, with Range, and keeps `requests`.

    answers: status codes for paths ("/door.mp4": 403), in place of the file; may be changed while it serves. moved: where
    paths redirect to. With a user, all else is answered 401 unless the request carries user and password (basic).
    """

    handler = _Files

    def __init__(
        self,
        folder: Path,
        *,
        answers: Mapping[str, int] | None = None,
        moved: Mapping[str, str] | None = None,
        user: str | None = None,
        password: str = "",
    ) -> None:
        super().__init__()
        self.folder = folder
        self.answers = dict(answers or {})
        self.moved = dict(moved or {})
        self._key = None if user is None else "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def __enter__(self) -> HttpFiles:
        self._begin()
        return self

    def url(self, path: str, who: str = "") -> str:
        """Address of a file; `who` is empty or a percent-encoded "user:password"."""
        return f"http://{who + '@' if who else ''}127.0.0.1:{self.port}/{path.lstrip('/')}"

    def lets_in(self, authorization: str | None) -> bool:
        """Whether a request with this header may have files."""
        return self._key is None or authorization == self._key


class _Endless(_Handler):
    def do_GET(self) -> None:
        peer: EndlessHttp = self.server.owner
        self.start(200, {"Content-Type": peer.kind}, 1 << 40)
        with contextlib.suppress(OSError):
            self.wfile.write(peer.head)
            while not self.server.ending.is_set():
                self.wfile.write(peer.part)


class EndlessHttp(_HttpPeer):
    """Answers every GET with `head` and then `part` for ever, as fast as it is read."""

    handler = _Endless

    def __init__(self, head: bytes, part: bytes, kind: str = "application/octet-stream") -> None:
        super().__init__()
        self.head, self.part, self.kind = head, part, kind

    def __enter__(self) -> EndlessHttp:
        self._begin()
        return self

    def url(self, path: str) -> str:
        """An address of this server."""
        return f"http://127.0.0.1:{self.port}/{path.lstrip('/')}"
