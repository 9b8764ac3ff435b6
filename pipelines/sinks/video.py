"""VideoFile: an annotated video in H.264 with the times, colours and sound of its source, playable after any stop."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.container import OutputContainer
from av.packet import Packet
from av.video.frame import PictureType
from av.video.stream import VideoStream

from pipelines.errors import SinkError, UsageError, reason
from pipelines.frame import DEFAULT_RATE, Frame, Picture
from pipelines.media.colour import COEFFICIENTS
from pipelines.media.local_files import Claim, Identity, file_address, identity, lost, try_to_write
from pipelines.media.planes import color_range, upright_frame
from pipelines.sinks.containers import SUFFIXES, container_of
from pipelines.sinks.letterbox import Letterbox
from pipelines.sinks.output_times import OutputTimeline, tick_length
from pipelines.sinks.salvage import remains
from pipelines.sinks.sound import Sound, open_sound

log = logging.getLogger("watchline.sinks.video")

# A fragment is complete when the next keyframe comes: SIGKILL costs at most so much media time.
_KEY_EVERY_S = 1

# Most media time that the encoder's threads may hold back in addition. Each thread beyond the first holds back one frame.
_HELD_S = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class VideoOptions:
    """The encoding of a video file.

    The defaults were measured with one thread on 120 frames of bigbuckbunny.mp4 (720p) and bikes.mp4 (640x272):

    | preset, B-frames, crf    | CPU ms a frame | kB        | luma PSNR, dB | SSIM            |
    | ultrafast, 0, 23         | 2.2-3.7 / 1.4  | 1757 / 838 | 43.1 / 40.7  | 0.9817 / 0.9723 |
    | superfast, 0, 25         | 3.4-5.3 / 2.3  | 726 / 320  | 42.7 / 40.2  | 0.9829 / 0.9785 |
    | superfast, 3, 23         | 5.3-8.3 / 3.1  | 775 / 346  | 42.6 / 40.8  | 0.9827 / 0.9813 |
    | veryfast, 0, 25          | 5.9-8.5 / 3.2  | 629 / 283  | 42.2 / 39.9  | 0.9814 / 0.9785 |
    | veryfast, 3, 23          | 7.4-9.1 / 5.7  | 600 / 284  | 42.2 / 41.3  | 0.9819 / 0.9841 |

    ultrafast needs twice the bytes for the same picture; veryfast saves 15 % of them for 60 % more CPU, which decoder
    and model need. B-frames save nothing worth their CPU at this speed, and hold frames back.
    """

    crf: int = 23
    preset: str = "superfast"
    bframes: int = 0
    threads: int = 1
    """Most threads of the encoder. Each beyond the first holds back one frame: fewer are used if frames come slowly, and one if
    the frame rate is unknown."""
    live: bool = False
    """For a camera: times follow the arrival, and memory does not grow with the length of the recording."""


_DEFAULT = VideoOptions()


class VideoFile:
    """A sink that writes one stream's annotated pictures to `path`.

    Nothing is opened before the first picture, which determines size, colour tags, sample aspect, clock and sound. Without a
    picture no file is created. A shown picture is written at most 1.5 s of media time later: 1 s until the next keyframe, and
    0.5 s in the encoder's threads. A lock makes `close` safe in any thread; encoder and containers belong to the thread that
    holds the lock.
    """

    def __init__(self, path: Path, options: VideoOptions = _DEFAULT) -> None:
        self.written = 0
        """Accepted frames; 0 if the file was removed or replaced meanwhile."""
        self._path = path
        self._options = options
        self._lock = threading.Lock()
        self._closed = False
        self._failed: str | None = None
        """The text of the first error."""
        self._claim: Claim | None = None
        self._encoding: _Encoding | None = None

    def show(self, frame: Frame, picture: Picture) -> None:
        """Encode one upright picture of even size. Thread: the stream's lane.

        :raises SinkError: if it cannot be written, or the file was closed. The file is finished then, and the error gives its
            playable part: encoder and muxer held back frames that were accepted before.
        """
        with self._lock, self._named_errors():
            if self._closed or self._failed:
                # No second attempt: it would empty the file.
                raise SinkError(self._failed or f"cannot write {self._path}: it is closed")
            if self._encoding is None:
                self._claim = Claim(self._path)
                self._encoding = _Encoding(self._path, self._options, frame, picture)
            self._encoding.add(frame, picture)
            self.written += 1

    def close(self, complete: bool) -> None:
        """Finish the file. complete: write the rest of the sound, too. Thread: any. A second call does nothing.

        :raises SinkError: if it cannot be finished or was removed, unless `show` has raised an error before.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with self._named_errors():
                self._finish(complete)

    def _finish(self, complete: bool) -> None:
        """End the encoding, at most once. Everything is closed even after an error."""
        encoding, self._encoding = self._encoding, None
        try:
            if encoding is not None:
                self._end(encoding, complete)
        finally:
            if self._claim is not None:
                self._claim.close()

    def _end(self, encoding: _Encoding, complete: bool) -> None:
        became = lost(self._path, encoding.identity)
        if became is not None:
            self.written = 0
        encoding.finish(complete)
        if became is not None:
            raise SinkError(f"{self._path} was {became} while it was written")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Turn PyAV's errors (OSError, its own types, ValueError) into a SinkError that names the file; finish the file."""
        try:
            yield
        except (OSError, av.FFmpegError, ValueError) as error:
            self._failed = f"cannot write {self._path}: {reason(error)}"
            with suppress(OSError, av.FFmpegError, ValueError, SinkError):
                self._finish(complete=False)
            if self.written:
                self._failed += f": {remains(self._path, self.written)}"
            raise SinkError(self._failed) from error


