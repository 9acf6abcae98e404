"""Messages between a worker and the daemon's folder of saved prefixes, on sockets of their own:
each a length, a JSON object and so many bytes as its field size says, perhaps with an open file.

Knows nothing of what they mean.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from runner.worker.passed_files import receive_with_file, send_with_file

MAX_TEXT_BYTES = 1 << 20
MAX_PIECE_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class ChannelError(Exception):
    """What came is no message, or the other side is gone."""


def send(
    channel: socket.socket,
    message: Message,
    *data: bytes | memoryview,
    file: int | None = None,
) -> None:
    """Raises OSError."""
    text = json.dumps({**message, "size": sum(map(len, data))}).encode()
    head = _LENGTH.pack(len(text)) + text
    if file is None:
        channel.sendall(head)
    else:
        send_with_file(channel, head, file)
    for each in data:
        channel.sendall(each)


def receive(channel: socket.socket) -> tuple[Message, int | None] | None:
    """A message, whose content is to be received next, and the descriptor of the file that came
    with it; None: the other side has closed. Raises OSError, ChannelError."""
    head, file = receive_with_file(channel, _LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        head += content(channel, _LENGTH.size - len(head))
    (size,) = _LENGTH.unpack(head)
    if size > MAX_TEXT_BYTES:
        raise ChannelError(f"a message of {size} bytes")
    try:
        message = json.loads(content(channel, size))
    except (ValueError, RecursionError):
        raise ChannelError("a message that is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("size"), int):
        raise ChannelError("a message without a size")
    if message["size"] < 0:
        raise ChannelError("a message of a negative size")
    return message, file


def pieces(channel: socket.socket, size: int) -> Iterator[memoryview]:
    """The next size bytes, in pieces that are good until the next one. Raises OSError,
    ChannelError."""
    memory = memoryview(bytearray(min(size, MAX_PIECE_BYTES)))
    while size > 0:
        count = channel.recv_into(memory[:size] if size < len(memory) else memory)
        if count == 0:
            raise ChannelError("the other side is gone")
        size -= count
        yield memory[:count]


def content(channel: socket.socket, size: int) -> bytes:
    """The next size bytes. Raises OSError, ChannelError."""
    return b"".join(bytes(piece) for piece in pieces(channel, size))
