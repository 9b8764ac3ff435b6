"""An RTSP client for one camera (RFC 2326; TLS as in RFC 7826): opens a session and returns the packets of its video.

It uses plain sockets, because a source is one thread that decodes between two reads and must stop within 100 ms. aiortsp,
which was tried first, needs an asyncio loop in each of these threads, and is LGPL.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pipelines.credentials import Credentials
from pipelines.errors import SourceError
from pipelines.sources.address import about
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtsp.auth import Login
from pipelines.sources.rtsp.connection import HungUp
from pipelines.sources.rtsp.deadline import SLICE_S, Deadline
from pipelines.sources.rtsp.dial import connect
from pipelines.sources.rtsp.dialogue import Dialogue, answers
from pipelines.sources.rtsp.message import Interleaved, Response
from pipelines.sources.rtsp.received import Received
from pipelines.sources.rtsp.rtsp_session import Handshake, Moved, RtspSession
from pipelines.sources.rtsp.sdp import Track
from pipelines.sources.rtsp.url import Target, display, parse

REDIRECTS = 5


class RtspClient:
    """One session with a camera: `with RtspClient(...) as client:` opens it, `receive` returns its packets. Thread: one.

    :param url: rtsp or rtsps, with or without credentials.
    :param stop: once it is set, `receive` returns no packets and `open` raises Stopped.
    :param limits: limits.open_s is the limit for `open`.
    :param verify_tls: check the certificate of an rtsps server.
    :param clock: monotonic.
    :param all_tracks: set up the other tracks too, and ignore their packets.
    :param credentials: ignored if the URL has its own.
    """

    def __init__(
        self,
        url: str,
        *,
        transport: Literal["tcp", "udp"],
        stop: threading.Event,
        limits: Timeouts,
        verify_tls: bool = True,
        clock: Callable[[], float] = time.monotonic,
        all_tracks: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        self._url = url
        self._credentials = credentials
        self._name = display(url)
        self._transport: Literal["tcp", "udp"] = transport
        self._stop = stop
        self._limits = limits
        self._verify_tls = verify_tls
        self._clock = clock
        self._all_tracks = all_tracks
        self._session: RtspSession | None = None
        self._received_before = False
        """Whether `receive` was called in this session."""
        self._keep_at = 0.0
        """Monotonic time of the next keep-alive."""
        self._keep_cseq = 0
        """CSeq of the unanswered keep-alive, 0 if there is none."""
        self._error: SourceError | None = None

    @property
    def track(self) -> Track:
        """The video track of the open session.

        :raises RuntimeError: if no session is open.
        """
        if self._session is None or self._session.track is None:
            raise RuntimeError("the session is not open")
        return self._session.track

    @property
    def same_host(self) -> bool:
        """Whether the camera runs on this machine and so shares its clock."""
        connection = self._session.dialogue.connection if self._session is not None else None
        return connection is not None and connection.peer[0] == connection.local[0]

    def __enter__(self) -> RtspClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect, authenticate, follow redirects, set up and play, within limits.open_s. An error closes all sockets.

        :raises SourceError: if the camera refuses, violates the protocol or is too slow; permanent if a retry cannot help.
        :raises Unsupported: if this client does not support the stream; permanent.
        :raises Stopped: if the stop event is set.
        """
        self._received_before, self._error = False, None
        try:
            self._open(self._target(), Deadline(self._limits.open_s, self._stop, self._clock))
        except SourceError as error:
            self.close()
            raise about(self._name, error) from None
        except BaseException:
            self.close()
            raise
        assert self._session is not None
        self._keep_at = self._clock() + self._session.keep_s

    def receive(self, timeout_s: float) -> list[Received]:
        """Wait for packets and return them in order; [] after `timeout_s` seconds, or if the stop event is set.

        Meanwhile it sends keep-alives and answers the server's requests.

        :raises SourceError: if the session has ended and all packets before the end were returned.
        """
        session = self._session
        if session is None:
            return []
        end_s = self._clock() + timeout_s
        # The first call does not wait: packets may have come with the response to PLAY. The number of rounds is limited,
        # so that the loop also ends with a test clock that stands still.
        wait_s, self._received_before = min(timeout_s, SLICE_S) if self._received_before else 0.0, True
        for _ in range(int(timeout_s / SLICE_S) + 2):
            if self._stop.is_set():
                break
            self._keep_alive(session)
            packets = self._take(session, wait_s)
            wait_s = min(end_s - self._clock(), SLICE_S)
            if packets or wait_s <= 0:
                return packets
        return []

    def send_rtcp(self, data: bytes) -> None:
        """Send a receiver report. The report is dropped if the camera does not read."""
        session = self._session
        if session is None:
            return
        if session.datagrams:
            session.datagrams[0].send_rtcp(data)
            return
        for channel, kind in session.channels.items():
            if kind == "rtcp":
                session.dialogue.connection.send(Interleaved(channel, data).encode())

    def close(self) -> None:
        """End the session and close all sockets, within TEARDOWN_S seconds. A second call does nothing."""
        session, self._session = self._session, None
        if session is None:
            return
        # The error is dropped, because its traceback refers to this client.
        ended, self._error = self._error is not None, None
        try:
            if not ended:
                session.tear_down()
        finally:
            session.close()

    def _target(self) -> Target:
        target = parse(self._url)
        return target if target.credentials is not None else replace(target, credentials=self._credentials)

    def _open(self, target: Target, deadline: Deadline) -> None:
        for _ in range(REDIRECTS + 1):
            login = Login(target.credentials)
            try:
                try:
                    self._begin(target, login, deadline)
                except HungUp:
                    # Some cameras close the connection after a 401 and expect the credentials on a new one.
                    if not login.unanswered():
                        raise
                    self.close()
                    self._begin(target, login, deadline)
                return
            except Moved as moved:
                self.close()
                target = moved.target
        raise SourceError(f"the camera redirected more than {REDIRECTS} times")

    def _begin(self, target: Target, login: Login, deadline: Deadline) -> None:
        connection = connect(target, deadline, verify_tls=self._verify_tls)
        self._session = RtspSession(Dialogue(connection, login), target)
        handshake = Handshake(self._session, login, deadline, self._transport, self._clock)
        handshake.run(all_tracks=self._all_tracks)

    def _keep_alive(self, session: RtspSession) -> None:
        """Send a keep-alive if it is due: after half of the session's timeout, because the response may be slow. TCP needs
        keep-alives too: for some cameras only requests count."""
        now_s = self._clock()
        if now_s >= self._keep_at and self._error is None:
            self._keep_at = now_s + session.keep_s
            self._keep_cseq = session.dialogue.post(session.keep_method, self.track.aggregate)

    def _take(self, session: RtspSession, wait_s: float) -> list[Received]:
        """Wait at most `wait_s` seconds, then return the received packets.

        :raises SourceError: if the session has ended and no packet is left; with packets left, the next call raises it.
        """
        if self._error is not None:
            raise self._error
        packets: list[Received] = []
        media = session.datagrams[0] if session.datagrams else None
        try:
            if wait_s > 0:
                session.dialogue.connection.wait(wait_s, media.sockets if media else ())
            try:
                session.dialogue.read()
            finally:
                if media is not None:
                    packets += media.receive()
                self._sort(session, packets)
            if session.dialogue.ended:
                raise SourceError(f"the camera ended the stream ({session.dialogue.ended})")
        except SourceError as error:
            self._error = about(self._name, error)
            if not packets:
                raise self._error from None
        return packets

    def _sort(self, session: RtspSession, packets: list[Received]) -> None:
        """Append the packets that came on the RTSP connection to `packets`, and handle responses."""
        now_s = self._clock()
        for item in session.dialogue.items():
            if isinstance(item, Response):
                self._answered(session, item)
            elif (kind := session.channels.get(item.channel)) is not None:
                packets.append(Received(kind, item.data, now_s))

    def _answered(self, session: RtspSession, response: Response) -> None:
        """Handle the response to a keep-alive. After a refusal the stream goes on; the next keep-alives use OPTIONS."""
        if not self._keep_cseq or not answers(response, self._keep_cseq):
            return
        self._keep_cseq = 0
        if session.dialogue.settle(response):
            self._keep_cseq = session.dialogue.post(session.keep_method, self.track.aggregate)
        elif response.status >= 400 and response.status != 401 and session.keep_method != "OPTIONS":
            session.keep_method, self._keep_at = "OPTIONS", self._clock()