class _Encoding:
    """An open output: encoder, container, timeline and sound. Not thread-safe: called under the file's lock."""

    def __init__(self, path: Path, options: VideoOptions, frame: Frame, first: Picture) -> None:
        width, height = first.upright_size
        if width % 2 or height % 2:
            raise ValueError(f"pictures need even sides, got {width}x{height}")
        _refuse_own_source(path, frame.info.sound)
        container = container_of(path.suffix)
        if container is None:
            raise ValueError(f"its ending is not among {', '.join(SUFFIXES)}")
        name, tick_s = container.format, container.tick_s or tick_length(frame.info, options.live)
        self._path = path
        self._timeline = OutputTimeline(frame.info, tick_s, options.live)
        self._letterbox = Letterbox(first)
        self._letterboxed = False
        self._next_key = 0
        self._first_dts: int | None = None
        self._session = frame.session
        self._output = av.open(file_address(path), "w", format=name, container_options=_muxing(name, options.live, tick_s))
        self._video = _add_video(self._output, options, frame, first, tick_s)
        sound = None if options.live else frame.info.sound
        self._sound: Sound | None = open_sound(sound, self._output) if sound else None
        try:
            self._output.start_encoding()
            self.identity: Identity | None = identity(path)  # the file exists from here on
        except BaseException:
            if self._sound is not None:
                self._sound.close()
            raise

    def add(self, frame: Frame, picture: Picture) -> None:
        """Encode one picture and write the packets that are ready."""
        if frame.session != self._session and self._sound is not None:
            # A loop begins: only the first round has sound, until its last picture ends.
            self._sound.copy(self._timeline.end_s)
            self._sound.close()
            self._sound = None
        image = upright_frame(self._fitted(picture))
        image.time_base = self._timeline.tick_s
        image.pts = self._timeline.place(frame)
        if image.pts >= self._next_key:
            image.pict_type = PictureType.I
            self._next_key = image.pts + round(_KEY_EVERY_S / self._timeline.tick_s)
        for packet in self._video.encode(image):
            self._write(packet)

    def finish(self, complete: bool) -> None:
        """Write the frames in the encoder and the rest of the sound. The file is ended and closed even after an error."""
        try:
            self._flush(complete)
        finally:
            if self._sound is not None:
                self._sound.close()
            self._output.close()

    def _flush(self, complete: bool) -> None:
        packets = self._video.encode(None)
        if packets and packets[-1].dts is not None:
            # mp4 adds up the steps of dts. With B-frames dts is late: a file of variable rate would end early.
            end = round(self._timeline.end_s / self._timeline.tick_s)
            packets[-1].duration = end + (self._first_dts or 0) - packets[-1].dts
        for packet in packets:
            self._write(packet)
        if self._sound is not None:
            self._sound.copy(None if complete else self._timeline.end_s)

    def _write(self, packet: Packet[VideoStream]) -> None:
        if self._first_dts is None:
            self._first_dts = packet.dts
        if self._sound is not None and packet.dts is not None:
            self._sound.copy(packet.dts * packet.time_base)
        self._output.mux_one(packet)

    def _fitted(self, picture: Picture) -> Picture:
        if self._letterbox.fits(picture):
            return picture
        if not self._letterboxed:
            self._letterboxed = True
            width, height = picture.upright_size
            log.warning("%s: the picture changed to %dx%d and is fitted into the first size", self._path, width, height)
        return self._letterbox.fit(picture)


