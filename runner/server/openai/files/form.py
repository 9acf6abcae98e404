"""multipart/form-data with one file, read as it arrives (RFC 7578).

Knows nothing of HTTP or of where the file goes. Small fields are kept, the file is handed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from runner.errors import InvalidRequest

MAX_PARTS = 32
MAX_TYPE_CHARS = 1024  # of the content type: reading 60,000 takes 70 ms
MAX_FIELD_BYTES = 64 * 1024  # of all fields but the file


class FormReader:
    """Reads one form. items, its small fields, and filename are what has come so far; filename
    None: no file has begun."""

    def __init__(
        self, content_type: str, sink: Callable[[bytes], None], field: str = "file"
    ) -> None:
        """sink takes the file's bytes, which come in the field of that name. Raises InvalidRequest
        when content_type is not a form's, or too
        long."""
        self.items: list[tuple[str, str]] = []
        self.filename: str | None = None
        self._sink = sink
        self._field = field
        self._whole = False
        self._field_bytes = 0
        self._parts = 0
        self._header = (bytearray(), bytearray())
        self._disposition = ""
        self._name = ""
        self._is_file = False
        self._value = bytearray()
        if len(content_type) > MAX_TYPE_CHARS:
            raise InvalidRequest(
                f"the content type has {len(content_type)} characters; at most {MAX_TYPE_CHARS}"
            )
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise InvalidRequest(f"send the file as multipart/form-data in a field named {field}")
        with _refusals():
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": lambda data, at, end: self._add_header(0, data[at:end]),
                    "on_header_value": lambda data, at, end: self._add_header(1, data[at:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": lambda data, at, end: self._add(data[at:end]),
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )

    def feed(self, data: bytes) -> None:
        """Read on. Raises InvalidRequest, and what sink raises."""
        with _refusals():
            self._parser.write(data)

    def finish(self) -> None:
        """There is no more. Raises InvalidRequest when there should be."""
        if not self._whole:
            raise InvalidRequest("the form data ends before its last boundary")
        if self.filename is None:
            raise InvalidRequest("the form data contains no file", param=self._field)

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidRequest(f"the form has more than {MAX_PARTS} parts")
        self._disposition, self._name, self._is_file = "", "", False
        self._value.clear()

    def _add_header(self, which: int, data: bytes) -> None:
        self._header[which].extend(data)

    def _end_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = value.decode("latin-1")
        name.clear()
        value.clear()

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if self._name != self._field:
            return
        if self.filename is not None:
            raise InvalidRequest("the form data contains more than one file", param=self._field)
        self._is_file = True
        self.filename = _filename(options.get(b"filename", b""))

    def _add(self, data: bytes) -> None:
        if self._is_file:
            self._sink(data)
            return
        self._field_bytes += len(data)
        if self._field_bytes > MAX_FIELD_BYTES:
            raise InvalidRequest(
                f"the fields of the form data are longer than {MAX_FIELD_BYTES} bytes"
            )
        self._value.extend(data)

    def _end_part(self) -> None:
        if not self._is_file and self._name:
            self.items.append((self._name, self._value.decode("utf-8", "replace")))

    def _end(self) -> None:
        self._whole = True


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except FormParserError as error:
        raise InvalidRequest(f"the form data is invalid: {error}") from None


def _filename(given: bytes) -> str:
    """The name without folders and control characters; names are told, never used as paths."""
    text = given.decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    return "".join(char for char in text if char.isprintable())[:255] or "file"
