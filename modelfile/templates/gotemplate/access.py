"""Fields: .a.b of structs, maps and nothing at all (evalField of text/template/exec.go)."""

from __future__ import annotations

from typing import Any, Final

from modelfile.templates.gotemplate.errors import ExecFault
from modelfile.templates.gotemplate.nodes import Node
from modelfile.templates.gotemplate.values import ANY, NIL, GoMap, GoStruct, element_type, type_name

_ABSENT: Final = object()


def get_fields(receiver: Any, names: list[str], node: Node) -> Any:
    """receiver.a.b; NIL or None when there is nothing. Raises ExecFault."""
    container: Any = None
    for name in names:
        value = _field(receiver, name)
        if value is _ABSENT:
            _refuse(container, receiver, name, node)
        container, receiver = receiver, value
    return receiver


def _field(receiver: Any, name: str) -> Any:
    if isinstance(receiver, GoStruct):
        value = receiver.fields.get(name, _ABSENT)
        if value is not _ABSENT:
            return value
    elif receiver is None:
        return None
    method = _method(receiver, name)
    if method is not None:
        return method()
    if isinstance(receiver, dict):
        missing = receiver.zero() if isinstance(receiver, GoMap) else NIL
        return receiver.get(name, missing)
    return _ABSENT


def _method(receiver: Any, name: str) -> Any:
    if name == "String":
        return getattr(receiver, "go_string", None)
    if isinstance(receiver, GoStruct) and name in receiver.methods:
        return getattr(receiver, receiver.methods[name])
    return None


def refuse_arguments(receiver: Any, names: list[str], node: Node) -> None:
    """Called for .a.b with arguments: nothing that templates see takes any. Raises ExecFault."""
    last, owner = names[-1], get_fields(receiver, names[:-1], node)
    if owner is None:
        return
    get_fields(receiver, names, node)
    if _method(owner, last) is not None and not _is_field(owner, last):
        raise fault(f"wrong number of args for {last}: want 0 got 1", node)
    if isinstance(owner, dict):
        raise fault(f"{last} is not a method but has arguments", node)
    raise fault(f"{last} has arguments but cannot be invoked as function", node)


def _is_field(owner: Any, name: str) -> bool:
    return isinstance(owner, GoStruct) and name in owner.fields


def _refuse(container: Any, receiver: Any, name: str, node: Node) -> None:
    given = ANY if receiver is NIL else element_type(container, receiver)
    if receiver is NIL:
        raise fault(f"nil pointer evaluating {given}.{name}", node)
    if container is None:
        given = type_name(receiver)
    raise fault(f"can't evaluate field {name} in type {given}", node)


def fault(message: str, node: Node) -> ExecFault:
    """An error at a node."""
    return ExecFault(message, str(node), node.position)
