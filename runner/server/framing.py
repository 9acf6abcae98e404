"""Where a request ends, decided once and strictly, before uvicorn's parser sees a byte of it.

Its two parsers (h11, httptools) forgive different things and bound different things. What passes
here reads the same in both: a head of whole lines with one way to say how long the body is, and a
body of exactly that length. Chunks are joined, so that a body in one-byte chunks costs no more than
another. Source: RFC 9112, sections 2 to 7. Knows no connection and no route.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 256
MAX_BLANK_LINES = 4  # before the head: old clients send one after a body
MAX_CHUNK_LINE_BYTES = 256  # the size of a chunk, with its extensions
MAX_TRAILER_BYTES = 8 * 1024
MIN_CHUNK_BYTES = 128  # on average, of a body with more than MAX_AROUND_BYTES around its chunks
MAX_AROUND_BYTES = 4096
_AROUND_CHUNK_BYTES = 7  # of a chunk of about that size

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(%s) ([\x21\x22\x24-\x7e]+) HTTP/1\.([01])" % _TOKEN)
_FIELD = re.compile(rb"(%s):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*+)" % _TOKEN)
_ABSOLUTE = re.compile(rb"https?://([^/?]+)(.*)", re.IGNORECASE)
_STRAY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_UPGRADES = (b"upgrade", b"http2-settings")


class FramingError(Exception):
    """What the client sent is not a request, so nothing after it can be parsed either. status: the
    answer's."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class RequestFraming:
    """One request of a connection, from the bytes that come. head: its request line and fields,
    once it is whole."""

    def __init__(self) -> None:
        self.path = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self.done = False
        self._blank_lines = 0
        self._searched = 0  # bytes of an unfinished line or head without an end in them
        self._left: int | None = None  # of the body or the chunk; None: a line is next
        self._chunked = False
        self._around_bytes = self._content_bytes = 0  # the chunks, and in them
        self._trailer_bytes: int | None = None  # None: not in the trailers

    def take(self, buffer: bytearray) -> bytes:
        """Remove from buffer what belongs to this request: the bytes for the parser, of all that
        has become certain. Raises FramingError."""
        parts = []
        if not self.has_head:
            if not (head := self._take_head(buffer)):
                return b""
            parts.append(head)
        if self._chunked:
            parts.append(self._take_chunks(buffer))
        elif self._left:
            parts.append(bytes(buffer[: self._left]))
            del buffer[: self._left]
            self._left -= len(parts[-1])
        self.done = self.done or (not self._chunked and not self._left)
        return b"".join(parts)

    def _take_head(self, buffer: bytearray) -> bytes:
        while self._blank_lines < MAX_BLANK_LINES and buffer.startswith(b"\r\n"):
            del buffer[:2]
            self._blank_lines += 1
        if buffer == b"\r":  # perhaps another one
            return b""
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3), MAX_HEAD_BYTES)
        stop = len(buffer) if end < 0 else end
        if stray := _STRAY.search(buffer, max(0, self._searched - 1), stop):
            raise FramingError(f"the head has {stray.group()[:1]!r} where no header can have it")
        self._searched = len(buffer)
        if end < 0:
            if len(buffer) >= MAX_HEAD_BYTES:
                message = f"the head of the request is longer than {MAX_HEAD_BYTES // 1024} KiB"
                raise FramingError(message, 431)
            return b""
        head = bytes(buffer[: end + 4])
        del buffer[: end + 4]
        self._searched = 0
        return self._checked(head)

    def _checked(self, head: bytes) -> bytes:
        """The head, as the parser shall have it."""
        first, *lines = head[:-4].split(b"\r\n")
        found = _REQUEST_LINE.fullmatch(first)
        if found is None:
            raise FramingError(f"the request line is not HTTP/1.1: {first[:100]!r}")
        if len(lines) > MAX_FIELDS:
            raise FramingError(f"more than {MAX_FIELDS} headers", 431)
        method, target, minor = found.groups()
        fields = [_field(line) for line in lines]
        self.fields = [(name.lower(), value) for name, value in fields]
        self._set_length(minor == b"0")
        hosts = self._values(b"host")
        if len(hosts) > 1:
            raise FramingError("several Host headers")
        self.path = _origin_form(method, target, hosts)
        self.has_head = True
        if self.path != target or any(name in _UPGRADES for name, _ in self.fields):
            line = b"%s %s HTTP/1.%s" % (method, self.path, minor)
            return b"\r\n".join([line, *_without_upgrade(fields), b"", b""])
        return head

    def _set_length(self, is_old: bool) -> None:
        lengths, codings = self._values(b"content-length"), self._values(b"transfer-encoding")
        if codings:
            if lengths:
                raise FramingError("Content-Length and Transfer-Encoding in one request")
            if len(codings) > 1 or codings[0].lower() != b"chunked" or is_old:
                raise FramingError(f"Transfer-Encoding can be chunked only: {codings[0][:40]!r}")
            self._chunked = True
        elif lengths:
            if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
                raise FramingError(f"Content-Length is not one number: {lengths[0][:40]!r}")
            self._left = int(lengths[0])

    def _values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    def _take_chunks(self, buffer: bytearray) -> bytes:
        """The content of the chunks that have come, as one; with its end when that has come."""
        data, pieces, at, left = bytes(buffer), [], 0, self._left
        match = _CHUNK_LINE.fullmatch
        while self._trailer_bytes is None:
            if left is None:
                end = data.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES)
                if end < 0:
                    break
                line = match(data, at, end)
                if line is None:
                    raise FramingError(f"a chunk's size is not a number: {data[at:end][:40]!r}")
                left = int(line[1], 16)
                self._count(end - at + 4, left)
                at = end + 2
                if left == 0:
                    self._trailer_bytes = 0
                    break
            if left:
                pieces.append(data[at : at + left])
                at += len(pieces[-1])
                left -= len(pieces[-1])
            if left or len(data) < at + 2:
                break
            if data[at : at + 2] != b"\r\n":
                raise FramingError("a chunk is longer than its size says")
            left, at = None, at + 2
        self._left = left
        self._check_line(data, at)
        del buffer[:at]
        content = b"".join(pieces)
        out = b"%x\r\n%s\r\n" % (len(content), content) if content else b""
        return out + self._take_trailers(buffer)

    def _count(self, around_bytes: int, content_bytes: int) -> None:
        """Refuse a body that has more around its chunks than in them: each costs the event loop
        its time."""
        self._around_bytes += around_bytes
        self._content_bytes += content_bytes
        if self._around_bytes <= MAX_AROUND_BYTES:
            return
        if self._content_bytes * _AROUND_CHUNK_BYTES < self._around_bytes * MIN_CHUNK_BYTES:
            raise FramingError(
                f"the body comes in chunks of less than {MIN_CHUNK_BYTES} bytes on average: send it"
                " with Content-Length, or in larger ones"
            )

    def _check_line(self, data: bytes, at: int) -> None:
        """Refuse an unfinished line that will not become one."""
        if self._left is None and self._trailer_bytes is None:
            rest = data[at : at + MAX_CHUNK_LINE_BYTES]
            if len(rest) == MAX_CHUNK_LINE_BYTES or _STRAY.search(rest):
                raise FramingError("a chunk's size is not followed by its line's end")

    def _take_trailers(self, buffer: bytearray) -> bytes:
        """Drop the trailers; the end of the body for the parser when it has come."""
        while self._trailer_bytes is not None:
            end = buffer.find(b"\r\n")
            size_bytes = len(buffer) if end < 0 else end + 2
            if self._trailer_bytes + size_bytes > MAX_TRAILER_BYTES:
                raise FramingError(f"the trailers are longer than {MAX_TRAILER_BYTES // 1024} KiB")
            if end < 0:
                break
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            self._trailer_bytes += size_bytes
            if not line:
                self.done = True
                return b"0\r\n\r\n"
            _field(line)
        return b""


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise FramingError(f"not a header: {line[:60]!r}")
    return found[1], found[2].rstrip(b" \t")


def _origin_form(method: bytes, target: bytes, hosts: list[bytes]) -> bytes:
    """The target as a path and a query. A full URL must name the host that Host names."""
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return target
    found = _ABSOLUTE.fullmatch(target)
    if found is None or method == b"CONNECT":
        raise FramingError(f"the target is not a path: {target[:60]!r}")
    if [found[1].lower()] != [host.lower() for host in hosts]:
        raise FramingError("the target and the Host header name different hosts")
    return found[2] if found[2].startswith(b"/") else b"/" + found[2]


def _without_upgrade(fields: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """The fields as lines, without the offer to go on in another protocol: it is not taken, and
    httptools would read the body as that protocol."""
    kept = []
    for name, value in fields:
        if name.lower() == b"connection":
            options = [option.strip() for option in value.split(b",")]
            value = b", ".join(option for option in options if option.lower() not in _UPGRADES)
        if name.lower() not in _UPGRADES:
            kept.append(b"%s: %s" % (name, value))
    return kept
