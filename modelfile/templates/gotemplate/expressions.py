"""Pipelines, commands and their arguments, compiled to closures.

A closure takes the frame (variables) and dot, and gives a value. Walking the tree for every
message of a long conversation would cost about three times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from modelfile.templates.budget import Budget
from modelfile.templates.gotemplate import nodes
from modelfile.templates.gotemplate.access import fault, get_fields, refuse_arguments
from modelfile.templates.gotemplate.builtins import REPEATABLE, TemplateFunction
from modelfile.templates.gotemplate.errors import CallFault, ExecFault
from modelfile.templates.gotemplate.nodes import CommandNode, Node, PipeNode
from modelfile.templates.gotemplate.values import ANY, NIL, GoStruct, truth, type_name

_LARGE: Final = 512


class Execution:
    """One rendering: what is written and what is left to spend."""

    __slots__ = ("budget", "out", "size")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.out: list[str] = []
        self.size = 0

    def write(self, text: str) -> None:
        """Add to the output. Raises LimitExceeded."""
        self.out.append(text)
        self.size += len(text)
        if self.size > self.budget.value_size:
            self.budget.check_size(self.size)


class Frame:
    """The variables of one template under way; slots[0] is $. depth: of calls."""

    __slots__ = ("depth", "run", "slots")

    def __init__(self, run: Execution, slots: list[Any], depth: int) -> None:
        self.run = run
        self.slots = slots
        self.depth = depth


Evaluate = Callable[[Frame, Any], Any]
Access = nodes.FieldNode | nodes.VariableNode | nodes.ChainNode


class VariableScope:
    """Which variables are in sight, and where their values are."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = [("$", 0)]
        self.slots = 1

    def declare(self, name: str) -> int:
        """A new variable, which hides one of the same name."""
        self.names.append((name, self.slots))
        self.slots += 1
        return self.slots - 1

    def find(self, name: str) -> int | None:
        """The slot of a variable; None: there is none here."""
        return next((slot for known, slot in reversed(self.names) if known == name), None)


class Expressions:
    """Compiles the expressions of one template."""

    def __init__(self, scope: VariableScope, functions: Mapping[str, TemplateFunction]) -> None:
        self._scope = scope
        self._functions = functions

    def pipe(self, pipe: PipeNode) -> Evaluate:
        """The value of a pipeline, None for nothing; declared variables get it."""
        value = self._commands(pipe.commands)
        slots = [self.target(pipe, variable) for variable in pipe.variables]
        if not slots:
            return value

        def assign(frame: Frame, dot: Any) -> Any:
            given = value(frame, dot)
            for slot in slots:
                if slot is None:
                    raise fault(f"undefined variable: {pipe.variables[0].names[0]}", pipe)
                frame.slots[slot] = given
            return given

        return assign

    def target(self, pipe: PipeNode, variable: nodes.VariableNode) -> int | None:
        """The slot that a declaration or an assignment fills."""
        if pipe.assigns:
            return self._scope.find(variable.names[0])
        return self._scope.declare(variable.names[0])

    def _commands(self, commands: list[CommandNode]) -> Evaluate:
        value: Evaluate | None = None
        for command in commands:
            value = _concrete(self._command(command, value))
        assert value is not None
        return value

    def _command(self, command: CommandNode, previous: Evaluate | None) -> Evaluate:
        """A command; previous gives its last argument."""
        first = command.arguments[0]
        given = len(command.arguments) > 1 or previous is not None
        if isinstance(first, nodes.IdentifierNode):
            return self._call(first, command, command.arguments[1:], previous)
        if isinstance(first, nodes.FieldNode | nodes.ChainNode | nodes.VariableNode) and given:
            if isinstance(first, nodes.VariableNode) and len(first.names) == 1:
                return _failing(f"can't give argument to non-function {first}", first, previous)
            return _after(previous, self._fields_with_arguments(first))
        if given:
            return _failing(f"can't give argument to non-function {first}", first, previous)
        if _is_nil(first):
            return _failing("nil is not a command", first)
        return self.operand(first)

    def _fields_with_arguments(self, node: Access) -> Evaluate:
        owner, names = self._owner(node)

        def refuse(frame: Frame, dot: Any) -> Any:
            refuse_arguments(owner(frame, dot), names, node)

        return refuse

    def operand(self, node: Node) -> Evaluate:
        """A value that stands for itself, whatever is wanted."""
        if isinstance(node, nodes.DotNode):
            return _dot
        if isinstance(node, nodes.FieldNode | nodes.VariableNode | nodes.ChainNode):
            owner, names = self._owner(node)
            return _access(owner, names, node) if names else owner
        if isinstance(node, nodes.PipeNode):
            return self.pipe(node)
        if isinstance(node, nodes.IdentifierNode):
            return self._call(node, node, [], None)
        assert isinstance(node, nodes.ConstantNode)
        return _constant(node.value)

    def _owner(self, node: Access) -> tuple[Evaluate, list[str]]:
        """What has the first of the fields, and the names of these."""
        if isinstance(node, nodes.FieldNode):
            return _dot, node.names
        if isinstance(node, nodes.VariableNode):
            slot = self._scope.find(node.names[0])
            if slot is None:
                return _failing(f"undefined variable: {node.names[0]}", node), node.names[1:]
            return lambda frame, _dot: frame.slots[slot], node.names[1:]
        if _is_nil(node.node):
            return _failing(f"indirection through explicit nil in {node}", node), node.names
        return self.operand(node.node), node.names

    def _call(
        self,
        name: nodes.IdentifierNode,
        node: Node,
        arguments: list[Node],
        previous: Evaluate | None,
    ) -> Evaluate:
        function = self._functions[name.name]
        given = len(arguments) + (previous is not None)
        wrong = _wrong_count(name.name, function, given, len(arguments))
        if wrong is not None:
            return _failing(wrong, name, previous)
        values = [
            self._argument(argument, function.parameter(number))
            for number, argument in enumerate(arguments)
        ]
        last = None if previous is None else _checked(previous, function.parameter(given - 1), node)
        if name.name in ("and", "or"):
            return _logic(values, last, wanted=name.name == "or")
        return _called(function, name.name, node, values, last)

    def _argument(self, node: Node, wanted: str) -> Evaluate:
        """An argument of a function; wanted: see TemplateFunction.parameters."""
        if not isinstance(node, nodes.ConstantNode):
            return _checked(self.operand(node), wanted, node)
        if wanted != "string" or isinstance(node.value, str):
            return _constant(node.value)
        if node.value is None:
            return _failing("cannot assign nil to string", node)
        return _failing(f"expected string; found {node}", node)


