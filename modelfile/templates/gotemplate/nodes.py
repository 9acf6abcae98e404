"""The tree of a Go template. str(node) is what the node looks like in error messages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Node:
    """Any node. position: offset in the source, in characters."""

    position: int


@dataclass(slots=True)
class TextNode(Node):
    """Text that is written unchanged."""

    text: str


@dataclass(slots=True)
class DotNode(Node):
    """."""

    def __str__(self) -> str:
        return "."


@dataclass(slots=True)
class ConstantNode(Node):
    """A string, a number, true, false or nil, whose value is None. source: as it is written."""

    source: str
    value: str | float | bool | None

    def __str__(self) -> str:
        return self.source


@dataclass(slots=True)
class IdentifierNode(Node):
    """The name of a function."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class VariableNode(Node):
    """$x.a.b: names[0] is "$x"."""

    names: list[str]

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(slots=True)
class FieldNode(Node):
    """.a.b"""

    names: list[str]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


@dataclass(slots=True)
class ChainNode(Node):
    """(pipeline).a.b"""

    node: Node
    names: list[str]

    def __str__(self) -> str:
        inner = f"({self.node})" if isinstance(self.node, PipeNode) else str(self.node)
        return inner + "".join(f".{name}" for name in self.names)


@dataclass(slots=True)
class CommandNode(Node):
    """A function or a value, and what is given to it."""

    arguments: list[Node]

    def __str__(self) -> str:
        return " ".join(f"({a})" if isinstance(a, PipeNode) else str(a) for a in self.arguments)


@dataclass(slots=True)
class PipeNode(Node):
    """Commands joined by |, after variables that are declared or assigned."""

    variables: list[VariableNode]
    assigns: bool
    commands: list[CommandNode]

    def __str__(self) -> str:
        names = ", ".join(map(str, self.variables))
        head = f"{names} {'=' if self.assigns else ':='} " if names else ""
        return head + " | ".join(map(str, self.commands))


@dataclass(slots=True)
class ActionNode(Node):
    """{{ pipeline }}"""

    pipe: PipeNode

    def __str__(self) -> str:
        return f"{{{{{self.pipe}}}}}"


@dataclass(slots=True)
class ListNode(Node):
    """Nodes one after the other."""

    nodes: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class BranchNode(Node):
    """if, with and range. or_else: None without {{else}}."""

    keyword: str
    pipe: PipeNode
    body: ListNode
    or_else: ListNode | None


@dataclass(slots=True)
class TemplateNode(Node):
    """{{template name pipeline}}; pipe: None when nothing is passed."""

    name: str
    pipe: PipeNode | None

    def __str__(self) -> str:
        given = f" {self.pipe}" if self.pipe is not None else ""
        return f'{{{{template "{self.name}"{given}}}}}'


@dataclass(slots=True)
class WordNode(Node):
    """{{break}} and {{continue}}; {{end}} and {{else}}, which are gone when the tree is built."""

    word: str

    def __str__(self) -> str:
        return f"{{{{{self.word}}}}}"


Trees = dict[str, ListNode]
"""The templates of a source by name; "" is the main one."""
