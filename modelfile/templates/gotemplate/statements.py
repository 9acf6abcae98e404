"""Text, actions, if, with, range and template calls, compiled to closures.

A statement writes to the run and gives None, or BREAK or CONTINUE, which end bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from modelfile.templates.gotemplate import nodes
from modelfile.templates.gotemplate.access import fault
from modelfile.templates.gotemplate.builtins import TemplateFunction
from modelfile.templates.gotemplate.expressions import (
    Evaluate,
    Execution,
    Expressions,
    Frame,
    VariableScope,
)
from modelfile.templates.gotemplate.formatter import sorted_keys, sprint
from modelfile.templates.gotemplate.lexer import quoted
from modelfile.templates.gotemplate.nodes import ListNode, Node, Trees
from modelfile.templates.gotemplate.values import Uint8, kind, truth

MAX_TEMPLATE_DEPTH: Final = 64  # of templates within templates; Go allows 100,000
BREAK: Final = 1
CONTINUE: Final = 2
Statement = Callable[[Frame, Any], int | None]


class TemplateSet:
    """The templates of one source, compiled."""

    def __init__(self, trees: Trees, functions: Mapping[str, TemplateFunction]) -> None:
        self.bodies: dict[str, tuple[Statement, int]] = {}
        for name, body in trees.items():
            statements = Statements(self, functions)
            compiled = statements.body(body)
            self.bodies[name] = (compiled, statements.scope.slots)

    def execute(self, name: str, run: Execution, data: Any, depth: int = 0) -> None:
        """Write the template of that name for data. Raises ExecFault, LimitExceeded; KeyError
        for a name that is not known."""
        body, slots = self.bodies[name]
        body(Frame(run, [data] + [None] * (slots - 1), depth), data)


class Statements:
    """Compiles the statements of one template."""

    def __init__(self, templates: TemplateSet, functions: Mapping[str, TemplateFunction]) -> None:
        self.scope = VariableScope()
        self._templates = templates
        self._expressions = Expressions(self.scope, functions)

    def body(self, body: ListNode | None) -> Statement:
        """A list of nodes."""
        compiled = [self._node(node) for node in body.nodes] if body is not None else []
        count = len(compiled) + 1

        def run(frame: Frame, dot: Any) -> int | None:
            frame.run.budget.steps(count)
            for statement in compiled:
                signal = statement(frame, dot)
                if signal:
                    return signal
            return None

        return run

    def _scoped(self, body: ListNode | None) -> Statement:
        """A body after which its variables are out of sight."""
        mark = len(self.scope.names)
        compiled = self.body(body)
        del self.scope.names[mark:]
        return compiled

    def _node(self, node: Node) -> Statement:
        return _COMPILERS[type(node)](self, node)

    def _text(self, node: nodes.TextNode) -> Statement:
        text = node.text

        def write(frame: Frame, _dot: Any) -> None:
            frame.run.write(text)

        return write

    def _action(self, node: nodes.ActionNode) -> Statement:
        value = self._expressions.pipe(node.pipe)
        if node.pipe.variables:

            def evaluate(frame: Frame, dot: Any) -> None:
                value(frame, dot)

            return evaluate

        def write(frame: Frame, dot: Any) -> None:
            given = value(frame, dot)
            if type(given) is not str:
                given = "<no value>" if given is None else sprint([given], pointed=True)
            frame.run.write(given)

        return write

    def _word(self, node: nodes.WordNode) -> Statement:
        signal = BREAK if node.word == "break" else CONTINUE
        return lambda _frame, _dot: signal

    def _branch(self, node: nodes.BranchNode) -> Statement:
        mark = len(self.scope.names)
        compiled = _BRANCHES[node.keyword](self, node)
        del self.scope.names[mark:]
        return compiled

    def _if(self, node: nodes.BranchNode) -> Statement:
        """if and its chain of else if, tried one after the other."""
        branches: list[tuple[Evaluate, Statement]] = []
        while True:
            condition = self._expressions.pipe(node.pipe)
            branches.append((condition, self._scoped(node.body)))
            match node.or_else:
                case ListNode(nodes=[nodes.BranchNode(keyword="if") as node]):
                    continue
            break
        last = None if node.or_else is None else self._scoped(node.or_else)

        def choose(frame: Frame, dot: Any) -> int | None:
            for condition, body in branches:
                if truth(condition(frame, dot)):
                    return body(frame, dot)
            return None if last is None else last(frame, dot)

        return choose

    def _with(self, node: nodes.BranchNode) -> Statement:
        value = self._expressions.pipe(node.pipe)
        body = self._scoped(node.body)
        last = self._scoped(node.or_else)

        def choose(frame: Frame, dot: Any) -> int | None:
            given = value(frame, dot)
            return body(frame, given) if truth(given) else last(frame, dot)

        return choose

    def _range(self, node: nodes.BranchNode) -> Statement:
        pipe = node.pipe
        value = self._expressions.pipe(pipe)
        slots = [self.scope.find(variable.names[0]) for variable in pipe.variables]
        body = self._scoped(node.body)
        last = self._scoped(node.or_else)

        def loop(frame: Frame, dot: Any) -> int | None:
            given = value(frame, dot)
            items = _items(given, len(slots), node)
            empty = True
            for place, element in items:
                empty = False
                _assign(frame, slots, place, element, pipe)
                if body(frame, element) == BREAK:
                    break
            return last(frame, dot) if empty else None

        return loop

    def _call(self, node: nodes.TemplateNode) -> Statement:
        value = self._expressions.pipe(node.pipe) if node.pipe is not None else None
        templates, name = self._templates, node.name

        def call(frame: Frame, dot: Any) -> None:
            if name not in templates.bodies:
                raise fault(f"template {quoted(name)} not defined", node)
            if frame.depth >= MAX_TEMPLATE_DEPTH:
                raise fault(f"exceeded maximum template depth ({MAX_TEMPLATE_DEPTH})", node)
            given = None if value is None else value(frame, dot)
            templates.execute(name, frame.run, given, frame.depth + 1)

        return call


def _assign(
    frame: Frame, slots: list[int | None], place: Any, element: Any, pipe: nodes.PipeNode
) -> None:
    """The variables of a range, before each turn."""
    if not slots:
        return
    for slot, value in zip(slots, (element,) if len(slots) == 1 else (place, element), strict=True):
        if slot is None:
            raise fault(f"undefined variable: {pipe.variables[0].names[0]}", pipe)
        frame.slots[slot] = value


def _items(value: Any, variables: int, node: nodes.BranchNode) -> Iterable[tuple[Any, Any]]:
    """What a range goes through: (index or key, element)."""
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, dict):
        return [(key, value[key]) for key in sorted_keys(value)]
    if isinstance(value, bytes):
        return [(place, Uint8(byte)) for place, byte in enumerate(value)]
    if value is None:
        return ()
    if kind(value) in ("int", "uint"):
        if variables > 1:
            raise fault(
                f"can't use {value} to iterate over more than one variable", _last(node.pipe)
            )
        return ((None, number) for number in range(value))
    raise fault(f"range can't iterate over {sprint([value])}", _last(node.pipe))


def _last(pipe: nodes.PipeNode) -> Node:
    return pipe.commands[-1].arguments[0]


_BRANCHES: Final = {"if": Statements._if, "with": Statements._with, "range": Statements._range}
_COMPILERS: Final[dict[type[Node], Callable[[Statements, Any], Statement]]] = {
    nodes.TextNode: Statements._text,
    nodes.ActionNode: Statements._action,
    nodes.WordNode: Statements._word,
    nodes.BranchNode: Statements._branch,
    nodes.TemplateNode: Statements._call,
}
