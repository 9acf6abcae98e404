"""The Conversations API through the official SDK, and responses that go on in a conversation."""

from __future__ import annotations

import openai
import pytest


def texts(sdk: openai.OpenAI, conversation: str) -> list[str]:
    items = sdk.conversations.items.list(conversation, order="asc")
    return [item.content[0].text for item in items]


def test_a_conversation_is_made_changed_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.conversations.create(metadata={"topic": "tea"})
    assert made.object == "conversation"
    assert sdk.conversations.retrieve(made.id) == made
    changed = sdk.conversations.update(made.id, metadata={"topic": "coffee"})
    assert changed.metadata == {"topic": "coffee"}
    assert sdk.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError, match="no such conversation"):
        sdk.conversations.retrieve(made.id)


def test_items_are_put_listed_shown_and_deleted(sdk: openai.OpenAI) -> None:
    made = sdk.conversations.create(items=[{"role": "user", "content": "0"}])
    added = sdk.conversations.items.create(
        made.id, items=[{"role": "user", "content": str(number)} for number in range(1, 6)]
    )
    assert [item.content[0].text for item in added.data] == ["1", "2", "3", "4", "5"]
    assert texts(sdk, made.id) == ["0", "1", "2", "3", "4", "5"]
    newest = sdk.conversations.items.list(made.id, limit=2)
    assert [item.content[0].text for item in newest.data] == ["5", "4"]
    assert newest.has_more
    paged = [item.content[0].text for item in sdk.conversations.items.list(made.id, limit=2)]
    assert paged == ["5", "4", "3", "2", "1", "0"]
    third = added.data[2]
    assert sdk.conversations.items.retrieve(third.id, conversation_id=made.id) == third
    assert sdk.conversations.items.delete(third.id, conversation_id=made.id).id == made.id
    assert texts(sdk, made.id) == ["0", "1", "2", "4", "5"]
    with pytest.raises(openai.NotFoundError, match="no such item"):
        sdk.conversations.items.retrieve(third.id, conversation_id=made.id)


@pytest.mark.parametrize("way", ["whole", "stream", "background", "not stored"])
def test_a_response_goes_on_in_a_conversation(sdk: openai.OpenAI, way: str) -> None:
    made = sdk.conversations.create(items=[{"role": "user", "content": "Hello"}])
    fields = {"stream": way == "stream", "background": way == "background",
              "store": way != "not stored"}  # fmt: skip
    answer = sdk.responses.create(model="echo", input="one", conversation=made.id, **fields)
    if way == "stream":
        answer = list(answer)[-1].response
    if way == "background":  # its events end when it is stored
        answer = list(sdk.responses.retrieve(answer.id, stream=True))[-1].response
    assert answer.conversation.id == made.id
    assert texts(sdk, made.id) == ["Hello", "one", "one"]
    after = sdk.responses.create(model="echo", input="two", conversation={"id": made.id})
    assert after.usage.input_tokens > answer.usage.total_tokens
    assert texts(sdk, made.id) == ["Hello", "one", "one", "two", "two"]


def test_what_cannot_be_is_refused(sdk: openai.OpenAI) -> None:
    made = sdk.conversations.create()
    answer = sdk.responses.create(model="echo", input="x")
    with pytest.raises(openai.BadRequestError, match="cannot be combined"):
        sdk.responses.create(
            model="echo", input="x", conversation=made.id, previous_response_id=answer.id
        )
    with pytest.raises(openai.NotFoundError, match="no such conversation"):
        sdk.responses.create(model="echo", input="x", conversation="conv_none")
    with pytest.raises(openai.BadRequestError, match="conversation is empty"):
        sdk.responses.create(model="echo", conversation=made.id)
    with pytest.raises(openai.BadRequestError, match="more than 20"):
        sdk.conversations.items.create(made.id, items=[{"role": "user", "content": "x"}] * 21)
    with pytest.raises(openai.BadRequestError, match=r"an item of type 'web_search_call'"):
        sdk.conversations.create(items=[{"type": "web_search_call", "id": "x"}])
    with pytest.raises(openai.BadRequestError, match="metadata"):
        sdk.conversations.create(metadata={"x" * 65: "y"})
    with pytest.raises(openai.NotFoundError, match="no stored prompt"):
        sdk.responses.create(model="echo", input="x", prompt={"id": "pmpt_1"})
