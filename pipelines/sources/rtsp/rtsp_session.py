"""An RTSP session: its open resources, and the requests that start it (OPTIONS, DESCRIBE, SETUP, PLAY)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from pipelines.errors import SourceError
from pipelines.redact import one_line
from pipelines.sources.opening import REFUSED
from pipelines.sources.rtsp.auth import Login
from pipelines.sources.rtsp.datagrams import RECEIVE_BUFFER, Datagrams
from pipelines.sources.rtsp.deadline import Deadline
from pipelines.sources.rtsp.dialogue import Dialogue, answers
from pipelines.sources.rtsp.message import ProtocolError, Response
from pipelines.sources.rtsp.sdp import Track, Unsupported, video_track
from pipelines.sources.rtsp.transport import TIMEOUT_S, Setup, agreed
from pipelines.sources.rtsp.url import Target, escaped, join, without_user

Transport = Literal["tcp", "udp"]
MOVED = (301, 302, 303, 305, 307, 308)
NOT_AGGREGATE = (459, 460)
"""The server wants PLAY for the track's URL, not the aggregate one. Servers confuse the two codes (RFC 2326, sections
11.3.10 and 11.3.11)."""
WRONG_TRANSPORT = 461
MESSAGES = {
    **REFUSED,
    454: "454: the camera does not know the session any more",
    503: "503: the camera has no room for one more client",
}
"""Messages of status codes, for people."""
TEARDOWN_S = 0.25
"""Longest wait for the answer to TEARDOWN. A close with unread packets resets the connection and may lose the request."""
SHORTEST_KEEP_S = 0.5
"""Shortest time between two keep-alives."""


class Moved(Exception):
    """The server redirects the client to `target`."""

    def __init__(self, target: Target) -> None:
        super().__init__("moved")
        self.target = target


@dataclass(slots=True)
class RtspSession:
    """The open resources of one session. The handshake fills it step by step, so that an error at any step can close it."""

    dialogue: Dialogue
    target: Target
    track: Track | None = None
    """The video track; None before DESCRIBE."""
    datagrams: list[Datagrams] = field(default_factory=list)
    """UDP sockets of the tracks, the video's first; empty over TCP."""
    channels: dict[int, Literal["rtp", "rtcp"]] = field(default_factory=dict)
    """Interleaved channels of the video on the RTSP connection; empty over UDP."""
    keep_method: str = "OPTIONS"
    """RTSP method of keep-alives."""
    keep_s: float = TIMEOUT_S / 2
    """Time between two keep-alives."""

    def tear_down(self) -> None:
        """Send TEARDOWN, and wait at most TEARDOWN_S for the answer. Errors are ignored."""
        if self.track is None or not self.dialogue.session:
            return
        cseq = self.dialogue.post("TEARDOWN", self.track.aggregate)
        # Not the client's clock: with a test clock that stands still, the loop would never end.
        end_s = time.monotonic() + TEARDOWN_S
        with contextlib.suppress(SourceError):
            while (left_s := end_s - time.monotonic()) > 0:
                if self.dialogue.connection.wait(left_s):
                    self.dialogue.read()
                if any(isinstance(item, Response) and answers(item, cseq) for item in self.dialogue.items()):
                    return

    def close(self) -> None:
        """Close every socket."""
        self.dialogue.connection.close()
        for pair in self.datagrams:
            pair.close()


