"""Parses the session descriptions (RFC 4566) of cameras: finds the video track, and refuses unsupported streams."""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from pipelines.errors import SourceError
from pipelines.sources.bitstream.nal import H264Nal, H265Nal
from pipelines.sources.rtsp.message import ProtocolError
from pipelines.sources.rtsp.url import SCHEME, escaped, without_user

Codec = Literal["h264", "hevc"]
CODECS: dict[str, Codec] = {"H264": "h264", "H265": "hevc", "HEVC": "hevc"}
STATIC = {26: "JPEG", 31: "H261", 32: "MPEG-1/2", 33: "MPEG-TS", 34: "H263"}
"""Payload types that need no rtpmap (RFC 3551, table 5)."""
PROFILES = ("RTP/AVP", "RTP/AVPF", "RTP/AVP/TCP", "RTP/AVP/UDP", "RTP/AVPF/TCP", "RTP/AVPF/UDP")
PARAMETERS = {"h264": ("sprop-parameter-sets",), "hevc": ("sprop-vps", "sprop-sps", "sprop-pps")}
KINDS = {"h264": (H264Nal.SPS, H264Nal.PPS), "hevc": (H265Nal.VPS, H265Nal.SPS, H265Nal.PPS)}
"""NAL unit types of parameter sets."""
START_CODE = b"\0\0\0\1"

MAX_LINES = 2000
MAX_LINE = 32 << 10
"""Most characters of a line. The longest real ones, with parameter sets and SEI messages, have 2 KiB."""
MAX_TRACKS = 16
CLOCK_RATES = range(1000, 100_000_001)
"""Accepted clock rates, Hz. RFC 6184 and RFC 7798 require 90000; other plausible rates are accepted."""
RATE = re.compile(r"\d{1,6}(?:\.\d{0,6}|/\d{1,6})?", re.ASCII)
MAX_RATE = 1000


class Unsupported(SourceError):
    """The native client does not support the stream; FFmpeg may. The message names the reason. Permanent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, permanent=True)


@dataclass(frozen=True, slots=True)
class Track:
    """The video track of a session, as its description announces it."""

    codec: Codec
    payload_type: int
    """Payload type of the track's RTP packets, 0-127."""
    clock_rate: int
    """Clock rate of the RTP timestamps, Hz."""
    control: str
    """Absolute URL for SETUP."""
    aggregate: str
    """Absolute URL for PLAY, TEARDOWN and keep-alives."""
    parameter_sets: bytes = field(default=b"", repr=False)
    """Annex B; empty if they are sent in band only. No decoder has checked them."""
    rate: Fraction | None = None
    """Frames per second as the camera announces it, often wrong; None if it does not."""
    other_tracks: tuple[str, ...] = ()
    """Absolute control URLs of the other media, for SETUP: GStreamer's server sends nothing to a client that leaves one
    out."""


@dataclass(slots=True)
class _Section:
    """The lines of one medium, or the session's lines before the first medium."""

    head: str = ""
    address: str = ""
    attributes: list[tuple[str, str]] = field(default_factory=list)

    def first(self, name: str) -> str:
        return next((value for key, value in self.attributes if key == name), "")

    def of_type(self, name: str, payload_type: int) -> list[str]:
        """Values of the attribute `name` for one payload type, without the payload type."""
        found = []
        for key, value in self.attributes:
            kind, _, rest = value.strip().partition(" ")
            if key == name and kind == str(payload_type):
                found.append(rest.strip())
        return found


def video_track(sdp: bytes, base: str) -> Track:
    """The first supported video track (H.264 or H.265) of a session description.

    :param base: absolute URL without user information, to which relative ones are joined.
    :raises Unsupported: if no video track is supported; the message names the reason for the first.
    :raises SourceError: if there is no video; permanent.
    :raises ProtocolError: if the description exceeds a limit.
    """
    session, *media = _sections(sdp)
    aggregate = join_control(base, session.first("control"))
    reason = ""
    for section in media:
        if not section.head.lower().startswith("video "):
            continue
        try:
            return _track(session, section, media, aggregate)
        except Unsupported as error:
            reason = reason or str(error)
    if reason:
        raise Unsupported(reason)
    raise SourceError("the camera describes no video stream", permanent=True)


def join_control(base: str, control: str) -> str:
    """The absolute URL of a control attribute.

    RFC 2326, C.1.1, requires the rules of RFC 1808, which remove the last segment and the query of the base. Cameras expect
    otherwise: a base without a final slash is a folder too, and its query stays before the track's name. So the control is
    appended, as in all other clients.
    """
    control = control.strip()
    if control in ("", "*"):
        return base
    if SCHEME.match(control) and "://" in control:
        return escaped(without_user(control))
    root, path = "/".join(base.split("/", 3)[:3]), base.split("/", 3)[3] if base.count("/") > 2 else ""
    folder = "/" + path.partition("?")[0].strip("/")
    if control.startswith("/") and folder != "/" and f"{control}/".startswith(f"{folder}/"):
        return escaped(root + control)  # an absolute path inside the base's folder
    if control.startswith("?"):
        return escaped(base + control)
    return escaped(base.rstrip("/") + "/" + control.lstrip("/"))


