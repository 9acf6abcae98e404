from __future__ import annotations

from typing import Any

import pytest

from runner.backends.backend import DecodedImage, ImagePart, ImageSlot, TooManyTokens
from runner.chat.reasoning import THINK
from runner.errors import InvalidRequest, ModelInvalid, Unsupported
from runner.types import IMAGE_PLACEHOLDER, GenerateRequest, Image, Message, ToolCall
from runner.worker.images import ImageCache
from runner.worker.prompts import MAX_COMPILED_TEMPLATES, PromptEncoder, inputs_to_tokens
from tests.fake_backend import BOS, CHAT_TEMPLATE, FakeSlot, FakeTokenizer


def prompts(template: str | None = CHAT_TEMPLATE) -> PromptEncoder:
    return PromptEncoder(FakeTokenizer(), template)


def chat(*messages: Message, **fields: Any) -> GenerateRequest:
    return GenerateRequest("x", messages=messages, **fields)


def test_messages_go_through_the_template() -> None:
    request = chat(Message("system", "Be kind."), Message("user", "hi"))
    assert prompts().render(request) == (
        "<|im_start|>system\nBe kind.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_template_sees_tools_options_calls_and_special_tokens() -> None:
    template = (
        "{{ bos_token }}{{ tools[0].name }} {{ think }} {% for m in messages %}{{ m.role }}"
        "{% for c in m.tool_calls or [] %} {{ c.function.name }}({{ c.function.arguments.a }})"
        "{% endfor %}{{ m.tool_call_id or '' }}{{ m.reasoning_content or '' }};{% endfor %}"
    )
    request = chat(
        Message("assistant", "", reasoning="hm", tool_calls=(ToolCall("c1", "add", '{"a": 1}'),)),
        Message("tool", "2", tool_call_id="c1"),
        tools=({"name": "add"},),
        template_options={"think": True},
    )
    assert prompts(template).render(request) == "<|begin|>add True assistant add(1)hm;toolc1;"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages if m.role == 'tool' %}{{ m.tool_call_id }} {{ m.name }};{% endfor %}",
        '{{ range .Messages }}{{ if eq .Role "tool" }}{{ .ToolCallID }} {{ .ToolName }};'
        "{{ end }}{{ end }}",
    ],
)
def test_a_tools_result_has_the_id_and_the_name_of_its_call(template: str) -> None:
    calls = (ToolCall("c1", "add", "{}"), ToolCall("c2", "find", "{}"))
    request = chat(
        Message("assistant", "", tool_calls=calls),
        Message("tool", "2", tool_call_id="c2"),
        Message("tool", "1", name="add"),
    )
    assert prompts(template).render(request) == "c2 find;c1 add;"


LONG = "x" * (1 << 17)  # the fake counts a letter as a token
CALLS = (ToolCall("c1", "add", "{}"),)


@pytest.mark.parametrize(
    "message",
    [
        Message("user", LONG),
        Message("tool", LONG, tool_call_id="c1"),
        Message("assistant", LONG),
        Message("assistant", f"<think>hm</think>{LONG}"),
        Message("assistant", f"{LONG}<think>hm"),
    ],
)
def test_what_cannot_fit_is_refused_before_a_template_copies_it(message: Message) -> None:
    refusing = prompts("{{ raise_exception('rendered') }}")
    request = chat(Message("user", "a"), message, Message("user", "b"), reasoning_tags=THINK)
    with pytest.raises(TooManyTokens) as refused:
        refusing.render_within(request, 4096)
    assert refused.value.count >= len(LONG)
    with pytest.raises(InvalidRequest, match="rendered"):
        refusing.render_within(request, 2 * len(LONG))


@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", f"<think>{LONG}</think>c"),
        Message("assistant", f"{LONG}</think>c"),
        Message("assistant", f"c<think>{LONG}"),
        Message("assistant", LONG, tool_calls=CALLS),
        Message("assistant", "c", reasoning=LONG),
    ],
)
def test_what_a_template_may_leave_out_counts_where_it_does_not(message: Message) -> None:
    request = chat(Message("user", "a"), message, Message("user", "b"), reasoning_tags=THINK)
    assert prompts("{{ messages[-1].content }}").render_within(request, 4096) == "b"
    with pytest.raises(TooManyTokens):
        prompts("{{ messages }}").render_within(request, 4096)


