"""Images from clients to a model that reads them, and projectors from files into models."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

pytest.importorskip("PIL")

from modelfile.build import build
from modelfile.description import Description
from registry.digest import Digest
from registry.manifest import PROJECTOR_TYPE
from registry.names import Name
from registry.store import Store
from tests.conftest import RunningDaemon, running_daemon
from tests.speech_models import tone
from tests.vision_files import VisionFiles, png, write_audio_model, write_vision_model

MODEL = "seer"
DEADLINE_S = 120.0
PICTURE, OTHER = png(40, 30), png(40, 30, seed=1)
CODED = base64.b64encode(PICTURE).decode()
URL = f"data:image/png;base64,{CODED}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> VisionFiles:
    """A tiny model that reads images."""
    return write_vision_model(tmp_path_factory.mktemp("files"), "idefics3")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, files: VisionFiles) -> Iterator[RunningDaemon]:
    """A daemon with that model, one that hears, and an echo model."""
    home = tmp_path_factory.mktemp("hearth")
    store = Store.open(home / "models")
    heard = write_audio_model(tmp_path_factory.mktemp("files"), "ultravox")
    for name, each in ((MODEL, files), ("hearer", heard)):
        model, projector = (upload(store, path) for path in (each.model, each.projector))
        description = Description(Name.parse(name), files={"m": model}, projector=projector)
        list(build(store, description))
    store.close()
    with running_daemon(home) as running:
        yield running


@pytest.fixture
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client(timeout_s=120) as client:
        yield client


def upload(store: Store, path: Path) -> Digest:
    with store.blob_writer() as writer:
        writer.write(path.read_bytes())
        return writer.commit()[0]


def answered(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def counted(http: httpx.Client, content: Any) -> int:
    """The tokens of a prompt in Anthropic's blocks."""
    body = {"messages": [{"role": "user", "content": content}]}
    return int(answered(http, "/v1/messages/count_tokens", body)["input_tokens"])


def ended(http: httpx.Client, path: str, states: tuple[str, ...]) -> dict[str, Any]:
    """What path shows once it is in none of these states."""
    deadline_s = time.monotonic() + DEADLINE_S
    while (now := dict(http.get(path).json()))["status"] in states:
        assert time.monotonic() < deadline_s, now
    return now


def test_every_surface_gives_the_same_prompt_and_answer(http: httpx.Client) -> None:
    """The image stands before the text everywhere, and temperature 0 decides the answer."""
    parts = [{"type": "image_url", "image_url": {"url": URL}}, {"type": "text", "text": "warm"}]
    items = [
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": "warm"},
    ]
    source = {"type": "base64", "media_type": "image/png", "data": CODED}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "warm"}]
    few = {"stream": False, "options": {"num_predict": 3, "temperature": 0}}
    told = {"role": "user", "content": "warm", "images": [CODED]}

    chat = answered(
        http,
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": parts}], "max_tokens": 3, "temperature": 0},
    )
    response = answered(
        http,
        "/v1/responses",
        {"input": [{"role": "user", "content": items}], "max_output_tokens": 3, "temperature": 0},
    )
    message = answered(
        http,
        "/v1/messages",
        {"messages": [{"role": "user", "content": blocks}], "max_tokens": 3, "temperature": 0},
    )
    spoken = answered(http, "/api/chat", {"messages": [told], **few})
    generated = answered(http, "/api/generate", {"prompt": "warm", "images": [CODED], **few})

    used = message["usage"]
    assert [
        chat["usage"]["prompt_tokens"],
        response["usage"]["input_tokens"],
        used["input_tokens"] + used["cache_read_input_tokens"],
        spoken["prompt_eval_count"],
        generated["prompt_eval_count"],
    ] == [counted(http, blocks)] * 5
    assert [
        response["output"][0]["content"][0]["text"],
        message["content"][0]["text"],
        spoken["message"]["content"],
        generated["response"],
    ] == [chat["choices"][0]["message"]["content"]] * 4
    assert generated["prompt_eval_count"] > 20 + counted(http, "warm")


