#!/usr/bin/env python3
"""Makes sample.mp4 and expected.json: a short film of stills under a slow camera, with a shot of Big Buck Bunny.

    python samples/make_sample.py            (inputs and output beside this file; --help names the arguments)

The film is the constant FILM. Every still is shown whole, and the model's centre crop never leaves it, so that the
model gets the content of the reference; `Look.check` refuses a camera move that breaks this. The expected label of a
shot is its still's top-1 in the reference. expected.json is written before the first frame is drawn.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt
from av.video.frame import PictureType
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc, Interpolation, VideoReformatter

Image = npt.NDArray[np.float32]
Sound = npt.NDArray[np.float32]

FOLDER = Path(__file__).parent
WIDTH, HEIGHT, FPS, RATE = 1280, 720, 25, 48000
CROP = HEIGHT * 224 / 256
"""Side in pixels of the model's centre crop of a frame: 224 of 256, scaled to the height, which is the short side."""

EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP
"""The flags of the reference conversion to RGB; here they serve the conversion from RGB."""

CREDIT = (
    "Photos: OpenCV sample data (Debian's opencv-doc). Film: an excerpt of Big Buck Bunny, (c) copyright 2008, "
    "Blender Foundation, www.bigbuckbunny.org, CC BY 3.0, re-encoded, sound mixed. Music: made by make_sample.py."
)


@dataclass(frozen=True)
class Look:
    """The place of a still. size: its height as a share of the frame's; x, y: its centre, in pixels from the frame's centre."""

    size: float
    x: float = 0.0
    y: float = 0.0

    def check(self, aspect: float) -> None:
        """:raises ValueError: if a still of this width/height is not whole, or the model's crop is not all on it."""
        wide, high = self.size * HEIGHT * aspect, self.size * HEIGHT
        whole = high / 2 + abs(self.y) <= HEIGHT / 2 and wide / 2 + abs(self.x) <= WIDTH / 2
        covers = high / 2 - abs(self.y) >= CROP / 2 and wide / 2 - abs(self.x) >= CROP / 2
        if not (whole and covers):
            wrong = "does not cover the model's crop" if whole else "is cut off by the frame"
            raise ValueError(f"a still of {wide:.0f}x{high:.0f} pixels at {self} {wrong}")


@dataclass(frozen=True)
class Still:
    """A shot of one photo; the camera goes from `start` to `end` at a steady pace."""

    photo: str
    start: Look
    end: Look
    chord: tuple[int, ...]
    """MIDI notes of the sound under the shot."""
    frames: int = 100


@dataclass(frozen=True)
class Excerpt:
    """A shot of the other film, from its first frame, with its own sound over the chord."""

    chord: tuple[int, ...]
    frames: int = 120


Shot = Still | Excerpt

