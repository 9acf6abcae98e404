"""From a request to the token ids of its prompt.

Owns the use of the chat template and what stands in for one that is missing. Called off the
engine's thread: templates are Python, tokenizers do not touch the backend. Knows no engine.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from modelfile.errors import ModelfileError
from modelfile.templates.chat_template import ChatTemplate, refuse_dropped
from modelfile.templates.dialect import compile_template
from modelfile.templates.named import DEFAULT, TOOL_USE, NamedTemplates
from runner.backends.backend import Tokenizer, TooManyTokens
from runner.backends.turns import pause
from runner.errors import InvalidRequest, Unsupported
from runner.types import IMAGE_PLACEHOLDER, GenerateRequest, Infill, Message
from runner.worker.fallback_templates import BrokenTemplate, PlainTemplate
from runner.worker.images import ImageCache, images_of
from runner.worker.infill import infill_tokens
from runner.worker.system_turns import with_system_turns
from runner.worker.template_messages import (
    absent_marker,
    content_parts,
    template_message,
    with_marker,
)
from runner.worker.tool_results import match_tool_results

log = logging.getLogger(__name__)

MAX_COMPILED_TEMPLATES = 32  # of requests and of models that share these weights


class PromptEncoder:
    """Renders and encodes prompts for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: str | None,
        *,
        tool_template: str | None = None,
        engine: str | None = None,
        images: ImageCache | None = None,
    ) -> None:
        """chat_template: its source; None: PlainTemplate is used. tool_template: of Jinja, for
        conversations with tools. engine: see modelfile.templates.dialect. images: of a model that
        reads them."""
        self._images = images
        self._tokenizer = tokenizer
        self._bos = _text(tokenizer, tokenizer.bos)
        self._eos = _text(tokenizer, tokenizer.eos)
        self._template = _compile(chat_template, tool_template, self._bos, self._eos, engine)
        self._requested: OrderedDict[str, ChatTemplate] = OrderedDict()  # by source

    def render(self, request: GenerateRequest) -> str:
        """The prompt as text. Raises InvalidRequest when the template refuses the messages, or
        the request has tokens only."""
        if request.text is not None:
            return request.text
        if request.messages is None:
            raise InvalidRequest("the request has neither messages nor text", param="messages")
        options = dict(request.template_options)
        for name in ("messages", "tools"):
            if name in options:
                raise InvalidRequest(f"the template option {name!r} is set by hearth")
        try:
            if "suffix" in options:
                return self._fill(request.messages, options, self._template_for(request))
            messages = [template_message(one) for one in match_tool_results(request.messages)]
            if images_of(request):
                return self._with_images(request, messages, options)
            return self._conversation(request, messages, options)
        except ModelfileError as error:
            raise InvalidRequest(
                f"the model's chat template rejected the messages: {error}",
                param="messages",
            ) from error

    def render_within(self, request: GenerateRequest, max_tokens: int) -> str:
        """The prompt as text. Raises as render does, and TooManyTokens for what cannot fit into
        max_tokens: before a template copies it, where that is known."""
        self._check_length(request, max_tokens)
        text = self.render(request)
        if (least := self._tokenizer.min_tokens(text)) > max_tokens:
            raise TooManyTokens(least, [])
        return text

    def _conversation(
        self, request: GenerateRequest, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> str:
        offered = () if request.tools_as_text else request.tools
        tools = [dict(tool) for tool in offered] or None
        template = self._template_for(request)
        options = {**template.defaults(tools), **options}
        messages = list(with_system_turns(messages, template))
        if request.continues:
            text = self._continued(messages, tools, options, template)
        else:
            text = template.render(messages, tools, **options)
            if request.think is False and _begun_reasoning(request, text):
                assert request.reasoning_tags is not None
                text += request.reasoning_tags[1]  # the template does not ask, as DeepSeek R1's
        refuse_dropped(messages, text)
        return text

    def _with_images(
        self, request: GenerateRequest, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> str:
        """The prompt with IMAGE_PLACEHOLDER where each image goes. Templates that want contents as
        lists of parts get the text with its placeholders as the one part, as in llama.cpp's server:
        what stands around an image the projector says, not the template."""
        self._check_images(request)
        expected, found = len(images_of(request)), 0
        faults: list[ModelfileError | InvalidRequest] = []
        for shape in (str, content_parts):
            shaped = [{**message, "content": shape(message["content"])} for message in messages]
            try:
                text = self._conversation(request, shaped, options)
            except (ModelfileError, InvalidRequest) as fault:
                faults.append(fault)
                continue
            found = text.count(IMAGE_PLACEHOLDER)
            if found == expected:
                return text
        if len(faults) > 1:
            raise faults[0]
        raise InvalidRequest(
            f"the model's chat template writes {found} of the {expected} images of these messages; "
            "send them with the user's messages, or use another template",
            param="messages",
        )

    def _check_images(self, request: GenerateRequest) -> None:
        if self._images is None:
            raise InvalidRequest(
                "this model cannot process images; use one with a projector", param="messages"
            )
        for message in request.messages or ():
            if message.content.count(IMAGE_PLACEHOLDER) != len(message.images):
                raise InvalidRequest(
                    f"a message has {len(message.images)} images and "
                    f"{message.content.count(IMAGE_PLACEHOLDER)} places for them",
                    param="messages",
                )

    def _template_for(self, request: GenerateRequest) -> ChatTemplate:
        """The template of the request, else the model file's. Raises InvalidRequest for a faulty
        one."""
        source = request.template
        if source is None:
            return self._template
        if source not in self._requested:
            try:
                self._requested[source] = compile_template(source, self._bos, self._eos)
            except ModelfileError as error:
                raise InvalidRequest(f"the template: {error}", param="template") from error
            if len(self._requested) > MAX_COMPILED_TEMPLATES:
                self._requested.popitem(last=False)
        self._requested.move_to_end(source)
        return self._requested[source]

    def _continued(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: dict[str, Any],
        template: ChatTemplate,
    ) -> str:
        """The prompt up to the end of the last message's content. A marker is put there and looked
        for in what the template makes of it: what follows would end the turn."""
        marker = absent_marker(messages)
        content = with_marker(messages[-1]["content"], marker)
        if template.capabilities.optional_generation_prompt:
            options = {**options, "add_generation_prompt": False}
        whole = template.render([*messages[:-1], {**messages[-1], "content": content}],
                                      tools, **options)  # fmt: skip
        text, found, _ = whole.rpartition(marker)
        if not found:
            raise InvalidRequest(
                "the model's chat template does not render the last message, so it cannot be "
                "continued",
                param="messages",
            )
        return text.replace(marker, "")

    def _fill(
        self, messages: Sequence[Message], options: dict[str, Any], template: ChatTemplate
    ) -> str:
        """The prompt for the text between the last message and options["suffix"]."""
        suffix = str(options.pop("suffix"))
        if any(message.images for message in messages):
            raise Unsupported("images cannot be combined with a suffix", param="suffix")
        if not template.capabilities.insert:
            raise InvalidRequest(
                "the model's template does not support a suffix: it does not use .Suffix",
                param="suffix",
            )
        return template.fill(messages[-1].content if messages else "", suffix, **options)

    def encode(self, request: GenerateRequest, max_tokens: int | None = None) -> list[int]:
        """The prompt's token ids. Raises as prepare does."""
        return self.prepare(request, max_tokens)[0]

    def prepare(
        self,
        request: GenerateRequest,
        max_tokens: int | None = None,
        max_chars: int | None = None,
    ) -> tuple[list[int], str]:
        """The prompt's token ids, with negative numbers in place of images (runner.worker.images),
        and the tag with which the template has begun the answer's reasoning, "" when it has not.
        max_tokens: see Tokenizer.encode. max_chars: of a longer text, only its ends are encoded.
        Raises InvalidRequest, TooManyTokens."""
        if request.tokens is not None:
            return list(request.tokens), ""
        if request.infill is not None:
            return self.fill_in(request.infill), ""
        if max_tokens is not None:
            self._check_length(request, max_tokens)
        text = self.render(request)
        prefix = _begun_reasoning(request, text)
        head, *rest = text.split(IMAGE_PLACEHOLDER) if images_of(request) else [text]
        if max_chars is not None and len(head) > max_chars:
            half = max_chars // 2
            tokens = [*request.preceding, *self.encode_text(head[:half])]
            return tokens + self._encode(head[-half:], None), prefix
        if request.preceding:
            tokens = [*request.preceding, *self._encode(head, max_tokens)]
        else:
            tokens = self.encode_text(head, max_tokens)
        for image, piece in zip(images_of(request), rest, strict=True):
            assert self._images is not None
            tokens += self._images.tokens(image)
            tokens += self._encode(piece, max_tokens)
        return tokens, prefix

    def _check_length(self, request: GenerateRequest, max_tokens: int) -> None:
        """Refuse what cannot fit before a template makes copies of it. Blanks around a message may
        be left out by the template. Raises TooManyTokens."""
        told = (_told(one, request.reasoning_tags) for one in request.messages or ())
        least = sum(self._tokenizer.min_tokens(content.strip()) for content in told)
        if least > max_tokens:
            raise TooManyTokens(least, [])

    def fill_in(self, infill: Infill, max_tokens: int | None = None) -> list[int]:
        """See infill_tokens."""
        return infill_tokens(self._tokenizer, infill, max_tokens)

    def encode_text(self, text: str, max_tokens: int | None = None) -> list[int]:
        """Token ids of a whole prompt: control tokens in it count, and BOS comes first where
        the model wants one and the text does not begin with it. Raises as prepare does."""
        add_bos = not (self._bos and text.startswith(self._bos))
        return self._encode(text, max_tokens, add_bos=add_bos)

    @cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """The tokens that the vocabulary puts around a text: all of them, and those behind it."""
        empty, some = self.encode_text(""), self.encode_text("a")
        pairs = zip(reversed(empty), reversed(some), strict=False)
        behind = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return empty, empty[len(empty) - behind :]

    def _encode(self, text: str, max_tokens: int | None, *, add_bos: bool = False) -> list[int]:
        return self._tokenizer.encode(
            text, add_bos=add_bos, parse_special=True, max_tokens=max_tokens
        )


def _compile(
    source: str | None, with_tools: str | None, bos: str | None, eos: str | None, engine: str | None
) -> ChatTemplate:
    if source is None:
        return PlainTemplate()
    try:
        if with_tools is not None:
            return NamedTemplates({DEFAULT: source, TOOL_USE: with_tools}, bos, eos)
        return compile_template(source, bos, eos, engine)
    except ModelfileError as fault:
        log.warning("the model's chat template cannot be used: %s", fault)
        return BrokenTemplate(fault)


def _told(message: Message, tags: tuple[str, str] | None) -> str:
    """What a template does not leave out of a message: of an assistant's that which is not between
    tags of reasoning, and nothing where it calls tools."""
    if message.role != "assistant":
        return message.content
    if message.tool_calls:
        return ""
    if tags is None:
        return message.content
    opening, closing = tags
    return message.content.rpartition(closing)[2].partition(opening)[0]


def _begun_reasoning(request: GenerateRequest, prompt: str) -> str:
    """The tag with which a prompt ends that begins the reasoning; "": it does not."""
    if request.messages is None or request.reasoning_tags is None:
        return ""
    opening, _ = request.reasoning_tags
    return opening if prompt.rstrip().endswith(opening) else ""


def _text(tokenizer: Tokenizer, token: int | None) -> str | None:
    return None if token is None else tokenizer.text(token)


def inputs_to_tokens(
    inputs: Sequence[Any], prompts: PromptEncoder, max_tokens: int, *, truncate: bool
) -> list[list[int]]:
    """Inputs of an embedding, strings or lists of ids, as ids. truncate: what is longer than
    max_tokens is cut, a string before the tokens that end it. Raises InvalidRequest,
    TooManyTokens."""
    result = []
    for item in inputs:
        pause()
        if isinstance(item, str):
            try:
                tokens = prompts.encode_text(item, max_tokens)
            except TooManyTokens as long:
                if not truncate or len(long.tokens) < max_tokens:
                    raise
                tokens = long.tokens
            if truncate and len(tokens) > max_tokens:
                tokens = _cut(tokens, prompts, max_tokens)
            result.append(tokens)
        elif isinstance(item, list) and all(type(token) is int for token in item):
            result.append(item)
        else:
            raise InvalidRequest("each input must be a string or a list of tokens", param="input")
    return result


def _cut(tokens: list[int], prompts: PromptEncoder, max_tokens: int) -> list[int]:
    """The beginning of a text in its frame. Raises InvalidRequest where there is no room for any
    of it."""
    frame, behind = prompts.frame
    if max_tokens <= len(frame):
        raise InvalidRequest(
            "the input after truncation exceeds maximum context length: of the "
            f"{max_tokens} tokens of the context the model needs {len(frame)} itself",
            param="num_ctx",
        )
    return tokens[: max_tokens - len(behind)] + behind
