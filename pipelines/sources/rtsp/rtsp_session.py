"""An RTSP session: all that it holds open, and how it comes about (OPTIONS, DESCRIBE, SETUP, PLAY)."""

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
"""PLAY is wanted for the track alone. Servers mix the two codes up (RFC 2326, sections 11.3.10 and 11.3.11)."""
WRONG_TRANSPORT = 461
WORDS = {**REFUSED, 454: "454: the camera does not know the session any more", 503: "503: the camera has no room for one more"}
"""What people read for a status."""
TEARDOWN_S = 0.25
"""For the answer to TEARDOWN. A close with unread packets resets the connection, and the request may be lost with it."""
SHORTEST_KEEP_S = 0.5


class Moved(Exception):
    """The server sends the client elsewhere."""

    def __init__(self, target: Target) -> None:
        super().__init__("moved")
        self.target = target


@dataclass(slots=True)
class Session:
    """What one session holds. It is filled while it is opened, so that whatever fails can close what there is."""

    dialogue: Dialogue
    target: Target
    track: Track | None = None
    datagrams: list[Datagrams] = field(default_factory=list)
    """Of the video first; empty over TCP."""
    channels: dict[int, Literal["rtp", "rtcp"]] = field(default_factory=dict)
    """Of the video, on the connection; empty over UDP."""
    keep_method: str = "OPTIONS"
    keep_s: float = TIMEOUT_S / 2

    def tear_down(self) -> None:
        """Tell the server that the session is over, and wait a moment for its answer. Fails in silence."""
        if self.track is None or not self.dialogue.session:
            return
        cseq = self.dialogue.post("TEARDOWN", self.track.aggregate)
        # Not the client's clock: nothing is decided here, and one that stands still must not make it endless.
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
    """Brings a session from its connection to PLAY. Each step raises SourceError when the server refuses it."""

    def __init__(
        self, session: Session, login: Login, deadline: Deadline, transport: Transport, clock: Callable[[], float]
    ) -> None:
        self._session = session
        self._login = login
        self._deadline = deadline
        self._transport = transport
        self._clock = clock
        self._tracks = 0

    def run(self, *, all_tracks: bool) -> None:
        """All steps.

        :raises Moved: if the server redirects.
        :raises Unsupported: if the stream is none that is spoken.
        :raises SourceError: for any other refusal.
        """
        self._learn_methods()
        self._session.track = track = self._describe()
        self._set_up(track.control)
        if all_tracks:
            for control in track.other_tracks:
                self._set_up(control, needed=False)
        self._play(track)

    def _ask(self, method: str, uri: str, headers: dict[str, str] | None = None) -> Response:
        """The answer; a redirect is followed wherever it comes."""
        response = self._session.dialogue.ask(method, uri, headers or {}, self._deadline)
        location = response.headers.get("Location")
        if response.status in MOVED and location:
            raise Moved(self._session.target.moved(location))
        return response

    def _learn_methods(self) -> None:
        response = self._ask("OPTIONS", self._session.target.uri)
        if response.status == 401 and self._login.tried:
            raise self._refusal(response, "OPTIONS")  # asking on would be one more wrong try, and some cameras count
        if "GET_PARAMETER" in ",".join(response.headers.all("Public")).upper():
            self._session.keep_method = "GET_PARAMETER"

    def _describe(self) -> Track:
        uri = self._session.target.uri
        response = self._checked(self._ask("DESCRIBE", uri, {"Accept": "application/sdp"}), "DESCRIBE")
        if not response.body:
            raise ProtocolError("the camera's description of its stream is empty")
        # RFC 2326, C.1.1: what is named first counts.
        named = response.headers.get("Content-Base") or response.headers.get("Content-Location")
        base = escaped(without_user(join(uri, named))) if named else uri
        return video_track(response.body, base if base.lower().startswith(("rtsp://", "rtsps://")) else uri)

    def _set_up(self, control: str, *, needed: bool = True) -> None:
        """Set one track up. What the server says counts for the video alone: the rest is passed over, or refused in peace."""
        session, dialogue = self._session, self._session.dialogue
        pair: Datagrams | None = None
        first = 2 * self._tracks
        self._tracks += 1
        place = f"RTP/AVP/TCP;unicast;interleaved={first}-{first + 1}"
        if self._transport == "udp":
            # Nobody reads what is passed over: it may fill the smallest buffer there is.
            connection, buffer = dialogue.connection, RECEIVE_BUFFER if needed else 0
            pair = Datagrams(connection.socket.family, connection.local, self._clock, buffer=buffer)
            session.datagrams.append(pair)
            place = f"RTP/AVP;unicast;client_port={pair.port}-{pair.port + 1}"
        response = self._ask("SETUP", control, {"Transport": place})
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
        """:raises SourceError: if the server answered with another transport than it was asked for."""
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
        if 200 <= response.status < 300:
            return response
        raise self._refusal(response, method)

    def _refusal(self, response: Response, method: str) -> SourceError:
        status = response.status
        if status == WRONG_TRANSPORT:
            return self._wrong_transport()
        if status == 401 and self._login.unspoken:
            text = f"401: the camera asks for {self._login.unspoken}; basic and digest (MD5, SHA-256) are spoken"
            return SourceError(text, permanent=True, denied=True)
        if status in WORDS:
            return SourceError(WORDS[status], permanent=status in REFUSED, denied=status in (401, 403))
        reason = one_line(response.reason[:60])
        return SourceError(f"the camera answered {method} with {status} {reason}".rstrip())

    def _wrong_transport(self) -> SourceError:
        other = "udp" if self._transport == "tcp" else "tcp"
        asked = self._transport.upper()
        return SourceError(
            f"the camera does not send over {asked}; `rtsp_transport` {other} asks for the other way", permanent=True
        )
