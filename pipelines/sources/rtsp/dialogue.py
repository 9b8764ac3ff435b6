"""Requests and answers on one connection, in the midst of the packets that come on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipelines.sources.rtsp.auth import Login
from pipelines.sources.rtsp.connection import Connection
from pipelines.sources.rtsp.deadline import Deadline
from pipelines.sources.rtsp.message import Headers, Interleaved, ProtocolError, Response, RtspRequest, Wire

AGENT = "Watchline"
ATTEMPTS = 3
"""Of one request: without credentials, with them, with a fresh nonce."""
EARLY_BYTES = 8 << 20
"""Of packets before the answer to PLAY: some cameras begin before they answer, and the first picture is a key picture."""
ANSWERED = ("OPTIONS", "GET_PARAMETER", "SET_PARAMETER")
ENDS = ("TEARDOWN", "ANNOUNCE", "REDIRECT")
"""Requests of a server after which nothing comes any more."""


class Dialogue:
    """One connection's messages. Thread: one, its owner's. The connection belongs to it."""

    def __init__(self, connection: Connection, login: Login) -> None:
        self.connection = connection
        self.session = ""
        """The Session header's value for each request, once there is one."""
        self.ended = ""
        """The server's request after which no more is to be expected."""
        self._login = login
        self._wire = Wire()
        self._cseq = 0
        self._early: deque[Interleaved] = deque()
        self._early_bytes = 0

    def ask(self, method: str, uri: str, headers: dict[str, str], deadline: Deadline) -> Response:
        """Send a request, with credentials when they are asked for, and wait for its answer. 401: they were not taken.

        :raises SourceError: if the connection ends, or the time is over; Stopped if the stop is set.
        :raises ProtocolError: if what comes is no RTSP.
        """
        for _ in range(ATTEMPTS):
            response = self._answer(self.post(method, uri, headers), deadline)
            if not self.settle(response):
                return response
        return response

    def post(self, method: str, uri: str, headers: dict[str, str] | None = None) -> int:
        """Send a request without waiting; its CSeq."""
        self._cseq += 1
        fields = {"CSeq": str(self._cseq), "User-Agent": AGENT, **(headers or {})}
        if self.session:
            fields["Session"] = self.session
        authorization = self._login.header(method, uri)
        if authorization is not None:
            fields["Authorization"] = authorization
        self.connection.send(RtspRequest(method, uri, Headers(tuple(fields.items()))).encode())
        return self._cseq

    def settle(self, response: Response) -> bool:
        """Learn from an answer how the credentials fared; whether the request must be sent once more."""
        if response.status == 401:
            return self._login.refused(response.headers.all("WWW-Authenticate"))
        self._login.accepted()
        return False

    def read(self) -> None:
        """Take what the connection has.

        :raises HungUp: if it has ended.
        """
        self._wire.feed(self.connection.read())

    def items(self) -> Iterator[Interleaved | Response]:
        """Packets and answers that are complete; requests of the server are answered on the way.

        :raises ProtocolError: if the bytes are no RTSP.
        """
        while self._early:
            yield self._early.popleft()
        self._early_bytes = 0
        yield from self._fresh()

    def _fresh(self) -> Iterator[Interleaved | Response]:
        for item in self._wire:
            if isinstance(item, RtspRequest):
                self._reply(item)
            else:
                yield item

    def _answer(self, cseq: int, deadline: Deadline) -> Response:
        while True:
            for item in self._fresh():
                if isinstance(item, Interleaved):
                    self._keep(item)
                elif answers(item, cseq) and item.status >= 200:
                    return item
            if self.connection.wait(deadline.slice_s()):
                self.read()

    def _keep(self, packet: Interleaved) -> None:
        self._early.append(packet)
        # A packet without content is no less of a burden than its record.
        self._early_bytes += len(packet.data) + 100
        if self._early_bytes > EARLY_BYTES:
            raise ProtocolError(f"{EARLY_BYTES >> 20} MiB came before an answer")

    def _reply(self, request: RtspRequest) -> None:
        status, reason = (200, "OK") if request.method in (*ANSWERED, *ENDS) else (501, "Not Implemented")
        fields = [("CSeq", request.headers.get("CSeq")), ("User-Agent", AGENT)]
        if self.session:
            fields.append(("Session", self.session))
        self.connection.send(Response(status, reason, Headers(tuple(fields))).encode())
        if request.method in ENDS:
            self.ended = request.method


def answers(response: Response, cseq: int) -> bool:
    """Whether this is the answer to that request. Some cameras send no CSeq: theirs is to the last one."""
    text = response.headers.get("CSeq").strip()
    return not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) == cseq
