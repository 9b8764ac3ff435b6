"""A time burnt into a picture, which survives encoder, network and decoder: how old a picture is can be read from itself.

The stamp is a number of 32 bits, twice: as it is, and below it with every bit turned round. Each bit is a cell of CELL x CELL
samples of luma, white for 1, black for 0, the lowest bit on the left. It stands at the left edge from half the picture's height
down, where an overlay has no business.

Drawing needs nothing but Python: the camera runs in the system's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CELL = 16
BITS = 32
WIDTH, HEIGHT = BITS * CELL, 2 * CELL
"""Samples that a stamp takes up."""
ALL = 2**BITS - 1
WHITE, BLACK, GREY = b"\xeb", b"\x10", b"\x80"
MIDDLE = 126
"""Halfway between black and white."""


def top(height: int) -> int:
    """The first of the stamp's rows in a picture of this height: it begins where a macroblock does."""
    return height // 2 // CELL * CELL


def stamp_rows(number: int, width: int) -> bytes:
    """HEIGHT rows of luma, grey to the right of the stamp."""
    rest = GREY * (width - WIDTH)
    words = (number & ALL, ~number & ALL)
    lines = (b"".join((WHITE if word >> k & 1 else BLACK) * CELL for k in range(BITS)) for word in words)
    return b"".join((line + rest) * CELL for line in lines)


def strip_of(luma: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The stamp's place in a luma plane (H, W), as a view."""
    first = top(len(luma))
    return luma[first : first + HEIGHT, :WIDTH]


def read_stamp(strip: npt.NDArray[np.uint8]) -> int | None:
    """The number in a `strip_of` a picture; None if the two do not fit each other: there is no stamp, or a damaged one."""
    import numpy as np

    if strip.shape != (HEIGHT, WIDTH):
        return None
    edge = CELL // 4
    cells = strip.reshape(2, CELL, BITS, CELL)[:, edge:-edge, :, edge:-edge].mean((1, 3))
    number, turned = ((cells > MIDDLE) << np.arange(BITS, dtype=np.uint64)).sum(1).tolist()
    return number if number ^ turned == ALL else None
