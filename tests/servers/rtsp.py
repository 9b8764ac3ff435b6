"""GStreamer's RTSP server, playing files for ever. `tests.servers.RtspServer` runs it, with the system's python3.

One line of JSON comes in on stdin:
    {"port": 0, "user": null, "password": null, "auth": "digest", "pdeathsig": true,
     "mounts": {"cam": {"path": "/tmp/a.mp4", "sound": true, "drop": 0.0}, "test": {"launch": "videotestsrc ! ..."}}}
and one line goes out: `ready PORT`. The process ends when its stdin is closed, or by SIGKILL.

A file is read once into memory and its packets are pushed for ever, each when it is due, like a camera's: nothing is
encoded again, and times rise through the loops. A client that comes alone gets packet 0 first, one that joins others
comes in the middle. After a stop of the process the packets go on where they were: no burst of what was missed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any, NamedTuple

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

PR_SET_PDEATHSIG = 1
LATE_NS = 500_000_000
"""Later than this the process was stopped: the clip's clock is put back rather than caught up with."""
PARSERS = {
    "video/x-h264": "h264parse config-interval=-1 ! video/x-h264,stream-format=byte-stream,alignment=au",
    "video/x-h265": "h265parse config-interval=-1 ! video/x-h265,stream-format=byte-stream,alignment=au",
    "audio/mpeg": "aacparse ! audio/mpeg,mpegversion=4,stream-format=raw",
}
PAYERS = {
    "video/x-h264": "rtph264pay config-interval=-1",
    "video/x-h265": "rtph265pay config-interval=-1",
    "audio/mpeg": "rtpmp4gpay",
}
TAKE = "appsink name=sink sync=false async=false emit-signals=true"


class Packet(NamedTuple):
    """An access unit; times in ns since the start of the clip."""

    due: int
    pts: int
    track: int
    data: GLib.Bytes