def test_a_recording_is_heard_on_the_surfaces_that_have_them(http: httpx.Client) -> None:
    pytest.importorskip("av")
    coded = base64.b64encode(tone(0.5)).decode()
    audio: dict[str, Any] = {"type": "input_audio"}
    audio["input_audio"] = {"data": coded, "format": "wav"}
    told = {"role": "user", "content": [audio, {"type": "text", "text": "warm"}]}
    few = {"max_tokens": 3, "temperature": 0}
    body = {"model": "hearer", "messages": [told], **few}
    chat = answered(http, "/v1/chat/completions", body)
    assert chat["usage"]["prompt_tokens"] > 375  # of 30 seconds
    again = answered(http, "/v1/chat/completions", body)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 375
    spoken = answered(http, "/api/chat", {
        "model": "hearer", "stream": False, "options": {"num_predict": 3, "temperature": 0},
        "messages": [{"role": "user", "content": "warm", "images": [coded]}],
    })  # fmt: skip
    assert spoken["message"]["content"] == chat["choices"][0]["message"]["content"]
    assert spoken["prompt_eval_count"] == chat["usage"]["prompt_tokens"]
    other = base64.b64encode(tone(0.5, hertz=880)).decode()
    audio["input_audio"] = {"data": other, "format": "wav"}
    differs = answered(http, "/v1/chat/completions", body)
    assert differs["usage"]["prompt_tokens_details"]["cached_tokens"] < 375


def test_what_hears_says_so_and_what_does_not_refuses_by_name(http: httpx.Client) -> None:
    shown = answered(http, "/api/show", {"model": "hearer"})["capabilities"]
    assert "audio" in shown
    assert "vision" not in shown
    assert "audio" not in answered(http, "/api/show", {})["capabilities"]
    tags = {item["model"]: item["capabilities"] for item in http.get("/api/tags").json()["models"]}
    assert "audio" in tags["hearer:latest"]

    def refused(model: str, part: dict[str, Any]) -> str:
        body = {"model": model, "messages": [{"role": "user", "content": [part]}]}
        answer = http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400, answer.text
        return str(answer.json()["error"]["message"])

    def audio(data: bytes) -> dict[str, Any]:
        return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode()}}

    assert "seer cannot process recordings" in refused(MODEL, audio(tone(0.2)))
    assert "/v1/audio/transcriptions" in refused("echo", audio(tone(0.2)))
    image = {"type": "image_url", "image_url": {"url": URL}}
    assert "hearer cannot process images: its projector is for audio" in refused("hearer", image)
    assert "is not WAV, MP3, FLAC or Ogg" in refused("hearer", audio(PICTURE))
    damaged = refused("hearer", audio(tone(0.2)[:40]))
    assert "cannot be decoded" in damaged or "need PyAV" in damaged


def test_an_image_alone_is_a_prompt(http: httpx.Client) -> None:
    few = {"stream": False, "options": {"num_predict": 2}}
    answer = answered(http, "/api/generate", {"images": [CODED], **few})
    assert answer["eval_count"] in (1, 2)


def test_a_tools_result_can_be_an_image(http: httpx.Client) -> None:
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    source = {"type": "base64", "media_type": "image/png", "data": CODED}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [{"type": "image", "source": source}],
    }
    turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    body = {"messages": [{"role": "user", "content": "look"}, *turns], "max_tokens": 2}
    assert answered(http, "/v1/messages", body)["usage"]["output_tokens"] == 2


def test_other_pictures_give_other_answers_and_the_same_one_comes_from_the_cache(
    http: httpx.Client,
) -> None:
    few = {"stream": False, "options": {"num_predict": 4, "temperature": 0}, "logprobs": True}
    other = base64.b64encode(OTHER).decode()
    first, second, again = (
        answered(http, "/api/generate", {"prompt": "a b", "images": [data], **few})
        for data in (CODED, other, CODED)
    )
    assert first["response"] == again["response"]
    assert first["logprobs"] != second["logprobs"]
    assert again["cached_count"] > first["prompt_eval_count"] // 2


