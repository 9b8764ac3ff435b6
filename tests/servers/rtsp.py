"""GStreamer's RTSP server, playing files for ever. `tests.servers.RtspServer` runs it, with the system's python3.

One line of JSON comes in on stdin:
    {"port": 0, "user": null, "password": null, "auth": "digest", "pdeathsig": true,
     "mounts": {"cam": {"path": "/tmp/a.mp4", "other": null, "sound": true, "drop": 0.0, "always_on": false},
                "test": {"launch": "videotestsrc ! ..."}}}
and one line goes out: `ready PORT`. The process ends when its stdin is closed, or by SIGKILL. Faults of a camera that
plays a file comes in later, a line each, and is answered with `done`:
    freeze NAME     no more pictures; the sound goes on
    thaw NAME       pictures again, from the next key picture on
    switch NAME     from the next key picture on, those of the other file, and back again
    clock NAME      its RTP clocks, sequence numbers and SSRCs begin anew, within the session

A file is read once into memory and its packets are pushed for ever, each when it is due, like a camera's: nothing is
encoded again, and times rise through the loops. A client that comes alone gets packet 0 first, one that joins others
comes in the middle. After a stop of the process the packets go on where they were: no burst of the missed ones.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
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
    key: bool
    data: GLib.Bytes


class Clip:
    """The packets of a file's first video and, if wanted, first sound stream, by the time at which they are due."""

    def __init__(self, path: str, sound: bool) -> None:
        self.caps: list[Gst.Caps] = []
        self.kinds: list[str] = []
        tracks = self._read(path, sound)
        video = next(k for k, kind in enumerate(self.kinds) if kind.startswith("video"))
        self.video = video
        shown = sorted(pts for pts, _, _ in tracks[video])
        first = shown[0]
        step = (shown[-1] - shown[0]) // max(len(shown) - 1, 1) or 40_000_000
        self.length = shown[-1] - shown[0] + step
        packets = [p for k, track in enumerate(tracks) for p in self._due(track, k, first)]
        self.packets = sorted((p for p in packets if p.due < self.length), key=lambda p: p.due)

    @staticmethod
    def _due(track: list[tuple[int, bool, bytes]], number: int, first: int) -> list[Packet]:
        """Decode times are the sorted presentation times; those are moved so far that none comes before its packet."""
        order = sorted(pts for pts, _, _ in track)
        delay = max(due - pts for due, (pts, _, _) in zip(order, track, strict=True))
        return [
            Packet(max(due - first, 0), max(pts - first, 0) + delay, number, key, GLib.Bytes.new(data))
            for due, (pts, key, data) in zip(order, track, strict=True)
        ]

    def is_like(self, other: Clip) -> bool:
        """Whether packets of the one can follow those of the other anywhere."""
        return [p[:1] + p[2:4] for p in self.packets] == [p[:1] + p[2:4] for p in other.packets]

    def _read(self, path: str, sound: bool) -> list[list[tuple[int, bool, bytes]]]:
        pipeline = Gst.parse_launch("filesrc name=file ! parsebin name=bin")
        pipeline.get_by_name("file").set_property("location", path)
        tracks: list[list[tuple[int, bool, bytes]]] = []

        def take(sink: Any, number: int) -> Gst.FlowReturn:
            sample = sink.emit("pull-sample")
            self.caps[number] = sample.get_caps()
            buffer = sample.get_buffer()
            key = not buffer.has_flags(Gst.BufferFlags.DELTA_UNIT)
            tracks[number].append((buffer.pts, key, buffer.extract_dup(0, buffer.get_size())))
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


class Camera:
    """The wanted state of the camera at a mount; its players look at it."""

    def __init__(self, clip: Clip, other: Clip | None) -> None:
        self.clip = clip
        self.other = other or clip
        self.frozen = False
        self.player: Player | None = None
        """The newest one: a shared medium ends before the next begins."""
        if not self.clip.is_like(self.other):
            raise SystemExit("the other file must differ in its pictures only")

    def do(self, what: str) -> None:
        if what == "switch":
            self.clip, self.other = self.other, self.clip
        elif what == "clock" and self.player is not None:
            self.player.restart_clock()
        elif what in ("freeze", "thaw"):
            self.frozen = what == "freeze"