def _is_nil(node: Node) -> bool:
    return isinstance(node, nodes.ConstantNode) and node.value is None


def _dot(_frame: Frame, dot: Any) -> Any:
    return dot


def _constant(value: Any) -> Evaluate:
    return lambda _frame, _dot: value


def _failing(message: str, node: Node, previous: Evaluate | None = None) -> Evaluate:
    def fail(_frame: Frame, _dot: Any) -> Any:
        raise fault(message, node)

    return _after(previous, fail)


def _after(previous: Evaluate | None, value: Evaluate) -> Evaluate:
    """value, once the command before it has been carried out."""
    if previous is None:
        return value

    def both(frame: Frame, dot: Any) -> Any:
        previous(frame, dot)
        return value(frame, dot)

    return both


def _concrete(value: Evaluate) -> Evaluate:
    """Nothing in an interface is nothing, at the end of every command."""

    def dig(frame: Frame, dot: Any) -> Any:
        found = value(frame, dot)
        return None if found is NIL else found

    return dig


def _access(owner: Evaluate, names: list[str], node: Node) -> Evaluate:
    """The fields of what owner gives; a single one, as nearly all are, without a call more."""
    if len(names) > 1:
        return lambda frame, dot: get_fields(owner(frame, dot), names, node)
    name = names[0]

    def one(frame: Frame, dot: Any) -> Any:
        value = dot if owner is _dot else owner(frame, dot)
        if isinstance(value, GoStruct):
            try:
                return value.fields[name]
            except KeyError:
                pass
        elif type(value) is dict:
            return value.get(name, NIL)
        return get_fields(value, names, node)

    return one


def _checked(value: Evaluate, wanted: str, node: Node) -> Evaluate:
    """value as a parameter of the kind wanted takes it."""
    if wanted == "value":
        return value
    if wanted == "any":
        return _concrete(value)

    def string(frame: Frame, dot: Any) -> Any:
        given = value(frame, dot)
        if isinstance(given, str):
            return given
        if given is None:
            raise fault("invalid value; expected string", node)
        name = ANY if given is NIL else type_name(given)
        raise fault(f"wrong type for value; expected string; got {name}", node)

    return string


def _wrong_count(name: str, function: TemplateFunction, given: int, named: int) -> str | None:
    if function.variadic:
        least = REPEATABLE.get(name, 0)
        return None if given >= least else (
            f"wrong number of args for {name}: want at least {least} got {named}")  # fmt: skip
    wanted = len(function.parameters)
    return None if given == wanted else (
        f"wrong number of args for {name}: want {wanted} got {given}")  # fmt: skip


def _logic(values: list[Evaluate], last: Evaluate | None, wanted: bool) -> Evaluate:
    """The first of values that is as wanted, else the last one."""

    def logic(frame: Frame, dot: Any) -> Any:
        final = None if last is None else last(frame, dot)
        found = None
        for value in values:
            found = value(frame, dot)
            if truth(found) == wanted:
                return found
        return found if last is None else final

    return logic


def _called(
    function: TemplateFunction,
    name: str,
    node: Node,
    values: list[Evaluate],
    last: Evaluate | None,
) -> Evaluate:
    """A call. last: its last argument, computed first, for it comes from the command before."""
    if name == "eq" and last is None and len(values) == 2:
        return _compared(function, node, *values)
    call = function.call

    def apply(frame: Frame, dot: Any) -> Any:
        final = None if last is None else last(frame, dot)
        arguments = [value(frame, dot) for value in values]
        if last is not None:
            arguments.append(final)
        try:
            return _counted(frame, call, arguments)
        except CallFault as error:
            raise _refused(name, error, node) from error

    return apply


def _compared(function: TemplateFunction, node: Node, left: Evaluate, right: Evaluate) -> Evaluate:
    """eq of two, which templates do most."""
    call = function.call

    def compare(frame: Frame, dot: Any) -> Any:
        first, other = left(frame, dot), right(frame, dot)
        if type(first) is str and type(other) is str and len(first) < _LARGE:
            return first == other
        try:
            return _counted(frame, call, [first, other])
        except CallFault as error:
            raise _refused("eq", error, node) from error

    return compare


def _refused(name: str, error: CallFault, node: Node) -> ExecFault:
    return fault(f"error calling {name}: {error}", node)


def _counted(frame: Frame, call: Callable[..., Any], arguments: list[Any]) -> Any:
    budget = frame.run.budget
    budget.steps(1)
    for argument in arguments:
        if isinstance(argument, str) and len(argument) > _LARGE:
            budget.read(argument)
    value = call(budget, *arguments)
    if isinstance(value, str) and len(value) > _LARGE:
        return budget.keep(value)
    return value