class Handshake:
    """Starts a session on an open connection, up to PLAY. Each step raises SourceError if the server refuses it.

    :param session: with its dialogue and target; the handshake fills in the rest.
    :param login: answers the server's challenges.
    :param clock: of the arrival times of datagrams.
    """

    def __init__(
        self, session: RtspSession, login: Login, deadline: Deadline, transport: Transport, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._login = login
        self._deadline = deadline
        self._transport = transport
        self._clock = clock
        self._tracks = 0

    def run(self, *, all_tracks: bool) -> None:
        """Send OPTIONS, DESCRIBE, SETUP and PLAY.

        :param all_tracks: set up the other tracks too; their packets are ignored.
        :raises Moved: if the server redirects.
        :raises Unsupported: if this client does not support the stream.
        :raises SourceError: if the server refuses for another reason, or the deadline passes.
        """
        self._learn_methods()
        self._session.track = track = self._describe()
        self._set_up(track.control)
        if all_tracks:
            for control in track.other_tracks:
                self._set_up(control, needed=False)
        self._play(track)

    def _ask(self, method: str, uri: str, headers: dict[str, str] | None = None) -> Response:
        """Send a request and return the answer.

        :raises Moved: if the server redirects.
        """
        response = self._session.dialogue.ask(method, uri, headers or {}, self._deadline)
        location = response.headers.get("Location")
        if response.status in MOVED and location:
            raise Moved(self._session.target.moved(location))
        return response

    def _learn_methods(self) -> None:
        response = self._ask("OPTIONS", self._session.target.uri)
        if response.status == 401 and self._login.tried:
            raise self._refusal(response, "OPTIONS")  # DESCRIBE would be another failed login, and some cameras count them
        if "GET_PARAMETER" in ",".join(response.headers.all("Public")).upper():
            self._session.keep_method = "GET_PARAMETER"

    def _describe(self) -> Track:
        uri = self._session.target.uri
        response = self._checked(self._ask("DESCRIBE", uri, {"Accept": "application/sdp"}), "DESCRIBE")
        if not response.body:
            raise ProtocolError("the camera's description of its stream is empty")
        # Content-Base comes before Content-Location (RFC 2326, C.1.1).
        named = response.headers.get("Content-Base") or response.headers.get("Content-Location")
        base = escaped(without_user(join(uri, named))) if named else uri
        return video_track(response.body, base if base.lower().startswith(("rtsp://", "rtsps://")) else uri)

    def _set_up(self, control: str, *, needed: bool = True) -> None:
        """Set up one track. For tracks that are not needed, the answer is ignored, even if it is a refusal."""
        session, dialogue = self._session, self._session.dialogue
        pair: Datagrams | None = None
        first = 2 * self._tracks
        self._tracks += 1
        asked = f"RTP/AVP/TCP;unicast;interleaved={first}-{first + 1}"
        if self._transport == "udp":
            # The sockets of an unneeded track are never read, so the smallest buffer is enough.
            connection, buffer = dialogue.connection, RECEIVE_BUFFER if needed else 0
            pair = Datagrams(connection.socket.family, connection.local, self._clock, buffer=buffer)
            session.datagrams.append(pair)
            asked = f"RTP/AVP;unicast;client_port={pair.port}-{pair.port + 1}"
        response = self._ask("SETUP", control, {"Transport": asked})
        if not needed:
            return
        found = agreed(self._checked(response, "SETUP"))
        self._refuse_transport(found)
        dialogue.session = found.session
        session.keep_s = max(found.timeout_s / 2, SHORTEST_KEEP_S)
        if pair is not None:
            pair.expect(dialogue.connection.peer, found.source, found.ports)
        else:
            rtp, rtcp = found.channels or (first, first + 1)
            session.channels = {rtcp: "rtcp", rtp: "rtp"}

    def _refuse_transport(self, found: Setup) -> None:
        """Check the transport in the answer to SETUP.

        :raises Unsupported: if it is multicast.
        :raises SourceError: if it is not the requested one; permanent.
        """
        if found.multicast:
            raise Unsupported("the camera sends to a multicast group")
        over_udp = found.ports is not None and found.channels is None
        if over_udp if self._transport == "tcp" else found.channels is not None:
            raise self._wrong_transport()

    def _play(self, track: Track) -> None:
        headers = {"Range": "npt=0.000-"}
        response = self._ask("PLAY", track.aggregate, headers)
        if response.status in NOT_AGGREGATE:
            response = self._ask("PLAY", track.control, headers)
        self._checked(response, "PLAY")

    def _checked(self, response: Response, method: str) -> Response:
        """The response.

        :raises SourceError: if its status is not a success.
        """
        if 200 <= response.status < 300:
            return response
        raise self._refusal(response, method)

    def _refusal(self, response: Response, method: str) -> SourceError:
        """The error for a response without success."""
        status = response.status
        if status == WRONG_TRANSPORT:
            return self._wrong_transport()
        if status == 401 and self._login.unsupported:
            text = f"401: the camera asks for {self._login.unsupported}; basic and digest (MD5, SHA-256) are supported"
            return SourceError(text, permanent=True, denied=True)
        if status in MESSAGES:
            return SourceError(MESSAGES[status], permanent=status in REFUSED, denied=status in (401, 403))
        reason = one_line(response.reason[:60])
        return SourceError(f"the camera answered {method} with {status} {reason}".rstrip())

    def _wrong_transport(self) -> SourceError:
        other = "udp" if self._transport == "tcp" else "tcp"
        asked = self._transport.upper()
        return SourceError(
            f"the camera does not send over {asked}; `rtsp_transport` {other} asks for the other way", permanent=True
        )