def test_bos_comes_once() -> None:
    assert prompts("{{ bos_token }}x").encode(chat(Message("user", "y"))) == [BOS, *b"x"]
    assert prompts("x").encode(chat(Message("user", "y"))) == [BOS, *b"x"]


def test_text_is_encoded_and_tokens_are_taken_as_they_are() -> None:
    assert prompts().encode(GenerateRequest("x", text="ab")) == [BOS, *b"ab"]
    assert prompts().encode(GenerateRequest("x", tokens=(1, 2))) == [1, 2]


def test_without_a_template_texts_stay_as_they_are() -> None:
    assert prompts(None).render(chat(Message("user", " hi\n"))) == " hi\n"
    request = chat(Message("system", "Be kind."), Message("user", "hi"))
    assert prompts(None).render(request) == "Be kind.\n\nhi"


@pytest.mark.parametrize("roles", [("user", "assistant", "user"), ("user", "assistant"), ()])
def test_without_a_template_a_conversation_is_refused(roles: tuple[str, ...]) -> None:
    messages = [Message("system", "Be kind."), *(Message(role, "hi") for role in roles)]
    request = chat(*messages, continues=roles[-1:] == ("assistant",))
    with pytest.raises(Unsupported, match=f"base model.* has {', '.join(roles) or 'none'}"):
        prompts(None).render(request)


def test_a_template_in_go_is_rendered_as_ollama_does() -> None:
    template = (
        "{{ range .Messages }}<{{ .Role }}>{{ .Content }}{{ .Thinking }}{{ end }}{{ .Think }}"
    )
    request = chat(
        Message("user", "a"),
        Message("user", "b"),
        Message("assistant", "c", reasoning="hm"),
        template_options={"think": True},
    )
    assert prompts(template).render(request) == "<user>a\n\nb<assistant>chmtrue"


def test_a_model_may_have_a_template_for_tools() -> None:
    both = PromptEncoder(FakeTokenizer(), "plain", tool_template="tools", engine="jinja")
    assert both.render(chat(Message("user", "x"))) == "plain"
    assert both.render(chat(Message("user", "x"), tools=({"name": "f"},))) == "tools"


def test_the_language_of_a_template_can_be_forced() -> None:
    source = "{{ 1 }}{{ messages }}"
    with pytest.raises(ModelInvalid, match='function "messages" not defined'):
        PromptEncoder(FakeTokenizer(), source, engine="go").render(chat(Message("user", "x")))


def test_a_suffix_is_filled_in_where_the_template_has_a_place_for_it() -> None:
    request = chat(Message("user", "a"), template_options={"suffix": "b"})
    assert prompts("<{{ .Prompt }}|{{ .Suffix }}>").render(request) == "<a|b>"
    for source in ("{{ .Prompt }}", "{{ messages }}", None):
        with pytest.raises(InvalidRequest, match="does not support a suffix"):
            prompts(source).render(request)


@pytest.mark.parametrize("name", ["messages", "tools", "bos_token"])
def test_an_option_does_not_replace_what_hearth_sets(name: str) -> None:
    with pytest.raises(InvalidRequest, match="set by hearth"):
        prompts("{{ messages }}").render(chat(Message("user", "x"), template_options={name: 1}))


def test_a_template_that_refuses_says_why() -> None:
    refusing = prompts("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        refusing.render(chat(Message("user", "hi")))


def test_a_message_of_a_role_that_the_template_does_not_write_is_refused() -> None:
    by_role = "{% for m in messages if m.role in ('user', 'critic') %}{{ m.content }}{% endfor %}"
    request = chat(Message("critic", " Good. "), Message("user", "hi"))
    assert prompts(by_role).render(request) == " Good. hi"
    request = chat(Message("wizard", "Abra"), Message("user", "hi"))
    with pytest.raises(InvalidRequest, match="no place for the role 'wizard'; use system, user"):
        prompts(by_role).render(request)


def test_a_broken_template_leaves_completions_working() -> None:
    broken = prompts("{% if %}")
    with pytest.raises(ModelInvalid, match="chat template"):
        broken.render(chat(Message("user", "hi")))
    assert broken.encode(GenerateRequest("x", text="ab")) == [BOS, *b"ab"]


def test_a_request_without_a_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="neither"):
        prompts().encode(GenerateRequest("x"))


