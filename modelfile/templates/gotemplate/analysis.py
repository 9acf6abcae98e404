"""What a Go template reveals about the model: the variables it reads, the tags around thinking and
tool calls; and the template up to the answer.

The rules are Ollama's (template.Identifiers, thinking.InferTags, tools.parseTag,
template.deleteNode).
"""

from __future__ import annotations

from collections.abc import Iterator

from modelfile.templates.gotemplate import nodes
from modelfile.templates.gotemplate.nodes import ListNode, Node, PipeNode, Trees


def identifiers(trees: Trees) -> frozenset[str]:
    """The names of fields and variables, in lower case."""
    return frozenset(name.lower() for body in trees.values() for name in _names(body))


def _names(node: Node | None) -> Iterator[str]:
    if isinstance(node, ListNode):
        for child in node.nodes:
            yield from _names(child)
    elif isinstance(node, nodes.ActionNode | nodes.TemplateNode):
        yield from _names(node.pipe)
    elif isinstance(node, nodes.BranchNode):
        for part in (node.pipe, node.body, node.or_else):
            yield from _names(part)
    elif isinstance(node, PipeNode):
        for command in node.commands:
            for argument in command.arguments:
                yield from _names(argument)
    elif isinstance(node, nodes.FieldNode | nodes.VariableNode):
        yield from node.names


def thinking_tags(root: ListNode) -> tuple[str, str] | None:
    """The text before and after .Thinking within a range over .Messages; None without both."""
    opening = closing = ""
    for body, over_messages in _thinking(root, False):
        if over_messages:
            first, last = body.nodes[0], body.nodes[-1]
            opening = first.text.strip() if isinstance(first, nodes.TextNode) else opening
            closing = last.text.strip() if isinstance(last, nodes.TextNode) else closing
    return (opening, closing) if opening and closing else None


def _thinking(body: ListNode, over_messages: bool) -> Iterator[tuple[ListNode, bool]]:
    """The bodies with an action that reads .Thinking, with whether the nearest range is over
    .Messages."""
    for node in body.nodes:
        if isinstance(node, nodes.ActionNode | nodes.TemplateNode):
            if node.pipe is not None and _reads(node.pipe, "Thinking"):
                yield body, over_messages
        elif isinstance(node, nodes.BranchNode):
            inner = over_messages
            if node.keyword == "range":
                inner = _reads(node.pipe, "Messages")
            for part in (node.body, node.or_else):
                if part is not None:
                    yield from _thinking(part, inner)


def tool_call_tags(root: ListNode) -> tuple[str, str | None] | None:
    """What the template writes before the first call within an if over .ToolCalls, up to a brace,
    and after the last one without closing brackets; None where it writes nothing before."""
    calls = _over_calls(root)
    if calls is None:
        return None
    tag = (_first_text(calls.nodes) or "").strip().replace("\r\n", "\n").split("{")[0].strip()
    ends = [text.strip().lstrip("]}").strip() for text in _last_texts(calls.nodes)]
    end = next((text for text in ends if text), None)
    return (tag, None if end == tag else end) if tag else None


def _over_calls(body: ListNode) -> ListNode | None:
    """The body of the first if that reads .ToolCalls."""
    for node in body.nodes:
        if not isinstance(node, nodes.BranchNode):
            continue
        if node.keyword == "if" and _mentions(node.pipe, "ToolCalls"):
            return node.body
        for part in (node.body, node.or_else):
            if part is not None and (found := _over_calls(part)) is not None:
                return found
    return None


def _mentions(pipe: PipeNode, name: str) -> bool:
    """Whether a field or a variable of pipe has that name anywhere."""
    return any(
        _mentions(argument, name)
        if isinstance(argument, PipeNode)
        else name in getattr(argument, "names", ())
        for command in pipe.commands
        for argument in command.arguments
    )


def _first_text(body: list[Node]) -> str | None:
    """The first text, if no action precedes it."""
    for node in body:
        if isinstance(node, nodes.TextNode):
            return node.text
        if isinstance(node, nodes.BranchNode):
            inner = _first_text(node.body.nodes)
            if inner is None and node.or_else is not None:
                inner = _first_text(node.or_else.nodes)
            return inner
        if isinstance(node, nodes.ActionNode):
            return None
    return None


def _last_texts(body: list[Node]) -> Iterator[str]:
    """The texts after the last action, from the last one on."""
    for node in reversed(body):
        if isinstance(node, nodes.TextNode):
            yield node.text
        elif isinstance(node, nodes.BranchNode):
            yield from _last_texts(node.body.nodes)
            return
        else:
            return


def _reads(pipe: PipeNode, name: str) -> bool:
    """Whether a field of that name is read from dot."""
    return any(
        argument.names[0] == name
        if isinstance(argument, nodes.FieldNode)
        else isinstance(argument, PipeNode) and _reads(argument, name)
        for command in pipe.commands
        for argument in command.arguments
    )


def up_to_response(root: ListNode) -> ListNode:
    """The template without what follows the first .Response, which itself stays."""
    return _Cut().body(root)


class _Cut:
    def __init__(self) -> None:
        self._done = False

    def body(self, body: ListNode) -> ListNode:
        """The part of a body that stays."""
        parts: list[Node] = []
        for node in body.nodes:
            if self._done:
                break
            part = self._node(node)
            if part is not None:
                parts.append(part)
        return ListNode(body.position, parts)

    def _node(self, node: Node) -> Node | None:
        if isinstance(node, nodes.BranchNode):
            inner = self.body(node.body)
            or_else = None
            if node.or_else is not None and not self._done:
                or_else = self.body(node.or_else)
            return nodes.BranchNode(node.position, node.keyword, node.pipe, inner, or_else)
        if isinstance(node, nodes.ActionNode):
            pipe = self._pipe(node.pipe)
            return None if pipe is None else nodes.ActionNode(node.position, pipe)
        return node

    def _pipe(self, pipe: PipeNode) -> PipeNode | None:
        """None when a whole command comes after the answer: Ollama drops the pipeline then."""
        commands = []
        for command in pipe.commands:
            given = [self._argument(a) for a in command.arguments if not self._done]
            arguments = [argument for argument in given if argument is not None]
            if not arguments:
                return None
            commands.append(nodes.CommandNode(command.position, arguments))
        return PipeNode(pipe.position, pipe.variables, pipe.assigns, commands)

    def _argument(self, node: Node) -> Node | None:
        if isinstance(node, PipeNode):
            return self._pipe(node)
        if isinstance(node, nodes.FieldNode) and "Response" in node.names:
            self._done = True
        return node
