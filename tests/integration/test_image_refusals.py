"""Images that a request may not have, on every surface: a clear 400, and the daemon goes on."""

from __future__ import annotations

import base64
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from runner.types import IMAGE_PLACEHOLDER
from tests.conftest import RunningDaemon

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(20)).decode()
URL = f"data:image/png;base64,{PNG}"
MODEL = {"model": "echo"}

Bodies = dict[str, dict[str, Any]]


def bodies(url: str = URL, data: str = PNG, media_type: str = "image/png") -> Bodies:
    """A request with one image, for each path that takes images."""
    source = {"type": "base64", "media_type": media_type, "data": data}
    told = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]
    shown = [{"role": "user", "content": parts}]
    item = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    return {
        "/v1/chat/completions": {**MODEL, "messages": shown},
        "/v1/responses": {**MODEL, "input": [item]},
        "/v1/messages": {**MODEL, "max_tokens": 3, **told},
        "/v1/messages/count_tokens": {**MODEL, **told},
        "/api/chat": {**MODEL, "messages": [{"role": "user", "content": "a", "images": [data]}]},
        "/api/generate": {**MODEL, "prompt": "a", "images": [data]},
        "/tokenize": {**MODEL, "messages": shown},
        "/apply-template": {**MODEL, "messages": shown},
    }


PATHS = tuple(bodies())
OF_URLS = ("/v1/chat/completions", "/v1/responses", "/tokenize", "/apply-template")
OF_TYPES = (*OF_URLS, "/v1/messages", "/v1/messages/count_tokens")


def refused(client: httpx.Client, path: str, body: dict[str, Any], param: str = "") -> str:
    """The message of the 400 that the request gets."""
    answer = client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    if isinstance(error, str):
        error = {"message": error, **answer.json()}
    assert str(error["param"]).startswith(param)
    return str(error["message"])


@pytest.mark.parametrize("path", PATHS)
def test_a_model_without_a_projector_is_named(client: httpx.Client, path: str) -> None:
    message = refused(client, path, bodies()[path], "messages")
    assert message.startswith("echo cannot process images: it has no projector")


@pytest.mark.parametrize("path", OF_URLS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_pictures_are_not_fetched(client: httpx.Client, path: str, scheme: str) -> None:
    message = refused(client, path, bodies(url=f"{scheme}://example.com/a.png")[path])
    assert "images are not fetched from the network" in message
    assert "data:image/png;base64," in message


@pytest.mark.parametrize("path", OF_TYPES)
def test_a_media_type_that_the_data_contradicts_is_told_with_both(
    client: httpx.Client, path: str
) -> None:
    given = bodies(url=f"data:image/png;base64,{JPEG}", data=JPEG)
    message = refused(client, path, given[path])
    assert "the data is a JPEG, but its media type is 'image/png'" in message


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("data", "reason"),
    [("%%%", "is not base64"), ("aGVsbG8=", "is not PNG, JPEG, WebP, GIF or BMP")],
)
def test_what_is_no_picture_is_refused(
    client: httpx.Client, path: str, data: str, reason: str
) -> None:
    given = bodies(url=f"data:;base64,{data}", data=data, media_type="")
    assert reason in refused(client, path, given[path])


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/api/generate", {"prompt": "a", "images": [PNG], "raw": True}, "raw and images"),
        (
            "/api/generate",
            {"prompt": "a", "images": [PNG], "suffix": "b"},
            "suffix and images cannot",
        ),
        (
            "/api/chat",
            {"messages": [{"role": "user", "images": [PNG] * 65}]},
            "more than 64 entries",
        ),
        ("/api/chat", {"messages": [{"role": "user", "images": [5]}]}, "images.0 must be a string"),
        ("/api/chat", {"messages": [{"role": "user", "images": "x"}]}, "images must be an array"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "a part of type 'image_url' is not supported",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "a part of type 'input_audio' is not supported",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
            "a part of type 'file' is not supported",
        ),
        (
            "/v1/messages",
            {
                "max_tokens": 1,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "url", "url": "http://x"}}
                        ],
                    }
                ],
            },
            "an image of type 'url' is not supported; send it as base64",
        ),
        (
            "/v1/messages",
            {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "source.data is missing",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content.0: an input_image requires image_url or file_id",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]},
            "input.0.content.0.file_id: no such file: 'x'",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
            "a part of type 'input_file' is not supported",
        ),
    ],
)
def test_what_cannot_be_honoured_is_said(
    client: httpx.Client, path: str, body: dict[str, Any], reason: str
) -> None:
    assert reason in refused(client, path, {**MODEL, **body})


def test_a_stored_file_that_is_no_picture_is_refused(client: httpx.Client) -> None:
    form = {"file": ("a.txt", b"hello")}
    stored = client.post("/v1/files", data={"purpose": "vision"}, files=form).json()
    part = {"type": "input_image", "file_id": stored["id"]}
    body = {**MODEL, "input": [{"role": "user", "content": [part]}]}
    assert "the data is not PNG" in refused(client, "/v1/responses", body, "input.0.content.0")
    client.delete(f"/v1/files/{stored['id']}")


def test_the_mark_of_images_in_a_text_is_no_image(client: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": f"a{IMAGE_PLACEHOLDER}b"}], "stream": False}
    assert client.post("/api/chat", json={**MODEL, **body}).json()["message"]["content"] == "a b"


@pytest.mark.parametrize(("path", "limit"), [("/api/chat", 64), ("/v1/embeddings", 8)])
def test_paths_with_images_take_longer_bodies_than_others(
    shared_daemon: RunningDaemon, path: str, limit: int
) -> None:
    with closing(HTTPConnection("127.0.0.1", shared_daemon.port, timeout=30)) as http:
        http.putrequest("POST", path)
        http.putheader("content-type", "application/json")
        http.putheader("content-length", str((limit << 20) + 1))
        http.endheaders()  # the refusal comes before the body
        answer = http.getresponse()
        assert answer.status == 413
        assert f"longer than {limit} MiB" in answer.read().decode()
