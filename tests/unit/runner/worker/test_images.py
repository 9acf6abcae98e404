from __future__ import annotations

import gc

import numpy as np
import pytest

from runner.backends.backend import BackendError, DecodedImage, ImagePart, ImageSlot
from runner.errors import CapacityError, InternalError
from runner.types import GenerateRequest, Image, Message
from runner.worker import images as module
from runner.worker.images import ImageCache, images_in, images_of
from tests.fake_backend import FakeSlot

SMALL, LARGE, SLICED = Image(b"small"), Image(b"large one"), Image(b"sliced")


class Vision:
    """A picture has as many tokens as its file has bytes; a sliced one has two parts."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.encoded: list[int] = []
        self.faulty = False

    def read(self, picture: DecodedImage) -> list[list[int] | ImageSlot]:
        self.reads.append(picture.width)
        if picture.rgb == SLICED.data:
            return [[7], FakeSlot(2), [8, 9], FakeSlot(3)]
        return [FakeSlot(picture.width)]

    def encode(self, slot: ImageSlot) -> ImagePart:
        if self.faulty:
            raise BackendError("it is broken")
        self.encoded.append(slot.tokens)
        return ImagePart(np.zeros((slot.tokens, 4), np.float32), slot.tokens)


@pytest.fixture
def vision() -> Vision:
    return Vision()


@pytest.fixture
def library(vision: Vision) -> ImageCache:
    return ImageCache(vision, lambda data: DecodedImage(len(data), 1, data))


def test_a_picture_has_numbers_of_its_own_and_keeps_them(library: ImageCache) -> None:
    small, large = library.tokens(SMALL), library.tokens(LARGE)
    assert small == [-1, -2, -3, -4, -5]
    assert large == list(range(-7, -16, -1)), "one number lies between"
    assert library.tokens(Image(bytes(SMALL.data))) == small


def test_parts_stand_among_the_tokens_around_them(library: ImageCache) -> None:
    assert library.tokens(SLICED) == [7, -1, -2, 8, 9, -4, -5, -6]
    parts = library.encode(SLICED)
    assert {first: part.tokens for first, part in parts.items()} == {-1: 2, -4: 3}


def test_a_picture_is_decoded_and_encoded_once(library: ImageCache, vision: Vision) -> None:
    library.read(SMALL)
    first = library.encode(SMALL)
    library.read(SMALL)
    assert library.encode(SMALL) == first
    assert (vision.reads, vision.encoded) == ([5], [5])


def test_what_is_not_kept_is_encoded_again_under_its_numbers(
    library: ImageCache, vision: Vision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IDLE_BYTES", 100)
    library.encode(SMALL)
    library.encode(LARGE)
    gc.collect()
    assert list(library.encode(SMALL)) == [-1]
    assert vision.encoded == [5, 9, 5]


def test_what_a_request_still_has_is_not_encoded_again(
    library: ImageCache, vision: Vision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_IDLE_BYTES", 0)
    held = library.encode(SMALL)
    assert library.encode(SMALL) == held
    assert vision.encoded == [5]


def test_a_forgotten_picture_gets_new_numbers(
    library: ImageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 1)
    library.read(SMALL)
    library.read(LARGE)
    assert library.tokens(SMALL)[0] == -17


def test_embeddings_have_a_limit(library: ImageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 60)
    held = library.encode(SMALL)
    with pytest.raises(CapacityError, match="try again"):
        library.encode(LARGE)
    assert held


def test_a_picture_that_cannot_be_encoded_is_an_error(library: ImageCache, vision: Vision) -> None:
    vision.faulty = True
    with pytest.raises(InternalError, match="it is broken"):
        library.encode(SMALL)
    vision.faulty = False
    assert list(library.encode(SMALL)) == [-1]


def test_numbers_end_with_an_error(library: ImageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NUMBER", 10)
    library.read(SMALL)
    with pytest.raises(InternalError, match="unload"):
        library.read(LARGE)


def test_a_picture_that_another_key_has_sent_is_one_that_nobody_has(
    library: ImageCache, vision: Vision
) -> None:
    found = []
    for salt in ("a", "b", "a"):
        asked = GenerateRequest(
            "x", messages=(Message("user", "", images=(SMALL,)),), cache_salt=salt
        )
        (image,) = images_of(asked)
        library.read(image)
        library.encode(image)
        found.append(library.tokens(image))
    assert (vision.reads, vision.encoded) == ([5, 5], [5, 5])
    assert found[0] == found[2] != found[1], "nor does the prefix cache find it"


def test_the_pictures_of_public_messages_are_everybodys() -> None:
    message = Message("user", "", images=(SMALL,))
    asked = GenerateRequest("x", messages=(message, message), public_messages=1, cache_salt="a")
    assert [image.salt for image in images_of(asked)] == [None, "a"]


def test_only_pictures_in_the_prompt_are_used(library: ImageCache) -> None:
    messages = (Message("user", "", images=(SMALL, LARGE)), Message("user", "", images=(SLICED,)))
    images = images_of(GenerateRequest("x", messages=messages))
    assert images == [SMALL, LARGE, SLICED]
    prompt = [1, *library.tokens(LARGE), 2, *library.tokens(SLICED)]
    library.read(SMALL)
    assert images_in(images, prompt, library) == [LARGE, SLICED]
