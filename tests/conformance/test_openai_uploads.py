"""The Uploads API through the official SDK."""

from __future__ import annotations

import hashlib
import os

import openai
import pytest

DATA = os.urandom(100_000)
PIECES = (DATA[:40_000], DATA[40_000:80_000], DATA[80_000:])


def begun(sdk: openai.OpenAI, size: int = len(DATA)) -> str:
    made = sdk.uploads.create(
        bytes=size, filename="d.bin", mime_type="text/plain", purpose="user_data"
    )
    assert (made.status, made.bytes, made.file) == ("pending", size, None)
    return made.id


def parts_of(sdk: openai.OpenAI, upload: str) -> list[str]:
    """The ids of the parts, sent from the last one to the first."""
    ids = [sdk.uploads.parts.create(upload, data=piece).id for piece in reversed(PIECES)]
    return ids[::-1]


def test_a_file_is_put_together_in_the_order_asked_for(sdk: openai.OpenAI) -> None:
    upload = begun(sdk)
    parts = parts_of(sdk, upload)
    assert not {file.id for file in sdk.files.list()} & set(parts)
    with pytest.raises(openai.NotFoundError):
        sdk.files.content(parts[0])
    digest = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    done = sdk.uploads.complete(upload, part_ids=parts, md5=digest)
    assert (done.status, done.file.bytes, done.file.filename) == ("completed", len(DATA), "d.bin")
    assert sdk.files.content(done.file.id).read() == DATA
    with pytest.raises(openai.ConflictError, match="is completed"):
        sdk.uploads.parts.create(upload, data=b"x")
    sdk.files.delete(done.file.id)


def test_the_sdks_own_way_in_chunks(sdk: openai.OpenAI) -> None:
    done = sdk.uploads.upload_file_chunked(
        file=DATA, filename="d.txt", bytes=len(DATA), mime_type="text/plain",
        purpose="user_data", part_size=30_000,
    )  # fmt: skip
    assert sdk.files.content(done.file.id).read() == DATA
    sdk.files.delete(done.file.id)


def test_what_does_not_fit_together_is_refused_and_can_be_mended(sdk: openai.OpenAI) -> None:
    upload, other = begun(sdk), begun(sdk)
    parts = parts_of(sdk, upload)
    (foreign,) = [sdk.uploads.parts.create(other, data=b"x").id]
    for wrong, reason in (
        (parts[:2], "do not have"),
        ([*parts, parts[0]], "not parts"),
        ([*parts[:2], foreign], "not parts"),
    ):
        with pytest.raises(openai.BadRequestError, match=reason):
            sdk.uploads.complete(upload, part_ids=wrong)
    with pytest.raises(openai.BadRequestError, match="md5"):
        sdk.uploads.complete(upload, part_ids=parts, md5="0" * 32)
    with pytest.raises(openai.BadRequestError, match="more than the"):
        sdk.uploads.parts.create(upload, data=b"x")
    sdk.files.delete(sdk.uploads.complete(upload, part_ids=parts).file.id)
    assert sdk.uploads.cancel(other).status == "cancelled"
    with pytest.raises(openai.ConflictError, match="is cancelled"):
        sdk.uploads.complete(other, part_ids=[foreign])


def test_what_is_too_large_is_refused_at_the_beginning(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="HEARTH_MAX_FILE_SIZE"):
        begun(sdk, 1 << 40)
    with pytest.raises(openai.NotFoundError, match="no such upload"):
        sdk.uploads.cancel("upload_none")
