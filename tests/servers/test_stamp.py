"""A stamp is read as it was drawn, or not at all."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from tests.clips import Planes, write
from tests.servers.stamp import ALL, CELL, HEIGHT, read_stamp, stamp_rows, strip_of, top

SIZE = (640, 368)
NUMBERS = [0, 1, 2, 1234567, 2**31, ALL - 1, ALL, 0x55555555, 0xAAAAAAAA]


def picture(number: int) -> npt.NDArray[np.uint8]:
    """A luma plane of noise with a stamp."""
    width, height = SIZE
    luma = np.random.default_rng(number).integers(16, 236, (height, width), np.uint8)
    luma[top(height) : top(height) + HEIGHT] = np.frombuffer(stamp_rows(number, width), np.uint8).reshape(HEIGHT, width)
    return luma


def planes(number: int) -> Planes:
    chroma = np.full((SIZE[1] // 2, SIZE[0] // 2), 128, np.uint8)
    return picture(number), chroma, chroma


@pytest.mark.timeout(20)
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_survives_a_poor_encoder(tmp_path: Path, codec: str) -> None:
    path = write(
        tmp_path / "stamps.mkv",
        map(planes, NUMBERS),
        size=SIZE,
        codec=codec,
        options={"crf": "40", "preset": "ultrafast"} | ({"x265-params": "log-level=none"} if codec == "libx265" else {}),
    )
    with av.open(str(path)) as container:
        found = [read_stamp(strip_of(frame.to_ndarray()[: frame.height])) for frame in container.decode(video=0)]
    assert found == NUMBERS


@pytest.mark.parametrize("bit", [0, 7, 31])
@pytest.mark.parametrize("row", [0, 1])
def test_a_damaged_stamp_is_none(bit: int, row: int) -> None:
    luma = picture(1234567)
    strip = strip_of(luma)
    cell = strip[row * CELL : (row + 1) * CELL, bit * CELL : (bit + 1) * CELL]
    cell[:] = 255 - cell
    assert read_stamp(strip) is None


def test_no_stamp_is_none() -> None:
    """Grey, noise, a picture that is too small for one."""
    assert read_stamp(np.full((HEIGHT, 512), 128, np.uint8)) is None
    assert read_stamp(strip_of(np.random.default_rng(0).integers(16, 236, (368, 640), np.uint8))) is None
    assert read_stamp(strip_of(np.zeros((64, 64), np.uint8))) is None
