"""Chat templates in Go, rendered as Ollama renders them.

Consecutive messages of one role, tools apart, are one message; the system messages together are
.System. A template that reads neither .Messages nor .Response gets {{ .Response }} at its end.
One that does not read .Messages is rendered once for each turn, the last time up to .Response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget, measure
from modelfile.templates.chat_template import Capabilities, ChatTemplate, Conversation
from modelfile.templates.gotemplate import nodes, ollama
from modelfile.templates.gotemplate.analysis import (
    identifiers,
    thinking_tags,
    tool_call_tags,
    up_to_response,
)
from modelfile.templates.gotemplate.template import GoTemplate
from modelfile.templates.gotemplate.values import clean

_LEVELS: Final = ("low", "medium", "high", "max")


class GoChatTemplate(ChatTemplate):
    """A compiled template of Ollama's kind."""

    def __init__(self, source: str, bos: str | None = None, eos: str | None = None) -> None:
        """Compile source. bos, eos: taken for the sake of Jinja's interface, templates in Go do
        not see them. Raises TemplateError with the line."""
        template = GoTemplate(source, ollama.FUNCTIONS)
        variables = identifiers(template.trees)
        if not variables & {"messages", "response"}:
            root = template.trees[""]
            template = template.replaced(
                nodes.ListNode(root.position, [*root.nodes, _response(len(source))])
            )
        self._template = template
        self.keeps_system_turns = True  # where .System has them, as in Ollama
        tags = thinking_tags(template.trees[""])
        self.capabilities = Capabilities(
            tools="tools" in variables,
            thinking=tags is not None,
            insert="suffix" in variables,
            thinking_tags=tags,
            tool_call_tags=tool_call_tags(template.trees[""]),
        )
        self._by_turn = "messages" not in variables
        self._last = (
            template.replaced(up_to_response(template.trees[""])) if self._by_turn else template
        )

    def _render(self, given: Conversation) -> str:
        """See ChatTemplate. options: think (or enable_thinking), a bool or low, medium, high,
        max."""
        if not given.add_generation_prompt:
            raise TemplateError(
                "a Go template always adds the generation prompt; only a Jinja template can omit it"
            )
        try:
            return self._prompt(given, _thinking(given.options))
        except RecursionError as error:
            raise TemplateError("the messages or the tools are nested too deeply") from error

    def _prompt(self, given: Conversation, shared: dict[str, Any]) -> str:
        budget = Budget(measure([list(given.messages), list(given.tools or ())]))
        messages = [_message(message) for message in given.messages]
        _name_tools(messages)
        system, collated = _collated(messages)
        if self._by_turn:
            return self._turns(collated, shared, budget)
        data = {
            "System": system,
            "Messages": ollama.ApiMessages(collated) if collated else ollama.ApiMessages.nil(),
            "Tools": ollama.tools(given.tools),
            "Response": "",
            **shared,
        }
        return self._template.render(data, budget)

    def fill(self, prompt: str, suffix: str, **options: Any) -> str:
        """See ChatTemplate."""
        budget = Budget(len(prompt) + len(suffix))
        data = {"Prompt": clean(prompt), "Suffix": clean(suffix), "Response": ""}
        return self._template.render({**data, **_thinking(options)}, budget)

    def _turns(
        self, messages: list[ollama.ApiMessage], shared: dict[str, Any], budget: Budget
    ) -> str:
        parts = []
        *turns, last = _by_turn(messages)
        for turn in turns:
            parts.append(self._template.render({**turn, **shared}, budget))
            budget.check_size(sum(map(len, parts)))
        parts.append(self._last.render({**last, **shared}, budget))
        return "".join(parts)


def _response(position: int) -> nodes.ActionNode:
    field = nodes.FieldNode(position, ["Response"])
    pipe = nodes.PipeNode(position, [], False, [nodes.CommandNode(position, [field])])
    return nodes.ActionNode(position, pipe)


def _thinking(options: Mapping[str, Any]) -> dict[str, Any]:
    """Think, ThinkLevel and IsThinkSet."""
    given = options.get("think")
    if given is None:
        given = options.get("enable_thinking")
    level = given if isinstance(given, str) else options.get("reasoning_effort")
    known = level if level in _LEVELS else ""
    return {
        "Think": bool(given) and given != "false",
        "ThinkLevel": known if given is not False else "",
        "IsThinkSet": given is not None,
    }


def _message(given: Mapping[str, Any]) -> ollama.ApiMessage:
    role = given.get("role")
    if not isinstance(role, str):
        raise TemplateError("a message has no role; use system, user, assistant or tool")
    return ollama.message(clean(role.lower()), clean(_content(given.get("content"))), given)


def _name_tools(messages: list[ollama.ApiMessage]) -> None:
    """Give results of tools the name of the tool that was called with their id: OpenAI's clients
    send the id alone."""
    names: dict[str, str] = {}
    for message in messages:
        fields = message.fields
        for call in fields["ToolCalls"]:
            names[call.fields["ID"]] = call.fields["Function"].fields["Name"]
        if fields["Role"] == "tool" and not fields["ToolName"] and fields["ToolCallID"]:
            fields["ToolName"] = names.get(fields["ToolCallID"], "")


def _content(content: Any) -> str:
    """The text of a message; parts of a list are paragraphs, as Ollama has them."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n\n".join(_part(part) for part in content)
    raise TemplateError("the content of a message is neither text nor a list of parts")


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    if not isinstance(text, str):
        raise TemplateError("a part of a message's content is not text")
    return text


def _collated(messages: list[ollama.ApiMessage]) -> tuple[str, list[ollama.ApiMessage]]:
    """All system texts, and the messages with those of one role in a row made one."""
    system: list[str] = []
    collated: list[ollama.ApiMessage] = []
    for message in messages:
        fields = message.fields
        if fields["Role"] == "system":
            system.append(fields["Content"])
        last = collated[-1].fields if collated else None
        if last is not None and last["Role"] == fields["Role"] != "tool":
            last["Content"] += "\n\n" + fields["Content"]
        else:
            collated.append(message)
    return "\n\n".join(system), collated


def _by_turn(messages: list[ollama.ApiMessage]) -> Iterator[dict[str, Any]]:
    """System, Prompt and Response of each turn."""
    turn = {"System": "", "Prompt": "", "Response": ""}
    for message in messages:
        role, content = message.fields["Role"], message.fields["Content"]
        if role == "system":
            if turn["Prompt"] or turn["Response"]:
                yield turn
                turn = {"System": "", "Prompt": "", "Response": ""}
            turn["System"] = content
        elif role == "user":
            if turn["Response"]:
                yield turn
                turn = {"System": "", "Prompt": "", "Response": ""}
            turn["Prompt"] = content
        elif role == "assistant":
            turn["Response"] = content
    yield turn