def test_arguments_that_are_no_json_stay_text() -> None:
    template = "{{ messages[0].tool_calls[0].function.arguments }}"
    call = ToolCall("c", "f", "{broken")
    assert prompts(template).render(chat(Message("assistant", "", tool_calls=(call,)))) == "{broken"


def test_inputs_are_texts_or_tokens() -> None:
    assert inputs_to_tokens(["a", [1, 2]], prompts(), 100, truncate=False) == [[BOS, 97], [1, 2]]
    for wrong in (3, [1, "a"], [True], None):
        with pytest.raises(InvalidRequest):
            inputs_to_tokens([wrong], prompts(), 100, truncate=False)


GO_MESSAGES = (
    "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
)
GO_TURNS = (
    "{{ if .Prompt }}<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n{{ .Response }}<|im_end|>\n"
)
TRIMMING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, TRIMMING, GO_MESSAGES, GO_TURNS])
@pytest.mark.parametrize("begun", ["It is", "It is ", "hi", "\n", "\ue0c7\ue0c7"])
def test_a_continued_message_is_rendered_without_its_end(template: str, begun: str) -> None:
    request = chat(Message("user", "hi"), Message("assistant", begun), continues=True)
    expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    shown = begun.lstrip() if template == TRIMMING else begun
    assert prompts(template).render(request) == expected + shown


def test_a_template_that_leaves_the_last_message_out_cannot_continue_it() -> None:
    request = chat(Message("user", "hi"), Message("assistant", "It is"), continues=True)
    with pytest.raises(InvalidRequest, match="cannot be continued"):
        prompts("{{ messages[0].content }}").render(request)


def test_reasoning_that_a_continued_message_opens_belongs_to_the_answer() -> None:
    request = chat(
        Message("user", "hi"),
        Message("assistant", "<think>\n"),
        continues=True,
        reasoning_tags=THINK,
    )
    assert prompts().prepare(request)[1] == "<think>"


@pytest.mark.parametrize(
    ("think", "end", "prefix"),
    [(None, "\n", "<think>"), (True, "\n", "<think>"), (False, "\n</think>", "")],
)
def test_reasoning_that_a_template_always_begins_is_ended_where_none_is_wanted(
    think: bool | None, end: str, prefix: str
) -> None:
    shared = prompts("{{ messages[0].content }}<think>\n{{ '' }}")
    request = chat(Message("user", "hi"), think=think, reasoning_tags=THINK)
    assert shared.render(request) == f"hi<think>{end}"
    assert shared.prepare(request)[1] == prefix


def test_a_requests_own_template_counts_for_it_alone() -> None:
    shared = prompts()
    own = chat(Message("user", "hi"), template="{{ messages[0].content }}!")
    assert shared.render(own) == "hi!"
    assert shared.render(chat(Message("user", "hi"), template="{{ .Prompt }}?")) == "hi?"
    assert shared.render(chat(Message("user", "hi"))).startswith("<|im_start|>user")


def test_faulty_templates_of_requests_are_refused_and_few_are_kept() -> None:
    shared = prompts()
    with pytest.raises(InvalidRequest, match="the template"):
        shared.render(chat(Message("user", "hi"), template="{% if %}"))
    for number in range(3 * MAX_COMPILED_TEMPLATES):
        source = f"{{{{ messages[0].content }}}} {number}"
        assert shared.render(chat(Message("user", "hi"), template=source)) == f"hi {number}"
    assert len(shared._requested) == MAX_COMPILED_TEMPLATES


def test_a_template_of_a_request_can_fill_in_and_continue() -> None:
    fill = "{{ .Prompt }}<|begin|>{{ .Suffix }}"
    request = chat(Message("user", "a"), template=fill, template_options={"suffix": "b"})
    assert prompts().render(request) == "a<|begin|>b"
    messages = (Message("user", "hi"), Message("assistant", "It is"))
    request = chat(*messages, template=TRIMMING.replace("im_end", "end"), continues=True)
    assert prompts().render(request).endswith("assistant\nIt is")


class Sight:
    """Each picture is two numbers and a word."""

    def read(self, picture: DecodedImage) -> list[list[int] | ImageSlot]:
        return [FakeSlot(2), [88]]

    def encode(self, slot: ImageSlot) -> ImagePart:
        raise AssertionError("prompts encode nothing")


def seeing(template: str | None = CHAT_TEMPLATE) -> PromptEncoder:
    library = ImageCache(Sight(), lambda data: DecodedImage(1, 1, data))
    return PromptEncoder(FakeTokenizer(), template, images=library)


