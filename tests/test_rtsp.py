"""RTSP end to end: the client of a camera, the messages about it, its own clock, and encrypted connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.sources.rtsp.rtsp_client import RtspClient
from tests.command import PROBE, Done, watchline
from tests.servers import PatternSpec, RtspServer
from tests.servers.certificates import self_signed, server_context
from tests.servers.scripted import Scripted, camera, frame, reply
from tests.servers.streaming import described, sender_report
from tests.sources.rtp.packetize import bare, packetize, stream, wire
from tests.system import need

pytestmark = pytest.mark.timeout(60)
JPEG = "videotestsrc is-live=true ! video/x-raw,format=I420,width=64,height=64 ! jpegenc ! rtpjpegpay name=pay0 pt=26"
SOON = ("--open-timeout", "5", "--read-timeout", "5")


@pytest.fixture(scope="module")
def server() -> Iterator[RtspServer]:
    need("gst-rtsp-server")
    with RtspServer({"jpeg": PatternSpec(line=JPEG), "cam": PatternSpec(160, 120)}) as server:
        yield server


def _run(url: str, *flags: str, frames: int = 15) -> Done:
    return watchline("run", url, *PROBE, *SOON, "--max-frames", str(frames), "--jsonl", "-", *flags)


def _stream(report: Path) -> dict[str, Any]:
    (found,) = json.loads(report.read_text())["streams"].values()
    return found  # type: ignore[no-any-return]


class TestTheClient:
    def test_what_native_does_not_speak_is_read_with_ffmpeg_and_said_once(self, server: RtspServer) -> None:
        done = _run(server.url("jpeg"))
        assert (done.code, len(done.lines)) == (0, 15)
        said = [line for line in done.err.splitlines() if "FFmpeg" in line]
        assert len(said) == 1
        assert "sends JPEG" in said[0]

    def test_native_alone_refuses_it(self, server: RtspServer) -> None:
        done = _run(server.url("jpeg"), "--rtsp-client", "native")
        assert (done.code, done.lines) == (2, [])
        (said,) = [line for line in done.err.splitlines() if "JPEG" in line]
        assert "--rtsp-client auto" in said

    def test_ffmpeg_alone_reads_it_without_a_word(self, server: RtspServer) -> None:
        done = _run(server.url("jpeg"), "--rtsp-client", "ffmpeg")
        assert (done.code, len(done.lines)) == (0, 15)
        assert "JPEG" not in done.err

    def test_odd_markers_are_said_once(self, tmp_path: Path) -> None:
        done = _run_scripted(tmp_path / "report.json", marks="never")
        assert done.code == 0
        assert done.err.count("does not mark the ends of its pictures") == 1

    def test_packets_are_in_the_report_and_the_lost_ones_in_the_summary(self, tmp_path: Path) -> None:
        report = tmp_path / "report.json"
        done = _run_scripted(report, leave_out=30)
        assert done.code == 0
        stream = _stream(report)
        assert stream["packets"]["lost"] == 1
        assert stream["packets"]["received"] > 50
        assert stream["dropped"]["corrupt"] > 0
        assert "1 packet lost" in done.err


def _played(*, marks: Any = "last", leave_out: int = -1) -> bytes:
    """30 pictures, as they come over the connection."""
    packets = bare(packetize(stream("h264", frames=30), marks=marks))
    return b"".join(frame(wire(packet)) for k, packet in enumerate(packets) if k != leave_out)


def _run_scripted(report: Path, **how: Any) -> Done:
    data = _played(**how)
    with Scripted(camera(described("h264"), PLAY=lambda asked: reply(asked) + data)) as server:
        return _run(server.url(), "--report", str(report))


class TestTheCamerasClock:
    def test_a_camera_on_this_host(self, server: RtspServer, tmp_path: Path) -> None:
        """GStreamer tells its time within 3.1 s. The pictures are taken, encoded and read within a few ms."""
        report = tmp_path / "report.json"
        done = _run(server.url("cam"), "--report", str(report), frames=100)
        told = ["captured_at" in line for line in done.lines]
        first = told.index(True)
        assert told == [k >= first for k in range(100)]
        ages = sorted(
            (datetime.fromisoformat(line["time"]) - datetime.fromisoformat(line["captured_at"])).total_seconds()
            for line in done.lines[first:]
        )
        assert all(line["captured_at"].endswith("Z") for line in done.lines[first:])
        # The quickest of them was not held up by a machine that has other things to do.
        assert -0.005 < ages[0] < 0.02
        assert ages[len(ages) // 2] < 0.2
        stream = _stream(report)
        assert stream["camera_clock"] == "same host"
        assert stream["camera_age_ms"]["count"] > 0
        assert "by its own clock (on this host)" in done.err

    @pytest.mark.parametrize(("flags", "words"), [((), "not compared"), (("--camera-clock-trusted",), "trusted")])
    def test_a_camera_elsewhere(
        self, flags: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RtspClient, "same_host", property(lambda _: False))
        report = tmp_path / "report.json"
        data = frame(sender_report(5, 1.7e9, 1000), 1) + _played()
        with Scripted(camera(described("h264"), PLAY=lambda asked: reply(asked) + data)) as server:
            done = _run(server.url(), "--report", str(report), *flags)
        stream = _stream(report)
        assert stream["camera_clock"] == words
        assert (stream["camera_age_ms"] is not None) is bool(flags)
        assert ("by its own clock (trusted)" in done.err) is bool(flags)


class TestEncrypted:
    @pytest.fixture(scope="class")
    @classmethod
    def certificate(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return self_signed(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")

    @staticmethod
    def _run(certificate: Path, *flags: str) -> Done:
        data = _played()
        script = camera(described("h264"), PLAY=lambda asked: reply(asked) + data)
        with Scripted(script, tls=server_context(certificate)) as server:
            return _run(server.url(scheme="rtsps"), *flags)

    @pytest.mark.parametrize("client", ["native", "ffmpeg"])
    def test_a_certificate_that_nobody_signed(self, certificate: Path, client: str) -> None:
        refused = self._run(certificate, "--rtsp-client", client)
        assert (refused.code, refused.lines) == (2, [])
        assert "--no-tls-verify" in refused.err
        taken = self._run(certificate, "--rtsp-client", client, "--no-tls-verify")
        assert (taken.code, len(taken.lines)) == (0, 15)
