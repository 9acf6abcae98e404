"""Images that a chat names as file://NAME, only below HEARTH_MEDIA_PATH, like --media-path of
llama-server. Anyone who may chat can read all of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path

from runner.errors import InvalidRequest
from runner.library.files import read_small
from runner.server.images import MAX_IMAGES_BYTES
from runner.server.openai.message_wire import OpenAIChatMessage, OpenAIImageUrl

_SCHEME = "file://"


async def read_local_images(messages: Sequence[OpenAIChatMessage], folder: Path | None) -> None:
    """Put the bytes of pictures in the place of their names. Without a folder nothing is read.
    Raises InvalidRequest."""
    if folder is None:
        return
    left = MAX_IMAGES_BYTES
    for index, message in enumerate(messages):
        for at, part in enumerate(message.content if isinstance(message.content, list) else ()):
            given = part.image_url
            url = given.url if isinstance(given, OpenAIImageUrl) else given
            if url is not None and url.startswith(_SCHEME):
                where = f"messages.{index}.content.{at}.image_url"
                part.image_url, size = await asyncio.to_thread(_read, folder, url, where, left)
                left -= size


def _read(folder: Path, url: str, where: str, max_bytes: int) -> tuple[str, int]:
    """The file as a data: URL, and its bytes. What is elsewhere is told as what is not there."""
    root = folder.resolve()
    try:
        path = (root / url.removeprefix(_SCHEME).lstrip("/")).resolve()
        data = read_small(path, max_bytes) if path.is_relative_to(root) else None
    except (OSError, ValueError):
        data = None
    if data is None:
        raise InvalidRequest(f"{where}: no such file: {url[:80]!r}", param=where)
    if len(data) > max_bytes:
        raise InvalidRequest(
            f"{where}: the images have more than {MAX_IMAGES_BYTES >> 20} MiB in total", param=where
        )
    return f"data:;base64,{base64.b64encode(data).decode()}", len(data)
