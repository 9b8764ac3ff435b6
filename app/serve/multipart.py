"""The parts of a multipart body. Body and parts stay in memory: no file is written."""

from __future__ import annotations

from email.message import Message
from typing import Any

import python_multipart.multipart as multipart

from app.http.problems import Problem, too_large

BOUNDARY = 200
"""Longest multipart boundary that is accepted; RFC 2046 allows 70 characters."""


def parts(content_type: str, body: bytes, most: int) -> list[tuple[str | None, bytes]]:
    """File name (None without one) and data of each part.

    :raises Problem: if the body is malformed or has no part (400), or more than `most` parts (413).
    """
    parser = _Parts(most)
    try:
        multipart.MultipartParser(_boundary(content_type), parser.callbacks()).write(body)
    except multipart.MultipartParseError:
        raise Problem(400, "undecodable", "the multipart body is malformed") from None
    if not parser.ended:
        raise Problem(400, "undecodable", "the multipart body is cut off")
    if not parser.found:
        raise Problem(400, "empty", "the multipart body holds no picture")
    return parser.found


def _boundary(content_type: str) -> bytes:
    message = Message()
    message["Content-Type"] = content_type
    boundary = message.get_param("boundary")
    if not isinstance(boundary, str) or not 0 < len(boundary) <= BOUNDARY or not boundary.isascii():
        raise Problem(400, "undecodable", "Content-Type multipart/form-data needs a boundary")
    return boundary.encode()


class _Parts:
    """Collects the parts: the parser calls its methods."""

    def __init__(self, most: int) -> None:
        self.found: list[tuple[str | None, bytes]] = []
        self.ended = False
        self._most = most
        self._data: list[bytes] = []
        self._name = self._value = b""
        self._disposition = ""

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._on_part_begin,
            "on_part_data": self._on_part_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
        }

    def _on_part_begin(self) -> None:
        if len(self.found) == self._most:
            raise too_large(f"a request holds at most {self._most} pictures")
        self._data, self._name, self._value, self._disposition = [], b"", b"", ""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value.decode("utf-8", "replace")
        self._name = self._value = b""

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data.append(data[start:end])

    def _on_part_end(self) -> None:
        message = Message()
        message["Content-Disposition"] = self._disposition
        self.found.append((message.get_filename(), b"".join(self._data)))

    def _on_end(self) -> None:
        self.ended = True
