from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.openai import local_images
from runner.server.openai.local_images import read_local_images
from runner.server.openai.message_wire import OpenAIChatMessage

PICTURE = b"\x89PNG\r\n\x1a\nrest"


def naming(*urls: str) -> list[OpenAIChatMessage]:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}, *parts]}
    return [
        OpenAIChatMessage.model_validate(each)
        for each in ({"role": "system", "content": "file://a.png"}, message)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    media = tmp_path / "media"
    (media / "in").mkdir(parents=True)
    (media / "in" / "a.png").write_bytes(PICTURE)
    (tmp_path / "secret").write_bytes(PICTURE)
    (media / "link").symlink_to(tmp_path / "secret")
    (media / "fine").symlink_to(media / "in" / "a.png")
    os.mkfifo(media / "pipe")
    return media


@pytest.mark.parametrize("url", ["file://in/a.png", "file:////in//a.png", "file://fine"])
async def test_a_picture_below_the_folder_is_read(folder: Path, url: str) -> None:
    messages = naming(url)
    await read_local_images(messages, folder)
    part: Any = messages[1].content
    assert base64.b64decode(part[1].image_url.removeprefix("data:;base64,")) == PICTURE


@pytest.mark.parametrize(
    "url",
    ["../secret", "in/../../secret", "/../secret", "link", "pipe", "in", "", "none", "a\0b", "~/x"],
)
async def test_what_is_elsewhere_or_no_file_is_not_there(folder: Path, url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"messages\.1\.content\.1\.image_url: no such file"):
        await read_local_images(naming("file://" + url), folder)


async def test_without_a_folder_nothing_is_read(folder: Path) -> None:
    messages = naming("file://in/a.png", f"file://{folder}/in/a.png")
    before = [message.model_dump() for message in messages]
    await read_local_images(messages, None)
    assert [message.model_dump() for message in messages] == before


async def test_pictures_have_a_total_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_images, "MAX_IMAGES_BYTES", len(PICTURE))
    await read_local_images(naming("file://in/a.png"), folder)
    with pytest.raises(InvalidRequest, match="in total"):
        await read_local_images(naming("file://in/a.png", "file://fine"), folder)
