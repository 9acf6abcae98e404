"""Images in requests: their bytes from what clients send, and their places in a conversation.

Owns the bounds and what is refused before a worker sees it. Knows no wire format, and decodes no
picture: only its first bytes are looked at.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from runner.errors import InvalidRequest, Unsupported
from runner.library.library import Library
from runner.models.vision import media_unsupported
from runner.types import IMAGE_PLACEHOLDER, Image, Message

MAX_IMAGE_BYTES: Final = 20 << 20
MAX_AUDIO_BYTES: Final = 25 << 20
MAX_IMAGES_BYTES: Final = 40 << 20  # of a request
MAX_IMAGES: Final = 64
_STEP_CHARS: Final = 1 << 19
MAX_COPIED_BYTES: Final = 160 << 20  # each of n answers brings them to the worker once

_WAYS: Final = "send it as data:image/png;base64,... (PNG, JPEG, WebP, GIF or BMP)"
_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
)
_MEDIA_TYPES: Final = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/jpg": "JPEG",
    "image/pjpeg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WebP",
    "image/bmp": "BMP",
    "image/x-bmp": "BMP",
    "image/x-ms-bmp": "BMP",
}
_SAYS_NOTHING: Final = ("", "application/octet-stream", "image/*")


def image_of_bytes(data: bytes, where: str, media_type: str = "") -> Image:
    """A picture, its size and its first bytes checked. media_type: what the client says that it
    is. Raises InvalidRequest naming the place."""
    if len(data) > MAX_IMAGE_BYTES:
        raise _too_large(where, len(data))
    found = _kind(data)
    if found is None:
        raise InvalidRequest(
            f"{where}: the data is not PNG, JPEG, WebP, GIF or BMP: it begins with {data[:8]!r}",
            param=where,
        )
    said = media_type.strip().lower()
    if said not in _SAYS_NOTHING and _MEDIA_TYPES.get(said) != found:
        raise InvalidRequest(
            f"{where}: the data is a {found}, but its media type is {media_type[:60]!r}",
            param=where,
        )
    return Image(data)


def audio_of_bytes(data: bytes, where: str) -> Image:
    """A recording, its size and its first bytes checked. Raises InvalidRequest."""
    if len(data) > MAX_AUDIO_BYTES:
        raise _too_large(where, len(data), "recording", MAX_AUDIO_BYTES)
    if not _is_audio(data):
        raise InvalidRequest(
            f"{where}: the data is not WAV, MP3, FLAC or Ogg: it begins with {data[:8]!r}",
            param=where,
        )
    return Image(data, kind="audio")


def _media_of_base64(text: str, where: str) -> Image:
    data = bytes_of_base64(text, where)
    return audio_of_bytes(data, where) if _is_audio(data) else image_of_bytes(data, where)


def image_of_base64(text: str, where: str, media_type: str = "") -> Image:
    """A picture in base64, in which line breaks are allowed. Raises InvalidRequest."""
    return image_of_bytes(bytes_of_base64(text, where), where, media_type)


def bytes_of_base64(text: str, where: str) -> bytes:
    """What base64 stands for; line breaks are allowed. Raises InvalidRequest naming the place."""
    if len(text) > 2 * MAX_AUDIO_BYTES:
        raise _too_large(where, len(text) * 3 // 4, "recording", MAX_AUDIO_BYTES)
    try:
        return _decoded(text)
    except ValueError as error:
        reason = str(error).lower()
        raise InvalidRequest(f"{where} is not base64: {reason}", param=where) from None


def image_of_url(url: str, where: str) -> Image:
    """The picture that a data: URL is. Raises InvalidRequest, Unsupported for one that would have
    to be fetched."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.strip().lower() != "data":
        if scheme.lower() in ("http", "https"):
            raise Unsupported(
                f"{where}: images are not fetched from the network ({url[:60]!r}); {_WAYS}",
                param=where,
            )
        raise InvalidRequest(f"{where} is {url[:60]!r}, not a data: URL; {_WAYS}", param=where)
    head, comma, content = rest.partition(",")
    media_type, *options = (option.strip().lower() for option in head[:200].split(";"))
    if not comma or "base64" not in options:
        raise InvalidRequest(f"{where} is a data: URL without base64; {_WAYS}", param=where)
    return image_of_base64(content, where, media_type)


