"""The images, and recordings, that a worker has seen: what stands for them in a prompt, and their
embeddings.

An image is known by the SHA-256 and the size of its file, and by its salt: nobody learns by the
time that an answer takes which images others have sent. Each part of it has a run of negative
numbers of its own for the life of the worker (runner.engine.images), which are told from the file
alone; embeddings are computed when a request needs them and kept while there is room, so that the
images of a conversation are encoded once. Knows neither templates nor the engine.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from runner.backends.backend import (
    BackendError,
    DecodedAudio,
    DecodedImage,
    ImagePart,
    ImageSlot,
    VisionEncoder,
)
from runner.errors import CapacityError, InternalError
from runner.types import GenerateRequest, Image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_IDLE_BYTES: Final = 256 << 20  # of embeddings that no request needs
MAX_BYTES: Final = 1 << 30  # of all embeddings
MAX_KNOWN: Final = 4096  # images whose numbers are kept: a few hundred bytes each
MAX_PREPARED: Final = 4  # images that are prepared and not encoded: some 10 MB each
MAX_NUMBER: Final = (1 << 31) - 1

Key = tuple[bytes, int, str | None]


@dataclass(frozen=True, slots=True)
class _Run:
    """A part of an image: first, first - 1, ... in the array of tokens."""

    first: int
    tokens: int

    def numbers(self) -> range:
        """All of them."""
        return range(self.first, self.first - self.tokens, -1)


Piece = list[int] | _Run


class ImageCache:
    """The images of one worker. read and encode are for one thread, tokens for any."""

    def __init__(
        self,
        vision: VisionEncoder,
        decoder: Callable[[bytes], DecodedImage],
        audio_decoder: Callable[[bytes], NDArray[np.int16]] | None = None,
    ) -> None:
        """vision: of the loaded model. decoder, audio_decoder: of files."""
        self._vision = vision
        self._decoder = decoder
        self._audio_decoder = audio_decoder
        self._lock = threading.Lock()  # of _known and _next
        self._known: OrderedDict[Key, list[Piece]] = OrderedDict()
        self._next = 1  # the number of the next run, less its sign
        self._slots: OrderedDict[Key, list[ImageSlot]] = OrderedDict()
        self._kept: OrderedDict[int, ImagePart] = OrderedDict()  # by the run's first number
        self._kept_bytes = 0
        self._alive: weakref.WeakValueDictionary[int, ImagePart] = weakref.WeakValueDictionary()

    def read(self, image: Image) -> None:
        """Know what stands for the image; it is decoded unless it was seen before. Raises
        InvalidRequest, Unsupported."""
        key = _key(image)
        if not self._pieces(key):
            self._read(key, image)

    def tokens(self, image: Image) -> list[int]:
        """What stands for the image in a prompt: tokens, and negative numbers for its parts.
        Raises as read does."""
        key = _key(image)
        pieces = self._pieces(key) or self._read(key, image)
        found: list[int] = []
        for piece in pieces:
            found += piece.numbers() if isinstance(piece, _Run) else piece
        return found

    def encode(self, image: Image) -> dict[int, ImagePart]:
        """The embeddings of the image's parts by the first of their numbers. Raises as read
        does, InternalError when they cannot be computed, and CapacityError when those of running
        requests take all the memory there may be."""
        key = _key(image)
        pieces = self._pieces(key) or self._read(key, image)
        runs = [piece for piece in pieces if isinstance(piece, _Run)]
        found = {run.first: part for run in runs if (part := self._alive.get(run.first))}
        for first in found.keys() & self._kept.keys():
            self._kept.move_to_end(first)
        missing = [at for at, run in enumerate(runs) if run.first not in found]
        if missing:
            slots = self._slots.pop(key, None) or self._prepare(image)[1]
            for at in missing:
                found[runs[at].first] = self._encode(runs[at], slots[at])
        return found

    def _pieces(self, key: Key) -> list[Piece] | None:
        with self._lock:
            pieces = self._known.get(key)
            if pieces is not None:
                self._known.move_to_end(key)
            return pieces

    def _read(self, key: Key, image: Image) -> list[Piece]:
        parts, slots = self._prepare(image)
        with self._lock:
            pieces = self._known.get(key) or [
                part if isinstance(part, list) else self._number(part.tokens) for part in parts
            ]
            self._known[key] = pieces
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            self._slots[key] = slots
            if len(self._slots) > MAX_PREPARED:
                self._slots.popitem(last=False)
        return pieces

    def _prepare(self, image: Image) -> tuple[list[list[int] | ImageSlot], list[ImageSlot]]:
        media: DecodedImage | DecodedAudio
        if image.kind == "audio" and self._audio_decoder is not None:
            media = DecodedAudio(self._audio_decoder(image.data))
        else:
            media = self._decoder(image.data)
        parts = self._vision.read(media)
        return parts, [part for part in parts if not isinstance(part, list)]

    def _number(self, tokens: int) -> _Run:
        """A run that no other has, and one number that none has after it."""
        first = self._next
        if first + tokens >= MAX_NUMBER:
            raise InternalError("this worker has processed too many images; unload the model")
        self._next = first + tokens + 1
        return _Run(-first, tokens)

    def _encode(self, run: _Run, slot: ImageSlot) -> ImagePart:
        alive = sum(part.vectors.nbytes for part in self._alive.values())
        if alive > MAX_BYTES:
            raise CapacityError(
                f"the images of running requests take {alive >> 20} MB; try again when some of "
                "them have finished"
            )
        try:
            part = self._vision.encode(slot)
        except BackendError as error:
            raise InternalError(f"an image or a recording could not be encoded: {error}") from error
        self._alive[run.first] = self._kept[run.first] = part
        self._kept_bytes += part.vectors.nbytes
        while self._kept_bytes > MAX_IDLE_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[1].vectors.nbytes
        return part


def images_of(request: GenerateRequest) -> list[Image]:
    """The images of the request's messages, in order. Those that everybody may know have no
    salt."""
    return [
        replace(image, salt=None if at < request.public_messages else request.cache_salt)
        for at, message in enumerate(request.messages or ())
        for image in message.images
    ]


def images_in(images: Sequence[Image], tokens: Sequence[int], cache: ImageCache) -> list[Image]:
    """Those of images that stand in tokens: not all, where turns were left out."""
    present = set(tokens)
    return [image for image in images if present.issuperset(cache.tokens(image))]


def _key(image: Image) -> Key:
    return hashlib.sha256(image.data).digest(), len(image.data), image.salt
