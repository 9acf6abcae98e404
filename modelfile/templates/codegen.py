"""Jinja's code generator with the sandbox asked where Jinja's own sandbox is not: every
statement and iteration, `~`, comparisons, slices, and literals of lists and dicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, CompilerExit, Frame, operators


class CountingCodeGenerator(CodeGenerator):
    """Generates code that calls count_step, join_text, take_slice, compare and keep_value of
    Sandbox."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Every statement of every body, those of loops and macros too, counts as a step: all of
        a body at its beginning, for one call for each took a fifth of the time of a rendering."""
        body = list(nodes)
        self.writeline(f"environment.budget.steps({len(body) + 1})")
        try:
            for node in body:
                self.visit(node, frame)
        except CompilerExit:
            pass

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """The items that a loop's filter drops count as well."""
        if node.test is not None:
            counted = nodes.Call(nodes.EnvironmentAttribute("count_step"), [], [], None, None)
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
        """a == b and its like. To compare with a constant takes no time, to search in one neither;
        other values may be long."""
        self.write("(")
        self.visit(node.expr, frame)
        left = node.expr
        for operand in node.ops:
            self.write(f" {operators[operand.op]} ")
            constants = (operand.expr,) if operand.op in ("in", "notin") else (left, operand.expr)
            if any(map(_is_constant, constants)):
                self.visit(operand.expr, frame)
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


def _is_constant(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Tuple | nodes.List):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)
