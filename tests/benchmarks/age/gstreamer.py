"""GStreamer as a reader, run with the system's python3: gstreamer.py URL SECONDS CODEC DECODER SETTLE_S.

Prints the same object as readers.py, but with the stamp's place of each picture in base64: there may be no numpy here.
"""

import base64
import json
import sys
import time
from pathlib import Path

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))
from stamp import HEIGHT, WIDTH, top  # noqa: E402


def main() -> None:
    url, seconds, codec, decoder, settle_s = sys.argv[1:]
    Gst.init(None)
    pipeline = Gst.parse_launch(
        f"rtspsrc location={url} latency=0 protocols=tcp ! rtp{codec}depay ! {codec}parse ! {decoder} "
        "! video/x-raw,format=I420 ! appsink name=sink sync=false"
    )
    sink = pipeline.get_by_name("sink")
    pipeline.set_state(Gst.State.PLAYING)
    seen, began = [], None
    while sample := sink.emit("try-pull-sample", 10 * Gst.SECOND):
        now_s = time.monotonic()
        seen.append((now_s, strip(sample)))
        if began is None and now_s > seen[0][0] + float(settle_s):
            began = len(seen), time.process_time()
        if now_s > seen[0][0] + float(seconds):
            break
    cpu_ms = 1e3 * (time.process_time() - began[1]) / max(len(seen) - began[0], 1) if began else None
    pipeline.set_state(Gst.State.NULL)
    print(json.dumps({"seen": [(at_s, base64.b64encode(data).decode()) for at_s, data in seen], "cpu_ms": cpu_ms}))


def strip(sample: Gst.Sample) -> bytes:
    """The stamp's place, row by row; rows of this size have no padding."""
    form = sample.get_caps().get_structure(0)
    width, height = form.get_value("width"), form.get_value("height")
    rows = sample.get_buffer().extract_dup(top(height) * width, HEIGHT * width)
    return b"".join(rows[k * width : k * width + WIDTH] for k in range(HEIGHT))


if __name__ == "__main__":
    main()