def test_stored_responses_keep_their_pictures(http: httpx.Client) -> None:
    form = {"file": ("cat.png", PICTURE)}
    stored = http.post("/v1/files", data={"purpose": "vision"}, files=form).json()
    part = {"type": "input_image", "file_id": stored["id"], "detail": "low"}
    few = {"max_output_tokens": 2}
    first = answered(http, "/v1/responses", {"input": [{"role": "user", "content": [part]}], **few})
    assert http.delete(f"/v1/files/{stored['id']}").status_code == 200
    second = answered(
        http, "/v1/responses", {"input": "and?", "previous_response_id": first["id"], **few}
    )
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] > 20
    (item,) = http.get(f"/v1/responses/{first['id']}/input_items").json()["data"]
    assert item["content"][0]["file_id"] == stored["id"]
    assert item["content"][0]["image_url"].endswith(CODED)


def test_a_response_in_the_background_reads_images(http: httpx.Client) -> None:
    part = {"type": "input_image", "image_url": URL}
    body = {"input": [{"role": "user", "content": [part]}], "background": True}
    begun = answered(http, "/v1/responses", {**body, "max_output_tokens": 2, "temperature": 0})
    assert begun["status"] == "queued"
    now = ended(http, f"/v1/responses/{begun['id']}", ("queued", "in_progress"))
    assert (now["status"], now["usage"]["output_tokens"]) == ("incomplete", 2)


def test_the_official_sdks_send_pictures(daemon: RunningDaemon, tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PICTURE)
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as sdk:
        part: Any = {"type": "image_url", "image_url": {"url": URL, "detail": "high"}}
        chat = sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": [part]}], max_tokens=2
        )
        assert chat.usage is not None
        shown: Any = {"type": "input_image", "image_url": URL, "detail": "auto"}
        response = sdk.responses.create(
            model=MODEL, input=[{"role": "user", "content": [shown]}], max_output_tokens=16
        )
        assert response.usage is not None
        assert response.usage.input_tokens == chat.usage.prompt_tokens
    with anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0) as claude:
        source: Any = {"type": "base64", "media_type": "image/png", "data": CODED}
        block: Any = {"type": "image", "source": source}
        count = claude.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": [block]}]
        )
        assert count.input_tokens == chat.usage.prompt_tokens
    with ollama.Client(host=daemon.url) as own:
        for image in (str(path), PICTURE, CODED):
            message = ollama.Message(role="user", content="", images=[ollama.Image(value=image)])
            answer = own.chat(MODEL, [message], options={"num_predict": 2})
            assert answer.prompt_eval_count == chat.usage.prompt_tokens


