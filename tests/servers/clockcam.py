"""Cameras that stamp the monotonic time into their pictures. `ClockCamera` (clock.py) runs it, with the system's python3.

One line of JSON comes in on stdin:
    {"port": 0, "pdeathsig": true, "count": 1, "codec": "h264", "size": [1280, 720], "rate": 25, "key_every": 25,
     "always_on": false, "drop": 0.0, "drop_from": 0, "drop_to": 0, "log": "/tmp/log"}
and one line goes out: `ready PORT`; the cameras are at /cam0, /cam1, ... The process ends when its stdin is closed, or by
SIGKILL.

A camera begins with its first client and is shared by all; with always_on its first client is one of its own. It is an open
loop: picture i is due at its start + i / rate, whether or not anybody reads or the encoder follows. Around the stamp is noise
that moves, so that encoding and decoding have their real costs.

The log has a line for each event, in seconds of time.monotonic():
    pushed CAMERA PICTURE DUE STAMP     the picture was made: STAMP, as whole milliseconds, stands in it
    encoded CAMERA PICTURE TIME KEY     it goes into the payloader; KEY is 1 for a key picture
    dropped CAMERA PICTURE SEQUENCE     this RTP packet of it was lost
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")  # push-buffer needs its types
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstApp, GstRtspServer  # noqa: E402, F401
from stamp import HEIGHT, stamp_rows, top  # noqa: E402 - from this folder, which is the script's

PR_SET_PDEATHSIG = 1
BLOCK = 8
"""Samples of noise that are equal, each way."""
KBIT_S = 4000


@dataclass(frozen=True)
class Order:
    """The wanted values."""

    port: int
    pdeathsig: bool
    count: int
    codec: str
    size: tuple[int, int]
    rate: int
    key_every: int
    always_on: bool
    drop: float
    drop_from: int
    drop_to: int
    log: str


class Pictures:
    """Makes pictures: yuv420p planes one behind the other, as GStreamer's I420 is for sizes that divide by 8."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        dice = random.Random(0)
        rows = (bytes(dice.choices(range(60, 190), k=width // BLOCK)) for _ in range(height // BLOCK))
        noise = b"".join(b"".join(bytes([v]) * BLOCK for v in row) * BLOCK for row in rows)
        self._noise = memoryview(noise + noise)  # a picture of it can begin at any row
        self._chroma = bytes([128]) * (width * height // 2)

    def picture(self, number: int, stamp: int) -> bytes:
        width, height = self._width, self._height
        first = number * BLOCK % height * width
        above, below = top(height) * width, (top(height) + HEIGHT) * width
        noise = self._noise[first : first + width * height]
        return b"".join((noise[:above], stamp_rows(stamp, width), noise[below:], self._chroma))


class Log:
    """Lines of a file, each by one system call: from any thread, and complete at any moment."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class Camera:
    """One medium of the server, from its first client to its last."""

    def __init__(self, number: int, order: Order, pictures: Pictures, log: Log, bin_: Any) -> None:
        self._number = number
        self._order = order
        self._pictures = pictures
        self._log = log
        self._source = bin_.get_by_name("source")
        self._pushed = 0
        self._encoded = -1
        self._dice = random.Random(number)
        self._began_s = time.monotonic()
        payer = bin_.get_by_name("payer") or bin_.get_by_name("pay0")
        payer.get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, self._note_encoded)
        if order.drop:
            bin_.get_by_name("pay0").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, self._lose)
        GLib.timeout_add(1, self._push)

    def _push(self) -> bool:
        """Push the picture that is due, and come back when the next one is."""
        order, number = self._order, self._pushed
        now_s = time.monotonic()
        buffer = Gst.Buffer.new_wrapped(self._pictures.picture(number, int(1e3 * now_s)))
        buffer.pts, buffer.duration = number * Gst.SECOND // order.rate, Gst.SECOND // order.rate
        self._log.write("pushed", self._number, number, self._began_s + number / order.rate, now_s)
        if self._source.emit("push-buffer", buffer) != Gst.FlowReturn.OK:
            return False
        self._pushed += 1
        wait_s = self._began_s + self._pushed / order.rate - time.monotonic()
        GLib.timeout_add(max(int(1e3 * wait_s), 0), self._push)
        return False

    def _note_encoded(self, _: Gst.Pad, info: Gst.PadProbeInfo) -> Gst.PadProbeReturn:
        """One access unit for each picture, in the same order: the encoder holds none back and makes no B-frames."""
        now_s = time.monotonic()
        self._encoded += 1
        key = not info.get_buffer().has_flags(Gst.BufferFlags.DELTA_UNIT)
        self._log.write("encoded", self._number, self._encoded, now_s, int(key))
        return Gst.PadProbeReturn.OK

    def _lose(self, _: Gst.Pad, info: Gst.PadProbeInfo) -> Gst.PadProbeReturn:
        """The network: the packets of a picture pass in the thread that has put it into the payloader."""
        order = self._order
        if not order.drop_from <= self._encoded < order.drop_to or self._dice.random() >= order.drop:
            return Gst.PadProbeReturn.OK
        sequence = int.from_bytes(info.get_buffer().extract_dup(2, 2), "big")
        self._log.write("dropped", self._number, self._encoded, sequence)
        return Gst.PadProbeReturn.DROP


class CameraFactory(GstRtspServer.RTSPMediaFactory):
    """Makes a camera for its first client."""

    def __init__(self, number: int, order: Order, pictures: Pictures, log: Log) -> None:
        super().__init__()
        self._parts = (number, order, pictures, log)
        self.set_shared(True)
        self.connect("media-configure", self._configure)  # overriding do_configure would undo set_shared

    def do_create_element(self, url: object) -> Gst.Element:
        order: Order = self._parts[1]
        (width, height), codec = order.size, order.codec
        caps = f"video/x-raw,format=I420,width={width},height={height},framerate={order.rate}/1"
        # An element behind the payloader takes its lists of packets apart: only where some shall be lost.
        payer = f"rtp{codec}pay pt=96 name=" + ("payer ! identity name=pay0" if order.drop else "pay0")
        return Gst.parse_launch(
            f"( appsrc name=source is-live=true format=time caps={caps} "
            f"! x{codec[1:]}enc tune=zerolatency speed-preset=ultrafast bitrate={KBIT_S} key-int-max={order.key_every} "
            f"! {codec}parse config-interval=-1 ! {payer} )"
        )

    def _configure(self, _: object, media: GstRtspServer.RTSPMedia) -> None:
        Camera(*self._parts, media.get_element())


def watch(url: str) -> Gst.Element:
    """A client that keeps a camera on and throws its packets away."""
    pipeline = Gst.parse_launch(f"rtspsrc protocols=tcp location={url} ! fakesink sync=false async=false")
    pipeline.set_state(Gst.State.PLAYING)
    return pipeline


def main() -> None:
    order = Order(**json.loads(sys.stdin.readline()))
    if order.pdeathsig:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(order.port))
    pictures, log = Pictures(*order.size), Log(order.log)
    for number in range(order.count):
        server.get_mount_points().add_factory(f"/cam{number}", CameraFactory(number, order, pictures, log))
    if not server.attach(None):
        raise SystemExit(f"port {order.port} cannot be bound")
    port = server.get_bound_port()
    watchers = [watch(f"rtsp://127.0.0.1:{port}/cam{k}") for k in range(order.count)] if order.always_on else []
    loop = GLib.MainLoop()
    GLib.io_add_watch(sys.stdin.fileno(), GLib.PRIORITY_DEFAULT, GLib.IOCondition.HUP, lambda *_: loop.quit())
    print(f"ready {port}", flush=True)
    loop.run()
    del watchers
    os._exit(0)


if __name__ == "__main__":
    main()
