"""Bodies in many small chunks, whose framing costs more than what they hold: a parser in Python
takes some 10 us for a chunk, on the event loop, whatever its size.

Owns this on top of the connections' protocol; knows nothing of what a body holds.
"""

from __future__ import annotations

from typing import Final

from runner.server.connections import BoundedProtocol

MIN_CHUNK_BYTES: Final = 128  # on average, of a body with more than MAX_FRAMING_BYTES around them
MAX_FRAMING_BYTES: Final = 4096
_FRAMING_BYTES: Final = 7  # of a chunk of about that size
_PIECE_BYTES: Final = 4096

_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n\r\n"
    b"the body comes in chunks of less than %d bytes on average: send it with Content-Length, or in"
    b" larger ones\n" % MIN_CHUNK_BYTES
)


class ChunkBounds(BoundedProtocol):
    """The protocol of connections, which ends one whose chunks are too small."""

    _measured: object = None  # the request whose bytes these are
    _framing_bytes = 0
    _content_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Parse data, in pieces where it is the body of a request."""
        if len(data) <= _PIECE_BYTES and not self._in_chunks():
            super().data_received(data)
            return
        for start in range(0, len(data), _PIECE_BYTES):
            self._take(data[start : start + _PIECE_BYTES])
            if self._too_small():
                self._end()
                return

    def _in_chunks(self) -> bool:
        """A body in chunks is on its way."""
        cycle = self.cycle
        return (
            cycle is not None
            and cycle.more_body
            and any(name == b"transfer-encoding" for name, _ in cycle.scope["headers"])
        )

    def _take(self, piece: bytes) -> None:
        if not self._in_chunks():
            super().data_received(piece)
            return
        cycle = self.cycle
        if cycle is not self._measured:
            self._measured, self._framing_bytes, self._content_bytes = cycle, 0, 0
        before, dropped = len(cycle.body), cycle.response_complete
        super().data_received(piece)
        framing = len(piece) - (len(cycle.body) - before)
        if dropped:  # nobody reads what comes after the answer: each chunk has two ends of lines
            framing = piece.count(b"\r\n") * _FRAMING_BYTES // 2
        self._framing_bytes += framing
        self._content_bytes += len(piece) - framing

    def _too_small(self) -> bool:
        framing, content = self._framing_bytes, self._content_bytes
        return framing > MAX_FRAMING_BYTES and content * _FRAMING_BYTES < framing * MIN_CHUNK_BYTES

    def _end(self) -> None:
        if not self.transport.is_closing() and not self.cycle.response_started:
            self.transport.write(_REFUSAL)
        self.cycle.disconnected = True
        self.transport.close()
