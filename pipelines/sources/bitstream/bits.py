"""Reads the bit fields and Exp-Golomb codes of H.264 (7.2, 9.1) and H.265 (7.2, 9.2) headers."""

from __future__ import annotations

LONGEST_CODE = 32


class InvalidBits(ValueError):
    """The bits end too early, or have a value that the standard forbids."""


def unescaped(nal: bytes) -> bytes:
    """A NAL unit without its emulation prevention bytes, which keep start codes out of it."""
    return nal.replace(b"\0\0\3", b"\0\0")


class Bits:
    """A reader of the bits of `data`, from the first one on.

    :param data: unescaped bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def u(self, count: int) -> int:
        """Read an unsigned number of `count` bits.

        :raises InvalidBits: if fewer bits are left.
        """
        self._left -= count
        if self._left < 0:
            raise InvalidBits
        return self._value >> self._left & (1 << count) - 1

    def ue(self, most: int = 1 << LONGEST_CODE) -> int:
        """Read an unsigned Exp-Golomb code.

        :raises InvalidBits: if the code is too long or its value is above `most`.
        """
        rest = self._value & (1 << max(self._left, 0)) - 1
        zeros = self._left - rest.bit_length()
        self._left -= 2 * zeros + 1
        if zeros > LONGEST_CODE or self._left < 0:
            raise InvalidBits
        value = (rest >> self._left) - 1
        if value > most:
            raise InvalidBits
        return value

    def se(self) -> int:
        """Read a signed Exp-Golomb code."""
        return signed(self.ue())


def signed(code: int) -> int:
    """The signed value of an unsigned Exp-Golomb code (H.264, 9.1.1)."""
    return (code + 1) // 2 if code % 2 else -(code // 2)