def _sections(sdp: bytes) -> list[_Section]:
    lines = sdp.decode(errors="replace").replace("\r", "\n").split("\n")
    if len(lines) > 2 * MAX_LINES or any(len(line) > MAX_LINE for line in lines):
        raise ProtocolError(f"the description has more than {MAX_LINES} lines, or one of more than {MAX_LINE >> 10} KiB")
    sections = [_Section()]
    for line in lines:
        kind, _, value = _blanked(line).strip().partition("=")
        if kind == "m":
            sections.append(_Section(value.strip()))
        elif kind == "c":
            sections[-1].address = sections[-1].address or value
        elif kind == "a":
            name, _, rest = value.partition(":")
            sections[-1].attributes.append((name.strip().lower(), rest.strip()))
    return sections


def _blanked(line: str) -> str:
    """`line` with spaces for unprintable characters. Some cameras put tabs and control characters between words."""
    return line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)


def _track(session: _Section, section: _Section, media: list[_Section], aggregate: str) -> Track:
    """The track that `section` describes.

    :param media: all media of the session.
    :param aggregate: absolute URL of the session.
    :raises Unsupported: if the medium is not supported.
    """
    _, _, profile, *types = [*section.head.split(), "", "", ""]
    if profile.upper() not in PROFILES:
        transport = "encrypted RTP" if "SAVP" in profile.upper() else "the transport"
        raise Unsupported(f"the camera sends {transport} ({profile[:30] or 'none'}); RTP/AVP is supported")
    _refuse_multicast(section.address or session.address)
    payload_type, codec, clock_rate = _codec(section, [int(t) for t in types if re.fullmatch(r"\d{1,3}", t, re.ASCII)])
    values = _format(section, payload_type)
    if codec == "h264" and values.get("packetization-mode") == "2":
        raise Unsupported("the camera interleaves NAL units (packetization-mode=2)")
    if (values.get("sprop-max-don-diff") or "0").lstrip("0"):
        raise Unsupported("the camera sends NAL units out of order (sprop-max-don-diff is not 0)")
    others = [other for other in media if other is not section and other.head.upper().split()[2:3] and other.first("control")]
    return Track(
        codec,
        payload_type,
        clock_rate,
        join_control(aggregate, section.first("control")),
        aggregate,
        _parameter_sets(codec, values),
        _rate(section.first("framerate") or session.first("framerate")),
        tuple(join_control(aggregate, other.first("control")) for other in others[:MAX_TRACKS]),
    )


def _refuse_multicast(connection: str) -> None:
    """Check the value of a c= line, such as "IN IP4 232.1.2.3/127".

    :raises Unsupported: if its address is a multicast group.
    """
    address = [*connection.split(), "", "", ""][2].partition("/")[0]
    with contextlib.suppress(ValueError):  # a host name or nothing
        if ipaddress.ip_address(address).is_multicast:
            raise Unsupported(f"the camera sends to a multicast group ({address})")


def _codec(section: _Section, types: list[int]) -> tuple[int, Codec, int]:
    """Payload type, codec and clock rate of the first supported format.

    :param types: the payload types of the medium, in order of preference.
    :raises Unsupported: if no format is supported.
    :raises ProtocolError: if the clock rate is invalid.
    """
    names = []
    for payload_type in types[:MAX_TRACKS]:
        mapped = next(iter(section.of_type("rtpmap", payload_type)), STATIC.get(payload_type, "unknown codec"))
        name, _, rate = mapped.partition("/")
        names.append(name.strip())
        codec = CODECS.get(name.strip().upper())
        if codec is None or payload_type > 127:
            continue
        rate = rate.partition("/")[0].strip() or "90000"
        if not re.fullmatch(r"\d{1,9}", rate, re.ASCII) or int(rate) not in CLOCK_RATES:
            raise ProtocolError(f"the camera's {name.strip()} has a clock rate of {rate[:20]!r}; 90000 is usual")
        return payload_type, codec, int(rate)
    raise Unsupported(f"the camera sends {', '.join(dict.fromkeys(names))[:60] or 'no format'}; H.264 and H.265 are supported")


def _format(section: _Section, payload_type: int) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in section.of_type("fmtp", payload_type):
        for part in line.split(";"):
            name, _, value = part.partition("=")
            values.setdefault(name.strip().lower(), value.strip())
    return values


def _parameter_sets(codec: Codec, values: dict[str, str]) -> bytes:
    """The valid parameter sets in Annex B form, in the standard's order. Some cameras omit the base64 padding or send invalid
    values, which are ignored."""
    found = b""
    for name in PARAMETERS[codec]:
        for text in values.get(name, "").split(","):
            text = text.strip().rstrip("=")
            try:
                unit = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
            except (binascii.Error, ValueError):
                continue
            if unit and ((unit[0] & 0x1F) if codec == "h264" else (unit[0] >> 1 & 0x3F)) in KINDS[codec]:
                found += START_CODE + unit
    return found


def _rate(text: str) -> Fraction | None:
    if not RATE.fullmatch(text):
        return None
    with contextlib.suppress(ZeroDivisionError, ValueError):
        rate = Fraction(text)
        return rate if 0 < rate <= MAX_RATE else None
    return None