def images_of(given: Sequence[str], where: str) -> list[Image]:
    """Pictures and recordings in base64. Raises InvalidRequest, Unsupported."""
    return [
        # Web pages often give what the browser gives them, a data: URL.
        image_of_url(text, f"{where}.{index}")
        if text.startswith("data:")
        else _media_of_base64(text, f"{where}.{index}")
        for index, text in enumerate(given)
    ]


def without_placeholders(text: str) -> str:
    """A text without the placeholder of images, which clients must not send. A space takes its
    place, so that what was around it makes no new one."""
    return text.replace(IMAGE_PLACEHOLDER, " ") if IMAGE_PLACEHOLDER in text else text


def join_parts(parts: Iterable[str | Image]) -> tuple[str, tuple[Image, ...]]:
    """Texts and pictures as the content of a message and its images. Texts beside each other are
    joined by a line break."""
    content: list[str] = []
    images: list[Image] = []
    after_text = False
    for part in parts:
        if isinstance(part, Image):
            images.append(part)
            content.append(IMAGE_PLACEHOLDER)
        else:
            content.append(
                f"\n{without_placeholders(part)}" if after_text else without_placeholders(part)
            )
        after_text = not isinstance(part, Image)
    return "".join(content), tuple(images)


def check_images(messages: Sequence[Message], answers: int = 1) -> bool:
    """Whether there are any. Raises InvalidRequest for more than a request may have."""
    sizes = [len(image.data) for message in messages for image in message.images]
    if len(sizes) > MAX_IMAGES:
        raise _too_much(f"{len(sizes)} images; the maximum per request is {MAX_IMAGES}")
    total = sum(sizes)
    if total > MAX_IMAGES_BYTES:
        raise _too_much(
            f"the images have {_mib(total)} in total; the maximum is {_mib(MAX_IMAGES_BYTES)}"
        )
    if total * answers > MAX_COPIED_BYTES:
        raise _too_much(f"{answers} answers to {_mib(total)} of images: ask for fewer at a time")
    return bool(sizes)


async def require_vision(
    library: Library,
    model: str,
    messages: Sequence[Message],
    options: Mapping[str, Any],
    answers: int = 1,
) -> None:
    """Nothing where there are no images. Else raises InvalidRequest when they are too many, or the
    model cannot read them; and what finding and reading it raises."""
    if not check_images(messages, answers):
        return
    bundle = await asyncio.to_thread(library.read, library.find(model))
    for kind in {image.kind: None for message in messages for image in message.images}:
        fault = media_unsupported(bundle, kind, options.get("backend"), options.get("quantize"))
        if fault is not None:
            raise InvalidRequest(fault, param="messages")


def _decoded(text: str) -> bytes:
    """The bytes of base64, in steps of about 1 ms. Raises ValueError."""
    parts, rest = [], ""
    for start in range(0, len(text), _STEP_CHARS):
        piece = rest + "".join(text[start : start + _STEP_CHARS].split())
        last = start + _STEP_CHARS >= len(text)
        end = len(piece) if last else len(piece) - len(piece) % 4
        if not last and piece.endswith("=", 0, end):
            raise ValueError("Excess data after padding")
        parts.append(binascii.a2b_base64(piece[:end], strict_mode=True))
        rest = piece[end:]
    return b"".join(parts)


def _kind(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return next((name for start, name in _STARTS if data.startswith(start)), None)


def _is_audio(data: bytes) -> bool:
    mp3 = data[:1] == b"\xff" and data[1:2] >= b"\xe0"
    wav = data[:4] == b"RIFF" and data[8:12] == b"WAVE"
    return wav or mp3 or data.startswith((b"ID3", b"fLaC", b"OggS"))


def _too_large(
    where: str, size_bytes: int, what: str = "image", max_bytes: int = MAX_IMAGE_BYTES
) -> InvalidRequest:
    return InvalidRequest(
        f"{where}: the {what} has {size_bytes} bytes, at most {_mib(max_bytes)} are allowed",
        param=where,
    )


def _too_much(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="messages")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.1f} MiB".replace(".0 ", " ")