ONE, TWO = Image(b"one"), Image(b"two")
PARTS_ONLY = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %};{% endfor %}"
)


def test_images_stand_where_their_marks_are() -> None:
    text = f"a{IMAGE_PLACEHOLDER}b{IMAGE_PLACEHOLDER}"
    request = chat(Message("user", text, images=(ONE, TWO)))
    assert seeing("{{ messages[0].content }}!").encode(request) == [
        *(BOS, 97, -1, -2, 88, 98, -4, -5, 88, 33)
    ]


def test_a_prompt_may_begin_with_an_image() -> None:
    request = chat(Message("user", IMAGE_PLACEHOLDER, images=(ONE,)))
    assert seeing("{{ messages[0].content }}").encode(request) == [BOS, -1, -2, 88]
    continued = chat(Message("user", IMAGE_PLACEHOLDER, images=(ONE,)), preceding=(7,))
    assert seeing("{{ messages[0].content }}").encode(continued) == [7, -1, -2, 88]


def test_a_template_of_content_parts_gets_the_text_as_one() -> None:
    messages = (
        Message("user", f"see {IMAGE_PLACEHOLDER}", images=(ONE,)),
        Message("assistant", "yes"),
        Message("user", "and?"),
    )
    assert seeing(PARTS_ONLY).render(chat(*messages)) == (
        f"user:see {IMAGE_PLACEHOLDER};assistant:yes;user:and?;"
    )
    begun = (*messages, Message("assistant", "I see "))
    assert seeing(PARTS_ONLY).render(chat(*begun, continues=True)).endswith("assistant:I see ")


def test_a_template_that_refuses_texts_gets_parts() -> None:
    template = "{% if messages[0].content is string %}{{ raise_exception('no') }}{% endif %}"
    request = chat(Message("user", IMAGE_PLACEHOLDER, images=(ONE,)))
    assert IMAGE_PLACEHOLDER in seeing(template + "{{ messages[0].content[0].text }}").render(
        request
    )


def test_a_template_that_loses_an_image_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="0 of the 1 images"):
        seeing("nothing").render(chat(Message("user", IMAGE_PLACEHOLDER, images=(ONE,))))


def test_images_and_their_places_must_be_as_many() -> None:
    with pytest.raises(InvalidRequest, match="1 images and 0 places"):
        seeing().render(chat(Message("user", "a", images=(ONE,))))


def test_a_mark_without_images_is_text() -> None:
    request = chat(Message("user", IMAGE_PLACEHOLDER))
    assert seeing().encode(request) == prompts().encode(request)


def test_a_model_without_sight_says_so() -> None:
    with pytest.raises(InvalidRequest, match="cannot process images") as raised:
        prompts().render(chat(Message("user", IMAGE_PLACEHOLDER, images=(ONE,))))
    assert raised.value.details["param"] == "messages"


ALTERNATING = (
    "{% set first = messages[0].role == 'system' %}{{ messages[0].content if first }}"
    "{% set rest = messages[1:] if first else messages %}{% for m in rest %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
GATHERING = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
FORGETTING = (
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
TURNS = (
    Message("system", "Be kind."),
    Message("user", "one"),
    Message("system", "note one"),
    Message("assistant", "yes"),
    Message("system", "note two"),
    Message("user", "two"),
)


@pytest.mark.parametrize("template", [ALTERNATING, GATHERING, FORGETTING])
def test_a_later_system_message_is_the_users_where_templates_have_no_place_for_it(
    template: str,
) -> None:
    encoder = prompts(template)
    whole = encoder.render(chat(*TURNS))
    assert whole == "Be kind.<user>one\n\nnote one<assistant>yes<user>note two\n\ntwo"
    assert whole.startswith(encoder.render(chat(*TURNS[:3])))  # it is in the cache
    codex = chat(TURNS[0], Message("system", "Be brief."), *TURNS[1:])
    assert encoder.render(codex) == whole.replace("kind.", "kind.\n\nBe brief.")


def test_a_later_system_message_stays_where_the_template_has_it() -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    assert "<system>note one<assistant>yes<system>note two<user>two" in prompts(template).render(
        chat(*TURNS)
    )
    ollama = "{{ .System }}{{ range .Messages }}{{ .Content }}{{ end }}"
    assert "note one\n\nnote two" in prompts(ollama).render(chat(*TURNS))
