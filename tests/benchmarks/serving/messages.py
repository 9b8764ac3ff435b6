"""Whole HTTP requests, prepared before anything is measured: real pictures as JPEG, in the shape that each service takes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import av
import cv2

QUALITY = 90
VGA, SMALL = (640, 480), (320, 240)
MIXED = (VGA, SMALL, (480, 640), (800, 600), (1280, 720))


def jpegs(clip: Path, count: int, sizes: Sequence[tuple[int, int]] = (VGA,)) -> list[bytes]:
    """So many pictures of a clip, of the sizes in turn (width, height)."""
    return [_jpeg(bgr, sizes[k % len(sizes)]) for k, bgr in enumerate(islice(_frames(clip), count))]


def _frames(clip: Path) -> Iterator[cv2.typing.MatLike]:
    with av.open(str(clip)) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="bgr24")


def _jpeg(bgr: cv2.typing.MatLike, size: tuple[int, int]) -> bytes:
    scaled = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", scaled, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()


def raw(path: str, headers: Mapping[str, str] | None = None) -> Callable[[bytes], bytes]:
    """A picture as the body."""
    return lambda jpeg: _post(path, {"Content-Type": "image/jpeg", **(headers or {})}, jpeg)


def in_json(path: str) -> Callable[[bytes], bytes]:
    """A picture as base64 in JSON."""
    return lambda jpeg: _post(
        path, {"Content-Type": "application/json"}, json.dumps({"image": base64.b64encode(jpeg).decode()}).encode()
    )


def _post(path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def write(folder: Path, messages: Sequence[bytes]) -> str:
    """Write one file for each message; returns the folder, for a plan."""
    folder.mkdir(parents=True)
    for k, message in enumerate(messages):
        (folder / f"{k:05}").write_bytes(message)
    return str(folder)