class Clip:
    """The packets of a file's first video and, if wanted, first sound stream, by the time at which they are due."""

    def __init__(self, path: str, sound: bool) -> None:
        self.caps: list[Gst.Caps] = []
        self.kinds: list[str] = []
        tracks = self._read(path, sound)
        video = next(k for k, kind in enumerate(self.kinds) if kind.startswith("video"))
        first = min(pts for pts, _ in tracks[video])
        shown = sorted(pts for pts, _ in tracks[video])
        step = (shown[-1] - shown[0]) // max(len(shown) - 1, 1) or 40_000_000
        self.length = shown[-1] - shown[0] + step
        packets = [p for k, track in enumerate(tracks) for p in self._due(track, k, first)]
        self.packets = sorted((p for p in packets if p.due < self.length), key=lambda p: p.due)

    @staticmethod
    def _due(track: list[tuple[int, bytes]], number: int, first: int) -> list[Packet]:
        """Decode times are the sorted presentation times; those are moved so far that none comes before its packet."""
        order = sorted(pts for pts, _ in track)
        delay = max(due - pts for due, (pts, _) in zip(order, track, strict=True))
        return [
            Packet(max(due - first, 0), max(pts - first, 0) + delay, number, GLib.Bytes.new(data))
            for due, (pts, data) in zip(order, track, strict=True)
        ]

    def _read(self, path: str, sound: bool) -> list[list[tuple[int, bytes]]]:
        pipeline = Gst.parse_launch("filesrc name=file ! parsebin name=bin")
        pipeline.get_by_name("file").set_property("location", path)
        tracks: list[list[tuple[int, bytes]]] = []

        def take(sink: Any, number: int) -> Gst.FlowReturn:
            sample = sink.emit("pull-sample")
            self.caps[number] = sample.get_caps()
            buffer = sample.get_buffer()
            tracks[number].append((buffer.pts, buffer.extract_dup(0, buffer.get_size())))
            return Gst.FlowReturn.OK

        def join(_: Any, pad: Gst.Pad) -> None:
            kind = (pad.get_current_caps() or pad.query_caps()).get_structure(0).get_name()
            wanted = kind in PARSERS and kind not in self.kinds and (sound or kind.startswith("video"))
            line = f"{PARSERS[kind]} ! {TAKE}" if wanted else "fakesink sync=false async=false"
            part = Gst.parse_bin_from_description(line, True)
            if wanted:
                part.get_by_name("sink").connect("new-sample", take, len(tracks))
                self.kinds.append(kind)
                self.caps.append(None)
                tracks.append([])
            pipeline.add(part)
            part.sync_state_with_parent()
            pad.link(part.get_static_pad("sink"))

        pipeline.get_by_name("bin").connect("pad-added", join)
        pipeline.set_state(Gst.State.PLAYING)
        message = pipeline.get_bus().timed_pop_filtered(20 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
        pipeline.set_state(Gst.State.NULL)
        if message is None or message.type == Gst.MessageType.ERROR:
            raise SystemExit(f"cannot read {path}: {message and message.parse_error()}")
        if not any(kind.startswith("video") and track for kind, track in zip(self.kinds, tracks, strict=True)):
            raise SystemExit(f"{path} has no H.264 or H.265 video")
        return tracks


class ClipFactory(GstRtspServer.RTSPMediaFactory):
    """Plays a clip, one round after the other."""

    def __init__(self, clip: Clip, drop: float) -> None:
        super().__init__()
        self._clip = clip
        loss = f"! identity drop-probability={drop}" if drop else ""
        parts = (
            f"appsrc name=src{k} format=time ! {PAYERS[kind]} pt={96 + k} {loss} name=pay{k}"
            for k, kind in enumerate(clip.kinds)
        )
        self._line = f"( {' '.join(parts)} )"
        self.connect("media-configure", self._configure)  # overriding do_configure would undo set_shared

    def do_create_element(self, url: object) -> Gst.Element:
        return Gst.parse_launch(self._line)

    def _configure(self, _: object, media: GstRtspServer.RTSPMedia) -> None:
        element = media.get_element()
        sources = [element.get_by_name(f"src{k}") for k in range(len(self._clip.kinds))]
        for source, caps in zip(sources, self._clip.caps, strict=True):
            source.set_property("caps", caps)
        Player(self._clip, sources).begin()


class Player:
    """Pushes a clip's packets into the sources of one medium until that takes no more."""

    def __init__(self, clip: Clip, sources: list[Gst.Element]) -> None:
        self._clip = clip
        self._sources = sources
        self._next = 0
        self._started = time.monotonic_ns()
        self._stopped = 0

    def begin(self) -> None:
        GLib.timeout_add(1, self._push)

    def _push(self) -> bool:
        """Push all that is due, and come back when the next packet is."""
        now = time.monotonic_ns() - self._started
        while True:
            turn, place = divmod(self._next, len(self._clip.packets))
            packet = self._clip.packets[place]
            offset = turn * self._clip.length + self._stopped
            late = now - offset - packet.due
            if late < 0:
                GLib.timeout_add(max(-late // 1_000_000, 1), self._push)
                return False
            if late > LATE_NS:
                self._stopped += late
                offset += late
            buffer = Gst.Buffer.new_wrapped_bytes(packet.data)
            buffer.dts, buffer.pts = packet.due + offset, packet.pts + offset
            if self._sources[packet.track].emit("push-buffer", buffer) != Gst.FlowReturn.OK:
                return False
            self._next += 1


def line_factory(line: str) -> GstRtspServer.RTSPMediaFactory:
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(f"( {line} )")
    return factory


def protect(server: GstRtspServer.RTSPServer, user: str, password: str, method: str) -> None:
    """Let in only this user, by this method ("basic" or "digest")."""
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string(GstRtspServer.RTSP_TOKEN_MEDIA_FACTORY_ROLE, "viewer")
    if method == "basic":
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.BASIC)
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    else:
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        auth.add_digest(user, password, token)
    server.set_auth(auth)


def viewers_only() -> GstRtspServer.RTSPPermissions:
    permissions = GstRtspServer.RTSPPermissions()
    for what in (GstRtspServer.RTSP_PERM_MEDIA_FACTORY_ACCESS, GstRtspServer.RTSP_PERM_MEDIA_FACTORY_CONSTRUCT):
        permissions.add_permission_for_role("viewer", what, True)
    return permissions


def main() -> None:
    order = json.loads(sys.stdin.readline())
    if order["pdeathsig"]:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(order["port"]))
    if order["user"] is not None:
        protect(server, order["user"], order["password"], order["auth"])
    for name, mount in order["mounts"].items():
        if "launch" in mount:
            factory = line_factory(mount["launch"])
        else:
            factory = ClipFactory(Clip(mount["path"], mount["sound"]), mount["drop"])
        factory.set_shared(True)
        if order["user"] is not None:
            factory.set_permissions(viewers_only())
        server.get_mount_points().add_factory(f"/{name}", factory)
    if not server.attach(None):
        raise SystemExit(f"port {order['port']} cannot be bound")
    loop = GLib.MainLoop()
    GLib.io_add_watch(sys.stdin.fileno(), GLib.PRIORITY_DEFAULT, GLib.IOCondition.HUP, lambda *_: loop.quit())
    print(f"ready {server.get_bound_port()}", flush=True)
    loop.run()
    os._exit(0)


if __name__ == "__main__":
    main()
