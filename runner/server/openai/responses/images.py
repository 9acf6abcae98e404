"""Images in items of the Responses API: parts of type input_image, in a data: URL or a stored file.

A stored file's bytes are put into the item, so that the conversation keeps the picture when the
file goes.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from typing import Any

from runner.errors import InvalidRequest
from runner.server.caller import current_caller
from runner.server.images import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MAX_IMAGES_BYTES,
    image_of_bytes,
    image_of_url,
)
from runner.server.openai.files.file_store import FileStore
from runner.server.openai.responses.image_store import TYPE
from runner.server.openai.responses.wire import ResponsePart
from runner.types import Image


def image_of(part: ResponsePart, where: str) -> Image:
    """The picture of a part. Raises InvalidRequest, Unsupported."""
    if part.image_url is None:
        raise InvalidRequest(f"{where}: an input_image requires image_url or file_id", param=where)
    return image_of_url(part.image_url, f"{where}.image_url")


async def with_files(items: list[dict[str, Any]], files: FileStore) -> list[dict[str, Any]]:
    """items, with the bytes of the stored files that their images name. Raises InvalidRequest,
    StorageFailed."""
    named = list(_naming_files(items))
    if len(named) > MAX_IMAGES:
        raise InvalidRequest(
            f"{len(named)} images; the maximum per request is {MAX_IMAGES}", param="input"
        )
    left = MAX_IMAGES_BYTES
    for where, part in named:
        data = await asyncio.to_thread(_read, files, part["file_id"], where)
        left -= len(data)
        if left < 0:
            raise InvalidRequest(
                f"the images have more than {MAX_IMAGES_BYTES >> 20} MiB in total", param="input"
            )
        image_of_bytes(data, where)
        part["image_url"] = f"data:;base64,{base64.b64encode(data).decode()}"
    return items


def _naming_files(items: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, item in enumerate(items):
        for name in ("content", "output"):
            parts = item.get(name)
            for at, part in enumerate(parts if isinstance(parts, list) else ()):
                if part.get("type") == TYPE and part.get("file_id") and not part.get("image_url"):
                    yield f"input.{index}.{name}.{at}.file_id", part


def _read(files: FileStore, ident: str, where: str) -> bytes:
    file = files.find(ident, current_caller().sees)
    if file is None:
        raise InvalidRequest(f"{where}: no such file: {ident[:80]!r}", param=where)
    try:
        with files.path_of(file.id).open("rb") as stream:
            return stream.read(MAX_IMAGE_BYTES + 1)
    except FileNotFoundError:
        raise InvalidRequest(
            f"{where}: the file {ident[:80]!r} has been deleted", param=where
        ) from None
