"""Jinja's code generator with the sandbox asked where Jinja's own sandbox is not: every
statement and iteration, `~`, comparisons, slices, and literals of lists and dicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, CompilerExit, Frame, operators

_SHORT = 64  # characters of a constant, or its elements
_WORK_PER_STEP = 8  # parts of an expression; each takes up to 0.7 µs
_NO_WORK = (nodes.Const, nodes.TemplateData, nodes.Name)
_COUNTED_APART = ("body", "else_")  # parts of a statement that are bodies of their own


class CountingCodeGenerator(CodeGenerator):
    """Generates code that calls count_steps, join_text, take_slice, compare, search and keep_value
    of Sandbox."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Every statement of every body, those of loops and macros too, counts as a step: all of
        a body at its beginning, for one call for each took a fifth of the time of a rendering.
        Long expressions count as several."""
        body = list(nodes)
        count = len(body) + 1 + sum(_work(node) // _WORK_PER_STEP for node in body)
        self.writeline(f"environment.budget.steps({count})")
        try:
            for node in body:
                self.visit(node, frame)
        except CompilerExit:
            pass

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """The items that a loop's filter drops count as well."""
        if node.test is not None:
            count = nodes.Const(1 + _work(node.test) // _WORK_PER_STEP)
            counted = nodes.Call(nodes.EnvironmentAttribute("count_steps"), [count], [], None, None)
            node.test = nodes.And(counted, node.test).set_lineno(node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """a ~ b"""
        self._call("join_text", node.nodes, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """a[b:c]; a[b] is the sandbox's already."""
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        none = nodes.Const(None)
        self._call("take_slice", [node.node, *(none if b is None else b for b in bounds)], frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """a == b and its like. To compare with a short constant takes no time, to search in one
        neither; other values may be long."""
        self.write("(")
        self.visit(node.expr, frame)
        left = node.expr
        for operand in node.ops:
            self.write(f" {operators[operand.op]} ")
            search = operand.op in ("in", "notin")
            if _is_short(operand.expr) or (not search and _is_short(left)):
                self.visit(operand.expr, frame)
            elif search and not _is_short(left):
                self._call("search", [operand.expr], frame)
            else:
                self._call("compare", [operand.expr], frame)
            left = operand.expr
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """[a, b]"""
        self._keep(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """{a: b}"""
        self._keep(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """(a, b), unless it is what is assigned to"""
        if node.ctx == "load":
            self._keep(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def _keep(self, visit: Any, node: nodes.Node, frame: Frame) -> None:
        self.write("environment.keep_value(")
        visit(node, frame)
        self.write(")")

    def _call(self, method: str, arguments: Iterable[nodes.Node], frame: Frame) -> None:
        self.write(f"environment.{method}(")
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")


def _work(node: nodes.Node) -> int:
    """The parts of the expressions that a statement evaluates, those of its bodies excepted."""
    count, stack = 0, [node]
    while stack:
        item = stack.pop()
        count += isinstance(item, nodes.Expr) and not isinstance(item, _NO_WORK)
        stack += item.iter_child_nodes(exclude=_COUNTED_APART)
    return count


def _is_short(node: nodes.Node) -> bool:
    """Whether a constant is no work to compare with."""
    if isinstance(node, nodes.Tuple | nodes.List):
        return len(node.items) <= _SHORT and all(map(_is_short, node.items))
    return isinstance(node, nodes.Const) and len(str(node.value)) <= _SHORT