def test_a_batch_reads_images(http: httpx.Client) -> None:
    part = {"type": "image_url", "image_url": {"url": URL}}
    body = {"model": MODEL, "messages": [{"role": "user", "content": [part]}], "max_tokens": 2}
    path = "/v1/chat/completions"
    line = json.dumps({"custom_id": "a", "method": "POST", "url": path, "body": body})
    given = {"purpose": "batch"}
    stored = http.post("/v1/files", data=given, files={"file": ("b.jsonl", line)}).json()
    batch = http.post(
        "/v1/batches",
        json={"input_file_id": stored["id"], "endpoint": path, "completion_window": "24h"},
    ).json()
    now = ended(http, f"/v1/batches/{batch['id']}", ("validating", "in_progress", "finalizing"))
    assert now["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


def test_what_pillow_cannot_read_is_refused_for_that_request_only(http: httpx.Client) -> None:
    broken = base64.b64encode(PICTURE[:60]).decode()
    body = {"model": MODEL, "messages": [{"role": "user", "content": "a", "images": [broken]}]}
    refused = http.post("/api/chat", json=body)
    assert (refused.status_code, refused.json()["param"]) == (400, "messages")
    few = {"stream": False, "options": {"num_predict": 2}}
    told = [{"role": "user", "content": "a", "images": [CODED]}]
    assert answered(http, "/api/chat", {"messages": told, **few})["eval_count"] in (1, 2)


def test_the_model_tells_that_it_sees(http: httpx.Client, files: VisionFiles) -> None:
    shown = answered(http, "/api/show", {})
    assert "vision" in shown["capabilities"]
    assert shown["projector_info"]["clip.projector_type"] == "idefics3"
    assert shown["projector"]["size"] == files.projector.stat().st_size
    assert shown["projector"]["fault"] is None
    weights = files.model.stat().st_size + files.projector.stat().st_size
    assert shown["memory"]["weights_bytes"] == weights
    entries = http.get("/api/tags").json()["models"]
    families = {entry["name"]: entry["details"]["families"] for entry in entries}
    assert families[f"{MODEL}:latest"] == ["llama", "clip"]


@pytest.mark.parametrize("swapped", [False, True])
def test_two_files_make_a_model_in_either_order(
    http: httpx.Client, daemon: RunningDaemon, files: VisionFiles, swapped: bool
) -> None:
    paths = (files.projector, files.model) if swapped else (files.model, files.projector)
    given = {path.name: uploaded(http, path) for path in paths}
    body = {"model": "made", "files": given, "stream": False}
    assert http.post("/api/create", json=body).json() == {"status": "success"}
    assert "vision" in http.post("/api/show", json={"model": "made"}).json()["capabilities"]
    manifest = daemon.home / "models/manifests/registry.ollama.ai/library/made/latest"
    layers = json.loads(manifest.read_text())["layers"]
    found = [layer["digest"] for layer in layers if layer["mediaType"] == PROJECTOR_TYPE]
    assert found == [given[files.projector.name]]
    http.request("DELETE", "/api/delete", json={"model": "made"})


def uploaded(http: httpx.Client, path: Path) -> str:
    content = path.read_bytes()
    digest = str(Digest.of(content))
    assert http.post(f"/api/blobs/{digest}", content=content).status_code in (200, 201)
    return digest


def test_a_derived_model_and_a_copy_keep_the_projector(http: httpx.Client) -> None:
    modelfile = http.post("/api/show", json={"model": MODEL}).json()["modelfile"]
    assert modelfile.startswith(f"FROM {MODEL}\n")
    body = {"model": "derived", "from": MODEL, "system": "s", "stream": False}
    assert http.post("/api/create", json=body).json() == {"status": "success"}
    copied = {"source": "derived", "destination": "copied"}
    assert http.post("/api/copy", json=copied).status_code == 200
    for name in ("derived", "copied"):
        assert "vision" in http.post("/api/show", json={"model": name}).json()["capabilities"]
        http.request("DELETE", "/api/delete", json={"model": name})


def test_a_projector_that_makes_no_model_is_refused(
    http: httpx.Client, files: VisionFiles, tmp_path: Path
) -> None:
    other = write_vision_model(tmp_path, "idefics3", width=96).projector
    model, projector, wide = (uploaded(http, x) for x in (files.model, files.projector, other))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"files": {"p": projector}}, "is a projector for images and no model"),
        ({"files": {"m": model, "p": projector, "q": wide}}, "2 projectors (p, q)"),
        ({"files": {"m": model, "q": wide}}, "embeddings of 96 values, but the model's have 64"),
        ({"from": MODEL, "files": {"m": model}}, "with from, files may only hold its projector"),
    ]
    for body, message in cases:
        for each in (files.model, files.projector, other):
            uploaded(http, each)  # what a refused request brought is gone
        answer = http.post("/api/create", json={"model": "bad", "stream": False, **body})
        assert answer.status_code == 400, answer.text
        assert message in answer.json()["error"]
    assert http.post("/api/show", json={"model": "bad"}).status_code == 404
