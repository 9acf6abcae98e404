"""How much of a prompt others may know: what comes of the turns that hold no secret.

Those are a Modelfile's own, which everybody may read, and system messages that an admin shares.
The template decides where they are in the prompt, so it is asked.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from runner.backends.backend import TooManyTokens
from runner.errors import InvalidRequest
from runner.token_prefix import common_prefix
from runner.types import GenerateRequest, Message
from runner.worker.prompts import PromptEncoder

MAX_PREFIXES = 64  # of the models that share these weights
_QUESTIONS = ("a", "0")  # what a user may say: the prompts agree in what comes before it


class PublicPrefixes:
    """Of the prompts of one model."""

    def __init__(self, prompts: PromptEncoder) -> None:
        self._prompts = prompts
        self._known: OrderedDict[Any, array[int]] = OrderedDict()  # the last used is the last

    def count(self, request: GenerateRequest, tokens: Sequence[int]) -> int:
        """How many of the first tokens of its prompt hold nothing else than the request's first
        public_messages and what the template always writes. shared_prefix: its tools as well, and
        a text as a whole."""
        if request.messages is None:
            return len(tokens) if request.shared_prefix and request.infill is None else 0
        if not request.public_messages or request.preceding:
            return 0
        prefix = self._prefix(request)
        return common_prefix(prefix, array("i", tokens[: len(prefix)]), len(prefix))

    def _prefix(self, request: GenerateRequest) -> array[int]:
        messages = (request.messages or ())[: request.public_messages]
        tools = request.tools if request.shared_prefix else ()
        said = tuple((message.role, message.content) for message in messages)
        options = repr(request.template_options)
        key = (date.today(), request.template, options, said, repr(tools))  # templates may date
        prefix = self._known.pop(key, None)
        if prefix is None:
            prefix = self._rendered(replace(request, tools=tools), messages)
        self._known[key] = prefix
        if len(self._known) > MAX_PREFIXES:
            self._known.popitem(last=False)
        return prefix

    def _rendered(self, request: GenerateRequest, messages: tuple[Message, ...]) -> array[int]:
        """What the prompts of all questions after messages begin with."""
        found = []
        for question in _QUESTIONS:
            asked = (*messages, Message("user", question))
            try:
                tokens = self._prompts.encode(replace(request, messages=asked, continues=False))
            except (InvalidRequest, TooManyTokens):  # the template wants something else after them
                return array("i")
            found.append(array("i", tokens))
        first, second = found
        return first[: common_prefix(first, second, len(first))]
