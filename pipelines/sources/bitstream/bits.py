"""Reading headers bit by bit, as H.264 (7.2, 9.1) and H.265 (7.2, 9.2) write them."""

from __future__ import annotations

LONGEST_CODE = 32


class Nonsense(ValueError):
    """The bits end too early, or say what no stream may say."""


def unescaped(nal: bytes) -> bytes:
    """A NAL unit without the octets that keep start codes out of it."""
    return nal.replace(b"\0\0\3", b"\0\0")


class Bits:
    """The bits of unescaped octets, from the first one on."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def u(self, count: int) -> int:
        """An unsigned number of so many bits.

        :raises Nonsense: if there are not so many left.
        """
        self._left -= count
        if self._left < 0:
            raise Nonsense
        return self._value >> self._left & (1 << count) - 1

    def ue(self, most: int = 1 << LONGEST_CODE) -> int:
        """An unsigned Exp-Golomb code.

        :raises Nonsense: if it is longer than it may be or stands for more than `most`.
        """
        rest = self._value & (1 << max(self._left, 0)) - 1
        zeros = self._left - rest.bit_length()
        self._left -= 2 * zeros + 1
        if zeros > LONGEST_CODE or self._left < 0:
            raise Nonsense
        value = (rest >> self._left) - 1
        if value > most:
            raise Nonsense
        return value

    def se(self) -> int:
        """A signed Exp-Golomb code."""
        return signed(self.ue())


def signed(code: int) -> int:
    """The signed number that an unsigned Exp-Golomb code stands for (H.264, 9.1.1)."""
    return (code + 1) // 2 if code % 2 else -(code // 2)