class ClipFactory(GstRtspServer.RTSPMediaFactory):
    """Plays a camera's clip, one round after the other."""

    def __init__(self, camera: Camera, drop: float) -> None:
        super().__init__()
        self._camera = camera
        loss = "! identity name=pay{k} drop-probability=" + str(drop) if drop else ""
        parts = (
            f"appsrc name=src{k} format=time ! {PAYERS[kind]} pt={96 + k} name={'payer' if drop else 'pay'}{k} "
            + loss.format(k=k)
            for k, kind in enumerate(camera.clip.kinds)
        )
        self._line = f"( {' '.join(parts)} )"
        self.connect("media-configure", self._configure)  # overriding do_configure would undo set_shared

    def do_create_element(self, url: object) -> Gst.Element:
        return Gst.parse_launch(self._line)

    def _configure(self, _: object, media: GstRtspServer.RTSPMedia) -> None:
        element, clip = media.get_element(), self._camera.clip
        sources = [element.get_by_name(f"src{k}") for k in range(len(clip.kinds))]
        for source, caps in zip(sources, clip.caps, strict=True):
            source.set_property("caps", caps)
        self._camera.player = Player(self._camera, sources, media)
        self._camera.player.begin()


class Player:
    """Pushes a clip's packets into the sources of one medium until that takes no more."""

    def __init__(self, camera: Camera, sources: list[Gst.Element], media: GstRtspServer.RTSPMedia) -> None:
        self._camera = camera
        self._media = media
        self._clip = camera.clip
        self._sources = sources
        self._next = 0
        self._waits_for_key = False
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
            if not self._is_missing(packet):
                buffer = Gst.Buffer.new_wrapped_bytes(self._clip.packets[place].data)
                buffer.dts, buffer.pts = packet.due + offset, packet.pts + offset
                if self._sources[packet.track].emit("push-buffer", buffer) != Gst.FlowReturn.OK:
                    return False
            self._next += 1

    def _is_missing(self, packet: Packet) -> bool:
        """Whether a frozen camera leaves it out. At a key picture the camera's clip is taken up."""
        if packet.track != self._clip.video:
            return False
        self._waits_for_key = self._camera.frozen or (self._waits_for_key and not packet.key)
        if packet.key:
            self._clip = self._camera.clip
        return self._waits_for_key

    def restart_clock(self) -> None:
        """A payloader that comes up from READY chooses anew where its numbers begin; the SSRC is the session's."""
        for k, source in enumerate(self._sources):
            self._media.get_stream(k).get_rtpsession().set_property("internal-ssrc", random.getrandbits(32))
            source.get_static_pad("src").add_probe(Gst.PadProbeType.IDLE, self._restart)

    @staticmethod
    def _restart(pad: Gst.Pad, _: Gst.PadProbeInfo) -> Gst.PadProbeReturn:
        peer = pad.get_peer()
        payer = peer.get_parent_element()
        pad.unlink(peer)
        payer.set_state(Gst.State.READY)
        payer.set_state(Gst.State.PLAYING)
        pad.link(peer)  # caps and segment, lost in the payloader, are sent again over a new link
        return Gst.PadProbeReturn.REMOVE


def watch(url: str) -> Gst.Element:
    """A client that keeps a camera on and throws its packets away."""
    pipeline = Gst.parse_launch(f"rtspsrc name=cam protocols=tcp location={url} cam. ! fakesink cam. ! fakesink async=false")
    pipeline.set_state(Gst.State.PLAYING)
    return pipeline


def listen(cameras: dict[str, Camera], loop: GLib.MainLoop) -> None:
    """Obey the lines on stdin until it is closed."""
    waiting = b""

    def read(*_: object) -> bool:
        nonlocal waiting
        data = os.read(sys.stdin.fileno(), 1 << 12)
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            what, name = line.decode().split()
            cameras[name].do(what)
            print("done", flush=True)
        if not data:
            loop.quit()
        return bool(data)

    GLib.io_add_watch(sys.stdin.fileno(), GLib.PRIORITY_DEFAULT, GLib.IOCondition.IN | GLib.IOCondition.HUP, read)


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
    cameras: dict[str, Camera] = {}
    for name, mount in order["mounts"].items():
        if "launch" in mount:
            factory = line_factory(mount["launch"])
        else:
            other = Clip(mount["other"], mount["sound"]) if mount["other"] else None
            cameras[name] = Camera(Clip(mount["path"], mount["sound"]), other)
            factory = ClipFactory(cameras[name], mount["drop"])
        factory.set_shared(True)
        if order["user"] is not None:
            factory.set_permissions(viewers_only())
        server.get_mount_points().add_factory(f"/{name}", factory)
    if not server.attach(None):
        raise SystemExit(f"port {order['port']} cannot be bound")
    port = server.get_bound_port()
    kept_on = [watch(f"rtsp://127.0.0.1:{port}/{k}") for k, m in order["mounts"].items() if m.get("always_on")]
    loop = GLib.MainLoop()
    listen(cameras, loop)
    print(f"ready {port}", flush=True)
    loop.run()
    del kept_on
    os._exit(0)


if __name__ == "__main__":
    main()