FILM: tuple[Shot, ...] = (
    Still("squirrel_cls.jpg", Look(0.90, 30), Look(1.0, -10), chord=(38, 57, 62, 66, 69, 76)),
    Still("orange.jpg", Look(0.99, -14), Look(0.89, 3), chord=(35, 54, 62, 66, 69, 74)),
    Still("home.jpg", Look(0.91, -8), Look(0.99, -80), chord=(43, 55, 62, 66, 71, 74)),
    Excerpt(chord=(40, 55, 59, 62, 67)),
    Still("fruits.jpg", Look(0.90, 8), Look(0.98, -50), chord=(45, 57, 62, 64, 69, 74)),
    Still("baboon.jpg", Look(0.89), Look(1.0), chord=(38, 57, 62, 66, 69, 76)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the sample clip and, before it, what is expected of its shots.")
    for name, default, text in (
        ("photos", "photos", "folder of the stills"),
        ("bunny", "bigbuckbunny.mp4", "the other film: 1280x720, 25 frames/s, with sound"),
        ("reference", "reference.json", "the model's top-5 of every still"),
        ("out", "sample.mp4", "the clip; expected.json goes beside it"),
    ):
        parser.add_argument(f"--{name}", type=Path, default=FOLDER / default, help=f"{text} (default: samples/{default})")
    args = parser.parse_args()
    expected = expect(FILM, json.loads(args.reference.read_text("utf-8")), args.out.name)
    args.out.with_name("expected.json").write_text(json.dumps(expected, indent=2) + "\n", "utf-8")
    write(args.out, pictures(FILM, args.photos, args.bunny), music(FILM, args.bunny), cuts=set(starts(FILM)))


def starts(film: tuple[Shot, ...]) -> list[int]:
    """The first frame of every shot."""
    return [sum(shot.frames for shot in film[:i]) for i in range(len(film))]


def expect(film: tuple[Shot, ...], reference: dict[str, list[dict]], clip: str) -> dict:
    """The content of expected.json: the shots with a label, then the shots without; `end_s` is exclusive."""
    expected: dict = {"clip": clip, "shots": [], "unlabelled": []}
    for first, shot in zip(starts(film), film, strict=True):
        end = first + shot.frames
        span = {"start_s": first / FPS, "end_s": end / FPS, "first_frame": first, "last_frame": end - 1}
        if isinstance(shot, Still):
            best = reference[shot.photo][0]
            expected["shots"].append(span | {"still": shot.photo, "id": best["id"], "name": best["name"]})
        else:
            expected["unlabelled"].append(span)
    return expected


# The picture


def pictures(film: tuple[Shot, ...], photos: Path, bunny: Path) -> Iterator[av.VideoFrame]:
    """Every frame of the film in yuv420p."""
    for shot in film:
        if isinstance(shot, Still):
            yield from still(shot, photos)
        else:
            yield from excerpt(bunny, shot.frames)


def still(shot: Still, photos: Path) -> Iterator[av.VideoFrame]:
    """The photo in front of a dark, blurred enlargement of itself, which moves at half the pace."""
    photo = read(photos / shot.photo)
    high, wide = photo.shape[:2]
    shot.start.check(wide / high)
    shot.end.check(wide / high)
    backdrop = blurred(photo)
    card = np.ones((high, wide), np.float32)
    to_yuv = VideoReformatter()
    for i in range(shot.frames):
        look = between(shot.start, shot.end, i / (shot.frames - 1))
        scale = look.size * HEIGHT / high
        grown = 1 + (look.size - 0.875) / 2
        back = lay(backdrop, grown, look.x / 2, look.y / 2, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE)
        front = lay(photo, scale, look.x, look.y, cv2.INTER_LANCZOS4, cv2.BORDER_REPLICATE)
        # A mask of its own keeps the card's edge smooth between pixels.
        mask = lay(card, scale, look.x, look.y, cv2.INTER_LINEAR, cv2.BORDER_CONSTANT)[..., None]
        shade = cv2.GaussianBlur(lay(card, scale, look.x, look.y + 6, cv2.INTER_LINEAR, cv2.BORDER_CONSTANT), None, 16)
        picture = mask * front + (1 - mask) * back * (1 - 0.6 * shade[..., None])
        frame = av.VideoFrame.from_ndarray(np.clip(np.rint(picture), 0, 255).astype(np.uint8), "rgb24")
        yield to_yuv.reformat(
            frame,
            format="yuv420p",
            dst_colorspace=Colorspace.ITU709,
            dst_color_range=ColorRange.MPEG,
            interpolation=EXACT,
        )


def excerpt(bunny: Path, frames: int) -> Iterator[av.VideoFrame]:
    """The film's own planes. The film names no matrix; HD without one is BT.709, which is also the tag of this clip."""
    with av.open(str(bunny)) as container:
        for i, frame in enumerate(container.decode(video=0)):
            if i == frames:
                return
            if (frame.width, frame.height, frame.format.name) != (WIDTH, HEIGHT, "yuv420p"):
                raise ValueError(f"{bunny}: {WIDTH}x{HEIGHT} yuv420p wanted, got {frame}")
            yield frame
    raise ValueError(f"{bunny}: {frames} frames wanted, got fewer")


def between(start: Look, end: Look, share: float) -> Look:
    """The look at a share (0-1) of the way. The size grows by a steady factor, as in a steady move of a camera."""
    return Look(
        start.size * (end.size / start.size) ** share,
        start.x + (end.x - start.x) * share,
        start.y + (end.y - start.y) * share,
    )


def lay(image: Image, scale: float, x: float, y: float, how: int, border: int) -> Image:
    """The image on an empty frame, its centre (x, y) off the frame's; any fraction of a pixel is kept."""
    high, wide = image.shape[:2]
    # Pixel centres lie at halves: hence the last term of each row.
    matrix = np.array(
        [
            [scale, 0, WIDTH / 2 + x - scale * wide / 2 + (scale - 1) / 2],
            [0, scale, HEIGHT / 2 + y - scale * high / 2 + (scale - 1) / 2],
        ]
    )
    return cv2.warpAffine(image, matrix, (WIDTH, HEIGHT), flags=how, borderMode=border)


def read(path: Path) -> Image:
    """(H, W, 3) float32 RGB, 0-255."""
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image is None:
        raise FileNotFoundError(f"{path}: no picture that OpenCV reads")
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB).astype(np.float32)


def blurred(photo: Image) -> Image:
    """The photo enlarged over the whole frame with room to move, blurred and darkened."""
    high, wide = photo.shape[:2]
    scale = 1.1 * max(WIDTH / wide, HEIGHT / high)
    large = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    return 0.5 * cv2.GaussianBlur(large, None, 40)


# The sound


def music(film: tuple[Shot, ...], bunny: Path) -> Sound:
    """(2, samples) float32: a chord that swells under each shot, in a soft room; the excerpt's own sound before it."""
    length = sum(shot.frames for shot in film) * RATE // FPS
    pad, voice = np.zeros((2, length), np.float32), np.zeros((2, length), np.float32)
    duck = np.ones(length, np.float32)
    for first, shot in zip(starts(film), film, strict=True):
        begin, end = first * RATE // FPS, (first + shot.frames) * RATE // FPS
        sound = chord(shot.chord, min(end - begin + RATE * 3 // 2, length - begin))
        pad[:, begin : begin + sound.shape[1]] += sound
        if isinstance(shot, Excerpt):
            voice[:, begin:end] = 2.0 * fade(own_sound(bunny, end - begin), 0.05, 0.25)
            duck[begin:end] = 0.25
    duck = np.convolve(np.pad(duck, RATE // 4, mode="edge"), np.full(RATE // 2, 2 / RATE, np.float32), "same")
    pad = fade(room(pad) * duck[RATE // 4 : RATE // 4 + length], 0.5, 2.0)
    return np.clip(0.045 * pad / np.sqrt(np.mean(pad**2)) + voice, -0.9, 0.9).astype(np.float32)


def chord(notes: tuple[int, ...], samples: int) -> Sound:
    """A swelling pad of a few partials, a little out of tune between left and right, and one struck note on the cut."""
    t = np.arange(samples) / RATE
    out = np.zeros((2, samples))
    for k, note in enumerate(notes):
        pitch = 440 * 2 ** ((note - 69) / 12)
        # The lowest note stays in tune: it would beat slowly from side to side.
        for side, detune in enumerate((1.0, 1.0) if k == 0 else (0.9988, 1.0012)):
            wave = sum(np.sin(2 * np.pi * h * pitch * detune * t + k) / h**2.2 for h in range(1, 6))
            out[side] += wave * (1 + 0.25 * np.sin(2 * np.pi * (0.17 + 0.05 * k) * t + k)) * (220 / pitch) ** 0.25
    out = fade(out.astype(np.float32), 0.9, 1.5)
    bell = 440 * 2 ** ((notes[-1] + 12 - 69) / 12)
    struck = (np.sin(2 * np.pi * bell * t) + 0.3 * np.sin(2 * np.pi * 2.0 * bell * t)) * np.exp(-t / 0.5)
    return out + 0.9 * fade(struck.astype(np.float32)[None], 0.008, 0.1)


def room(sound: Sound) -> Sound:
    """The sound with a decaying echo of two seconds, its own on each side."""
    rng = np.random.default_rng(1)
    t = np.arange(2 * RATE) / RATE
    echo = rng.standard_normal((2, t.size)) * np.exp(-t / 0.45)
    echo = np.stack([np.convolve(side, np.hanning(24), "same") for side in echo])
    echo /= np.sqrt(np.sum(echo**2, axis=1, keepdims=True))
    size = sound.shape[1] + t.size
    wet = np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(echo, size), size)[:, : sound.shape[1]]
    return (sound + 0.45 * wet).astype(np.float32)


def own_sound(bunny: Path, samples: int) -> Sound:
    """The first samples of the film's sound as stereo."""
    resampler = av.AudioResampler("fltp", "stereo", RATE)
    parts = []
    with av.open(str(bunny)) as container:
        for frame in container.decode(audio=0):
            parts += [out.to_ndarray() for out in resampler.resample(frame)]
    sound = np.concatenate(parts, axis=1)[:, :samples]
    return np.pad(sound, ((0, 0), (0, samples - sound.shape[1])))


def fade(sound: Sound, into_s: float, out_s: float) -> Sound:
    """The sound with a raised cosine at either end."""
    into, out = int(into_s * RATE), int(out_s * RATE)
    gain = np.ones(sound.shape[1], np.float32)
    gain[:into] *= 0.5 - 0.5 * np.cos(np.pi * np.arange(into) / into)
    gain[gain.size - out :] *= 0.5 + 0.5 * np.cos(np.pi * np.arange(out) / out)
    return sound * gain


# The file


def write(path: Path, frames: Iterator[av.VideoFrame], sound: Sound, *, cuts: set[int]) -> None:
    """Write H.264 High and AAC into an mp4 with its index at the start. cuts: the first frames of the shots."""
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        container.metadata.update({"title": "Watchline sample", "comment": CREDIT})
        video = container.add_stream("libx264", rate=FPS, options=H264)
        context = video.codec_context
        context.width, context.height, context.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        context.time_base = Fraction(1, FPS)
        context.colorspace, context.color_range = Colorspace.ITU709, ColorRange.MPEG
        context.color_primaries, context.color_trc = ColorPrimaries.BT709, ColorTrc.BT709
        audio = container.add_stream("aac", rate=RATE, layout="stereo")
        audio.bit_rate = 128_000
        step = RATE // FPS
        for i, frame in enumerate(frames):
            frame.pts, frame.time_base = i, Fraction(1, FPS)
            frame.colorspace, frame.color_range = Colorspace.ITU709, ColorRange.MPEG
            frame.pict_type = PictureType.I if i in cuts else PictureType.NONE
            container.mux(video.encode(frame))
            container.mux(audio.encode(heard(sound[:, i * step : (i + 1) * step], i * step)))
        container.mux(video.encode(None))
        container.mux(audio.encode(None))


H264 = {
    "profile": "high",
    "preset": "slow",
    "crf": "21",
    # A keyframe at every cut and at least every two seconds: the clip can be sought in, and joined in its middle.
    "g": "50",
    "forced-idr": "1",
    # Bits for the dark, smooth backdrops, which would show bands.
    "aq-mode": "3",
}


def heard(sound: Sound, first: int) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound), "fltp", "stereo")
    frame.sample_rate, frame.pts, frame.time_base = RATE, first, Fraction(1, RATE)
    return frame


if __name__ == "__main__":
    main()
