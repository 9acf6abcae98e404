"""Images in the words of each surface as the messages that the worker reads."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from runner.errors import InvalidRequest
from runner.server.anthropic import conversation
from runner.server.anthropic.wire import CountTokensRequest
from runner.server.llamacpp import apply_template
from runner.server.ollama.chat import _message as of_ollama
from runner.server.ollama.wire import OllamaChatMessage as OllamaMessage
from runner.server.openai.conversation import messages_of as of_openai
from runner.server.openai.database import Database
from runner.server.openai.files.file_store import TABLES, FileStore, StoredFile
from runner.server.openai.message_wire import OpenAIChatMessage
from runner.server.openai.responses import items
from runner.server.openai.responses.images import with_files
from runner.server.openai.responses.wire import ResponseItem
from runner.types import IMAGE_PLACEHOLDER as MARK
from runner.types import Image, Message, ToolCall

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
CODED = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{CODED}"
SOURCE = {"type": "base64", "media_type": "image/png", "data": CODED}
ONE = (Image(PNG),)


def texts_around(text: str, image: dict[str, Any]) -> list[dict[str, Any]]:
    """Two texts, an image, a text."""
    return [{"type": text, "text": "a"}, {"type": text, "text": "b"}, image,
            {"type": text, "text": "c"}]  # fmt: skip


@pytest.mark.parametrize("image_url", [URL, {"url": URL}, {"url": URL, "detail": "high"}])
def test_openais_parts_keep_their_order(image_url: Any) -> None:
    parts = texts_around("text", {"type": "image_url", "image_url": image_url})
    given = OpenAIChatMessage.model_validate({"role": "user", "content": parts})
    assert of_openai([given]) == (Message("user", f"a\nb{MARK}c", images=ONE),)


def test_apply_template_knows_the_words_of_openai_and_of_ollama() -> None:
    parts = texts_around("text", {"type": "image_url", "image_url": {"url": URL}})
    turns = [
        apply_template.TemplateMessage.model_validate({"role": "user", "content": parts}),
        apply_template.TemplateMessage.model_validate(
            {"role": "user", "content": "x", "images": [CODED]}
        ),
    ]
    assert apply_template.messages_of(turns) == (
        Message("user", f"a\nb{MARK}c", images=ONE),
        Message("user", f"{MARK}x", images=ONE),
    )


def test_apply_template_gives_the_message_of_chat_and_of_ollama() -> None:
    said = {"role": "Assistant", "thinking": "hm", "tool_name": "n"}
    for arguments in ({"a": "ä"}, '{"a": "ä"}'):
        calls = [{"function": {"name": "f", "arguments": arguments}}, {"function": {"name": "g"}}]
        (message,) = apply_template.messages_of(
            [apply_template.TemplateMessage.model_validate({**said, "tool_calls": calls})]
        )
        assert message == Message(
            "assistant",
            "",
            reasoning="hm",
            tool_calls=(ToolCall("call_0", "f", '{"a": "ä"}'), ToolCall("call_1", "g", "{}")),
            name="n",
        )
    both = {"role": "user", "content": [{"text": "x"}], "images": [URL], "tool_call_id": "i"}
    (message,) = apply_template.messages_of([apply_template.TemplateMessage.model_validate(both)])
    assert message == Message("user", f"{MARK}x", images=ONE, tool_call_id="i")


@pytest.mark.parametrize("image", [CODED, URL])
def test_ollamas_images_come_before_the_text(image: str) -> None:
    given = OllamaMessage.model_validate({"role": "user", "content": "x", "images": [image, image]})
    assert of_ollama(given, 0, 0) == Message("user", f"{MARK}{MARK}x", images=ONE * 2)


def test_anthropics_blocks_keep_their_order_in_turns_and_in_results() -> None:
    image = {"type": "image", "source": SOURCE}
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image], "is_error": True}
    turns = [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [*texts_around("text", image), result]},
    ]
    asked = CountTokensRequest.model_validate({"model": "m", "messages": turns})
    _, tool, user = conversation.messages_of(asked)
    assert (tool.content, tool.images) == (f"Error: {MARK}", ONE)
    assert user == Message("user", f"a\nb{MARK}c", images=ONE)


def test_items_of_responses_keep_their_order_in_messages_and_in_outputs() -> None:
    image = {"type": "input_image", "image_url": URL, "detail": "auto"}
    given = [
        {"role": "user", "content": texts_around("input_text", image)},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]
    stored = items.input_items([ResponseItem.model_validate(each) for each in given])
    user, _, tool = items.messages_of(stored, None)
    assert user == Message("user", f"a\nb{MARK}c", images=ONE)
    assert (tool.role, tool.content, tool.images) == ("tool", MARK, ONE)


async def test_a_stored_file_becomes_a_part_that_needs_it_no_more(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "files", Database(tmp_path / "db", TABLES, "files"))
    incoming = store.writing("file-a")
    incoming.write(PNG)
    store.keep(StoredFile("file-a", "a.png", "vision", len(PNG), 0), incoming, 1 << 20)
    part = {"type": "input_image", "file_id": "file-a"}
    given = items.input_items([ResponseItem.model_validate({"role": "user", "content": [part]})])
    filled = await with_files(given, store)
    assert store.delete("file-a")
    (message,) = items.messages_of(filled, None)
    assert message == Message("user", MARK, images=ONE)
    again = items.input_items([ResponseItem.model_validate({"role": "user", "content": [part]})])
    with pytest.raises(InvalidRequest, match=r"input\.0\.content\.0\.file_id: no such file"):
        await with_files(again, store)


def test_texts_of_every_surface_lose_the_mark() -> None:
    said = f"a{MARK}b"
    turn = {"role": "user", "content": said}
    asked = CountTokensRequest.model_validate({"model": "m", "system": said, "messages": [turn]})
    found = [
        *of_openai([OpenAIChatMessage.model_validate(turn)]),
        *apply_template.messages_of([apply_template.TemplateMessage.model_validate(turn)]),
        of_ollama(OllamaMessage.model_validate(turn), 0, 0),
        *conversation.messages_of(asked),
        *items.messages_of(items.input_items(said), said),
    ]
    assert {message.content for message in found} == {"a b"}


def test_a_mark_in_pieces_is_no_image_either() -> None:
    halves = ["<|hearth_", "image|>"]
    blocks = [{"type": "text", "text": half} for half in halves]
    turns = [{"role": "assistant", "content": blocks}]
    asked = CountTokensRequest.model_validate({"model": "m", "messages": turns})
    (message,) = conversation.messages_of(asked)
    assert MARK not in message.content
    said = [ResponseItem.model_validate({"role": "assistant", "content": half}) for half in halves]
    (turn,) = items.messages_of(items.input_items(said), None)
    assert MARK not in turn.content