def _refuse_own_source(path: Path, source: str | None) -> None:
    """:raises ValueError: if the output is the source itself, which opening it would empty."""
    with suppress(FileNotFoundError):
        if source is not None and os.path.samefile(path, source):
            raise ValueError("it is the source itself; choose another output")


def _muxing(container: str, live: bool, tick_s: Fraction) -> dict[str, str]:
    """The muxer's options: the file survives SIGKILL and keeps its times, and no packet is held back.

    mp4 is written in fragments. The output of a file becomes a plain mp4 at its end, so that every player shows its length and
    seeks in it; the muxer keeps 0.1 kB a frame for that. The output of a camera stays in fragments. `delay_moov` keeps time 0
    in place with B-frames and with the priming of AAC. Its price: the first fragment waits for the first sound, so that SIGKILL
    before a late sound costs the whole file. (`empty_moov` would move the first packet of such a sound to time 0.)
    """
    # Sound is interleaved here already: pictures must not wait for a sound that pauses or ends (FFmpeg: 10 s).
    common = {"flush_packets": "1", "max_interleave_delta": "100000"}
    if container == "matroska":
        # A cluster is written when it is complete. At one frame a second it must not hold two frames. Blocks may have negative
        # times (priming): without this option all blocks, also the pictures, would be shifted.
        return {**common, "cluster_time_limit": "500", "avoid_negative_ts": "disabled"}
    if container == "mpegts":
        return common
    flags = "frag_keyframe+delay_moov" if live else "frag_keyframe+delay_moov+hybrid_fragmented"
    # The delay of a track that begins after 0 counts in the movie's own clock, 1 ms by default.
    return {**common, "movflags": flags, "movie_timescale": str(tick_s.denominator)}


def _add_video(output: OutputContainer, options: VideoOptions, frame: Frame, first: Picture, tick_s: Fraction) -> VideoStream:
    """The H.264 stream with the size and the tags of the first picture."""
    encoder = {
        "preset": options.preset,
        "crf": str(options.crf),
        "bf": str(options.bframes),
        # A lookahead would hold back frames, as threads do (their number follows from `_HELD_S`). Threads by slices would cost
        # quality.
        "rc-lookahead": "0",
        "x264-params": "sliced-threads=0:sync-lookahead=0",
        "forced-idr": "1",
    }
    video = output.add_stream("libx264", rate=frame.info.rate or DEFAULT_RATE, options=encoder)
    assert isinstance(video, VideoStream)
    context = video.codec_context
    context.width, context.height = first.upright_size
    context.pix_fmt = "yuv420p"
    context.sample_aspect_ratio = first.upright_aspect
    context.colorspace, context.color_range = COEFFICIENTS[first.matrix].code, color_range(first.full_range)
    context.time_base = video.time_base = tick_s
    context.thread_count = _threads(options, frame.info.rate)
    return video


def _threads(options: VideoOptions, rate: Fraction | None) -> int:
    """Threads of the encoder for this many frames per second; None: unknown."""
    return 1 if rate is None else min(options.threads, 1 + int(rate * _HELD_S))


def check_video_path(path: Path) -> None:
    """Check before any work that a video can be written to `path`. Creates and changes nothing.

    :raises UsageError: if it cannot.
    """
    if container_of(path.suffix) is None:
        what = f"the ending {path.suffix!r}" if path.suffix else "a name without ending"
        raise UsageError(f"cannot write video to {path}: {what} is not among {', '.join(SUFFIXES)}; choose one of them")
    if "libx264" not in av.codecs_available:
        raise UsageError(f"cannot write video to {path}: this FFmpeg has no libx264; install PyAV from PyPI")
    try:
        try_to_write(path, regular=True)
    except (OSError, ValueError) as error:
        advice = "give a file in a folder that exists and can be written"
        raise UsageError(f"cannot write video to {path}: {reason(error)}; {advice}") from error
