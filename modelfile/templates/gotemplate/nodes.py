"""The tree of a Go template. str(node) is what the node looks like in error messages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Node:
    """Any node. position: offset in the source, in characters."""

    position: int


@dataclass(slots=True)
class Text(Node):
    """Text that is written as it stands."""

    text: str


@dataclass(slots=True)
class Bool(Node):
    """true or false"""

    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(slots=True)
class Dot(Node):
    """."""

    def __str__(self) -> str:
        return "."


@dataclass(slots=True)
class Nil(Node):
    """nil"""

    def __str__(self) -> str:
        return "nil"


@dataclass(slots=True)
class String(Node):
    """A quoted or raw string. source: with its quotes."""

    source: str
    value: str

    def __str__(self) -> str:
        return self.source


@dataclass(slots=True)
class Number(Node):
    """A number or a character. Each field is None when the number cannot be of that type."""

    source: str
    integer: int | None = None
    floating: float | None = None
    complex_: complex | None = None

    def __str__(self) -> str:
        return self.source


@dataclass(slots=True)
class Identifier(Node):
    """The name of a function."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Variable(Node):
    """$x.a.b: names[0] is "$x"."""

    names: list[str]

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(slots=True)
class Field(Node):
    """.a.b"""

    names: list[str]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


@dataclass(slots=True)
class Chain(Node):
    """(pipeline).a.b"""

    node: Node
    names: list[str]

    def __str__(self) -> str:
        inner = f"({self.node})" if isinstance(self.node, Pipe) else str(self.node)
        return inner + "".join(f".{name}" for name in self.names)


@dataclass(slots=True)
class Command(Node):
    """A function or a value, and what is given to it."""

    arguments: list[Node]

    def __str__(self) -> str:
        return " ".join(f"({a})" if isinstance(a, Pipe) else str(a) for a in self.arguments)


@dataclass(slots=True)
class Pipe(Node):
    """Commands joined by |, after variables that are declared or assigned."""

    variables: list[Variable]
    assigns: bool
    commands: list[Command]

    def __str__(self) -> str:
        names = ", ".join(map(str, self.variables))
        head = f"{names} {'=' if self.assigns else ':='} " if names else ""
        return head + " | ".join(map(str, self.commands))


@dataclass(slots=True)
class Action(Node):
    """{{ pipeline }}"""

    pipe: Pipe

    def __str__(self) -> str:
        return f"{{{{{self.pipe}}}}}"


@dataclass(slots=True)
class Body(Node):
    """Nodes one after the other."""

    nodes: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Branch(Node):
    """What if, with and range have in common. or_else: None without {{else}}."""

    pipe: Pipe
    body: Body
    or_else: Body | None


class If(Branch):
    """{{if}}"""

    __slots__ = ()


class With(Branch):
    """{{with}}"""

    __slots__ = ()


class Range(Branch):
    """{{range}}"""

    __slots__ = ()


@dataclass(slots=True)
class Call(Node):
    """{{template name pipeline}}; pipe: None when nothing is passed."""

    name: str
    pipe: Pipe | None

    def __str__(self) -> str:
        given = f" {self.pipe}" if self.pipe is not None else ""
        return f'{{{{template "{self.name}"{given}}}}}'


@dataclass(slots=True)
class Break(Node):
    """{{break}}"""


@dataclass(slots=True)
class Continue(Node):
    """{{continue}}"""


@dataclass(slots=True)
class End(Node):
    """{{end}}, gone when the tree is built."""

    def __str__(self) -> str:
        return "{{end}}"


@dataclass(slots=True)
class Else(Node):
    """{{else}}, gone when the tree is built."""

    def __str__(self) -> str:
        return "{{else}}"


Trees = dict[str, Body]
"""The templates of a source by name; "" is the main one."""
