"""RTSP requests and responses on one connection, which carries interleaved packets too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pipelines.sources.rtsp.auth import Login
from pipelines.sources.rtsp.connection import Connection
from pipelines.sources.rtsp.deadline import Deadline
from pipelines.sources.rtsp.message import Headers, Interleaved, ProtocolError, Response, RtspRequest, Wire

AGENT = "Watchline"
ATTEMPTS = 3
"""Most tries of one request: without credentials, with them, with a fresh nonce."""
EARLY_BYTES = 8 << 20
"""Most bytes of packets before the response to PLAY: some cameras send first, and the first picture is a key picture."""
ANSWERED = ("OPTIONS", "GET_PARAMETER", "SET_PARAMETER")
"""Requests of a server that get the status 200 and change nothing."""
ENDS = ("TEARDOWN", "ANNOUNCE", "REDIRECT")
"""Requests of a server that end the session."""


class Dialogue:
    """The messages on one connection. Thread: one, the owner's.

    :param connection: the dialogue owns it and never closes it.
    :param login: makes the Authorization headers.
    """

    def __init__(self, connection: Connection, login: Login) -> None:
        self.connection = connection
        self.session = ""
        """Value of the Session header of requests; empty before SETUP."""
        self.ended = ""
        """Method of the server's request that ended the session; empty until then."""
        self._login = login
        self._wire = Wire()
        self._cseq = 0
        self._early: deque[Interleaved] = deque()
        self._early_bytes = 0

    def ask(self, method: str, uri: str, headers: dict[str, str], deadline: Deadline) -> Response:
        """Send a request, with credentials after a challenge, and return the response. Status 401: the login failed.

        :raises SourceError: if the connection ends or the deadline passes.
        :raises Stopped: if the stop event is set.
        :raises ProtocolError: if the received bytes are no RTSP.
        """
        for _ in range(ATTEMPTS):
            response = self._answer(self.post(method, uri, headers), deadline)
            if not self.settle(response):
                return response
        return response

    def post(self, method: str, uri: str, headers: dict[str, str] | None = None) -> int:
        """Send a request without waiting for the response. Returns its CSeq."""
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
        """Tell the login whether the credentials were accepted. Returns whether to send the request again."""
        if response.status == 401:
            return self._login.refused(response.headers.all("WWW-Authenticate"))
        self._login.accepted()
        return False

    def read(self) -> None:
        """Read the received bytes into the parser. Does not wait.

        :raises HungUp: if the connection has ended.
        """
        self._wire.feed(self.connection.read())

    def items(self) -> Iterator[Interleaved | Response]:
        """The complete packets and responses. Requests of the server are answered meanwhile.

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
        # 100 bytes for the object itself, so that empty packets count too.
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
    """Whether a response is for the request with this CSeq. A response without a CSeq, as some cameras send, always is."""
    text = response.headers.get("CSeq").strip()
    return not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) == cseq
