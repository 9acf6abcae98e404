"""From tokens to the trees of a Go template, with the grammar and the words of
text/template/parse/parse.go.

Knows which functions exist, not what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NoReturn

from typing_extensions import TypeIs

from modelfile.templates.gotemplate import nodes
from modelfile.templates.gotemplate.builtins import UNSUPPORTED
from modelfile.templates.gotemplate.errors import SyntaxFault
from modelfile.templates.gotemplate.formatter import format_fault
from modelfile.templates.gotemplate.lexer import ItemType, LexItem, lex, quoted
from modelfile.templates.gotemplate.literals import number, unquote
from modelfile.templates.gotemplate.nodes import BranchNode, ListNode, Node, PipeNode, Trees

MAX_DEPTH: Final = 64
_OPERANDS: Final = frozenset(
    (ItemType.BOOL, ItemType.DOT,
     ItemType.FIELD, ItemType.IDENTIFIER, ItemType.NUMBER,
     ItemType.NIL, ItemType.RAW_STRING, ItemType.STRING, ItemType.VARIABLE, ItemType.OPEN)
)  # fmt: skip
_NOT_EXECUTABLE: Final = (nodes.ConstantNode, nodes.DotNode)


def parse(source: str, functions: Collection[str]) -> Trees:
    """The templates that source defines; "" is source itself. Raises SyntaxFault."""
    parser = _Parser(source, functions)
    parser.template()
    return parser.trees


def is_empty(node: Node) -> bool:
    """True when there is nothing but blanks and definitions."""
    if isinstance(node, ListNode):
        return all(map(is_empty, node.nodes))
    return isinstance(node, nodes.TextNode) and not node.text.strip()


class _Parser:
    def __init__(self, source: str, functions: Collection[str]) -> None:
        tokens = lex(source)
        self._tokens = tokens + tokens[-1:] * 4  # so that the parser may look past the end
        self._functions = functions
        self._at = 0
        self._depth = 0
        self._ranges = 0
        self._variables = ["$"]
        self._action_line: int | None = None
        self.trees: Trees = {}

    def template(self) -> None:
        """The whole source."""
        root = ListNode(0)
        while self._peek().kind is not ItemType.EOF:
            if self._starts("define"):
                self._define()
                continue
            node = self._text_or_action()
            if _ends(node):
                self._fail(f"unexpected {node}")
            root.nodes.append(node)
        self._add("", root)

    def _starts(self, keyword: str) -> bool:
        if self._peek().kind is not ItemType.LEFT:
            return False
        at = self._at + 1
        while self._tokens[at].kind is ItemType.SPACE:
            at += 1
        token = self._tokens[at]
        if token.kind is ItemType.KEYWORD and token.text == keyword:
            self._at = at + 1
            return True
        return False

    def _define(self) -> None:
        name = self._name(self._next(), "define clause")
        self._expect(ItemType.RIGHT, "define clause")
        self._add(name, self._separate("define clause"))

    def _separate(self, context: str) -> ListNode:
        """The body of define and block, which sees no variables but $."""
        outer, self._variables = self._variables, ["$"]
        ranges, self._ranges = self._ranges, 0
        body, end = self._body()
        if end.word != "end":
            self._fail(f"unexpected {end} in {context}")
        self._variables, self._ranges = outer, ranges
        return body

    def _add(self, name: str, body: ListNode) -> None:
        if name not in self.trees or is_empty(self.trees[name]):
            self.trees[name] = body
        elif not is_empty(body):
            self._fail(f"template: multiple definition of template {quoted(name)}")

    def _body(self) -> tuple[ListNode, nodes.WordNode]:
        """Nodes up to {{end}} or {{else}}, which is given as well."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"blocks nest more than {MAX_DEPTH} deep")
        body = ListNode(self._peek().position)
        while self._peek_word().kind is not ItemType.EOF:
            node = self._text_or_action()
            if _ends(node):
                self._depth -= 1
                return body, node
            body.nodes.append(node)
        return self._fail("unexpected EOF")

    def _text_or_action(self) -> Node:
        token = self._next()
        if token.kind is ItemType.TEXT:
            return nodes.TextNode(token.position, token.text)
        if token.kind is not ItemType.LEFT:
            self._unexpected(token, "input")
        self._action_line = token.line
        node = self._action()
        self._action_line = None
        return node

    def _action(self) -> Node:
        token = self._peek_word()
        if token.kind is ItemType.KEYWORD and token.text in _CONTROLS:
            self._next()
            return _CONTROLS[token.text](self, token)
        return nodes.ActionNode(token.position, self._pipeline("command", ItemType.RIGHT))

    def _break(self, token: LexItem) -> Node:
        after = self._next()
        if after.kind is not ItemType.RIGHT:
            self._unexpected(after, f"{{{{{token.text}}}}}")
        if not self._ranges:
            self._fail(f"{{{{{token.text}}}}} outside {{{{range}}}}")
        return nodes.WordNode(token.position, token.text)

    def _end(self, token: LexItem) -> Node:
        after = self._peek_word()
        chained = token.text == "else" and after.kind is ItemType.KEYWORD
        if not (chained and after.text in ("if", "with")):
            self._expect(ItemType.RIGHT, token.text)
        return nodes.WordNode(after.position, token.text)

    def _control(self, token: LexItem) -> Node:
        """if, with and range; a chain of else if is read without recursion."""
        keyword, outer = token.text, len(self._variables)
        chain: list[tuple[PipeNode, ListNode]] = []
        last: ListNode | None = None
        while True:
            pipe = self._pipeline(keyword, ItemType.RIGHT)
            self._ranges += keyword == "range"
            body, end = self._body()
            self._ranges -= keyword == "range"
            chain.append((pipe, body))
            if end.word == "end":
                break
            after = self._peek()
            if keyword == "range" or after.kind is not ItemType.KEYWORD or after.text != keyword:
                last, end = self._body()
                if end.word != "end":
                    self._fail(f"expected end; found {end}")
                break
            self._next()
        del self._variables[outer:]
        return _chained(keyword, chain, last)

    def _template(self, token: LexItem) -> Node:
        name_token = self._next()
        name = self._name(name_token, "template clause")
        pipe = None
        if self._next().kind is not ItemType.RIGHT:
            self._at -= 1
            pipe = self._pipeline("template clause", ItemType.RIGHT)
        return nodes.TemplateNode(name_token.position, name, pipe)

    def _block(self, token: LexItem) -> Node:
        name_token = self._next()
        name = self._name(name_token, "block clause")
        pipe = self._pipeline("block clause", ItemType.RIGHT)
        self._add(name, self._separate("block clause"))
        return nodes.TemplateNode(name_token.position, name, pipe)

    def _refuse(self, token: LexItem) -> NoReturn:
        self._unexpected(token, "command")

    def _name(self, token: LexItem, context: str) -> str:
        if token.kind not in (ItemType.STRING, ItemType.RAW_STRING):
            self._unexpected(token, context)
        return self._unquote(token)

    def _unquote(self, token: LexItem) -> str:
        try:
            return unquote(token.text)
        except ValueError as error:
            return self._fail(str(error))

    def _pipeline(self, context: str, end: ItemType) -> PipeNode:
        pipe = PipeNode(self._peek_word().position, [], False, [])
        self._declarations(pipe, context)
        while True:
            token = self._next()
            if token.kind is end:
                self._check(pipe, context)
                return pipe
            if token.kind not in _OPERANDS:
                self._unexpected(token, context)
            self._at -= 1
            pipe.commands.append(self._command())

    def _declarations(self, pipe: PipeNode, context: str) -> None:
        """$x :=, $x =, and $i, $x := of range."""
        while self._peek_word().kind is ItemType.VARIABLE:
            start = self._at
            name = self._next()
            after = self._peek_word()
            comma = after.kind is ItemType.CHAR and after.text == ","
            if not comma and after.kind not in (ItemType.ASSIGN, ItemType.DECLARE):
                self._at = start
                return
            self._next()
            pipe.variables.append(nodes.VariableNode(name.position, name.text.split(".")))
            self._variables.append(name.text)
            if not comma:
                pipe.assigns = after.kind is ItemType.ASSIGN
                return
            if context != "range" or len(pipe.variables) > 1:
                self._fail(f"too many declarations in {context}")
            if self._peek_word().kind not in (ItemType.VARIABLE, ItemType.RIGHT, ItemType.CLOSE):
                self._fail("range can only initialize variables")

    def _check(self, pipe: PipeNode, context: str) -> None:
        if not pipe.commands:
            self._fail(f"missing value for {context}")
        for stage, command in enumerate(pipe.commands[1:], 2):
            if isinstance(command.arguments[0], _NOT_EXECUTABLE):
                self._fail(f"non executable command in pipeline stage {stage}")

    def _command(self) -> nodes.CommandNode:
        command = nodes.CommandNode(self._peek_word().position, [])
        while True:
            self._peek_word()
            operand = self._operand()
            if operand is not None:
                command.arguments.append(operand)
            token = self._take()
            if token.kind is ItemType.SPACE:
                continue
            if token.kind in (ItemType.RIGHT, ItemType.CLOSE):
                self._at -= 1
            elif token.kind is not ItemType.PIPE:
                self._unexpected(token, "operand")
            break
        if not command.arguments:
            self._fail("empty command")
        self._check_printf(command.arguments)
        return command

    def _check_printf(self, arguments: list[Node]) -> None:
        match arguments:
            case [nodes.IdentifierNode(name="printf"), nodes.ConstantNode(value=str(form)), *_]:
                if (fault := format_fault(form)) is not None:
                    self._fail(fault)

    def _operand(self) -> Node | None:
        node = self._term()
        if node is None or self._peek().kind is not ItemType.FIELD:
            return node
        start = self._peek().position
        names = []
        while self._peek().kind is ItemType.FIELD:
            names.append(self._take().text[1:])
        if isinstance(node, nodes.FieldNode | nodes.VariableNode):
            return type(node)(start, node.names + names)
        if isinstance(node, _NOT_EXECUTABLE):
            self._fail(f"unexpected . after term {quoted(str(node))}")
        return nodes.ChainNode(start, node, names)

    def _term(self) -> Node | None:
        token = self._next()
        build = _TERMS.get(token.kind)
        if build is None:
            self._at -= 1
            return None
        return build(self, token)

    def _function(self, token: LexItem) -> Node:
        if token.text in UNSUPPORTED:
            self._fail(f"function {quoted(token.text)} is not supported")
        if token.text not in self._functions:
            self._fail(f"function {quoted(token.text)} not defined")
        return nodes.IdentifierNode(token.position, token.text)

    def _variable(self, token: LexItem) -> Node:
        if token.text not in self._variables:
            self._fail(f"undefined variable {quoted(token.text)}")
        return nodes.VariableNode(token.position, [token.text])

    def _number(self, token: LexItem) -> Node:
        try:
            return _constant(token, number(token.text))
        except ValueError as error:
            return self._fail(str(error))

    def _parenthesis(self, token: LexItem) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("max expression depth exceeded")
        pipe = self._pipeline("parenthesized pipeline", ItemType.CLOSE)
        self._depth -= 1
        return pipe

    def _string(self, token: LexItem) -> Node:
        return _constant(token, self._unquote(token))

    def _take(self) -> LexItem:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _peek(self) -> LexItem:
        return self._tokens[self._at]

    def _next(self) -> LexItem:
        """The next token that is no space."""
        self._peek_word()
        return self._take()

    def _peek_word(self) -> LexItem:
        while self._tokens[self._at].kind is ItemType.SPACE:
            self._at += 1
        return self._tokens[self._at]

    def _expect(self, kind: ItemType, context: str) -> LexItem:
        token = self._next()
        if token.kind is not kind:
            self._unexpected(token, context)
        return token

    def _unexpected(self, token: LexItem, context: str) -> NoReturn:
        if token.kind is ItemType.ERROR:
            extra = ""
            if self._action_line is not None and self._action_line != token.line:
                action = "" if token.text.endswith(" action") else " in action"
                extra = f"{action} started at line {self._action_line}"
            raise SyntaxFault(f"{token}{extra}", token.line)
        raise SyntaxFault(f"unexpected {token} in {context}", token.line)

    def _fail(self, message: str) -> NoReturn:
        at = self._at if self._peek().kind is ItemType.EOF else max(0, self._at - 1)
        raise SyntaxFault(message, self._tokens[at].line)


def _ends(node: Node) -> TypeIs[nodes.WordNode]:
    return isinstance(node, nodes.WordNode) and node.word in ("end", "else")


def _constant(token: LexItem, value: str | float | bool | None) -> Node:
    return nodes.ConstantNode(token.position, token.text, value)


def _chained(keyword: str, chain: list[tuple[PipeNode, ListNode]], last: ListNode | None) -> Node:
    """The first branch, the others each within the else of the one before."""
    node: BranchNode | None = None
    for pipe, body in reversed(chain):
        or_else = last if node is None else ListNode(node.position, [node])
        node = BranchNode(pipe.position, keyword, pipe, body, or_else)
    assert node is not None
    return node


_CONTROLS: Final[dict[str, Callable[[_Parser, LexItem], Node]]] = {
    "block": _Parser._block,
    "break": _Parser._break,
    "continue": _Parser._break,
    "define": _Parser._refuse,
    "else": _Parser._end,
    "end": _Parser._end,
    "if": _Parser._control,
    "range": _Parser._control,
    "template": _Parser._template,
    "with": _Parser._control,
}
_TERMS: Final[dict[ItemType, Callable[[_Parser, LexItem], Node]]] = {
    ItemType.BOOL: lambda _parser, token: _constant(token, token.text == "true"),
    ItemType.DOT: lambda _parser, token: nodes.DotNode(token.position),
    ItemType.FIELD: lambda _parser, token: nodes.FieldNode(token.position, [token.text[1:]]),
    ItemType.IDENTIFIER: _Parser._function,
    ItemType.NIL: lambda _parser, token: _constant(token, None),
    ItemType.NUMBER: _Parser._number,
    ItemType.OPEN: _Parser._parenthesis,
    ItemType.RAW_STRING: _Parser._string,
    ItemType.STRING: _Parser._string,
    ItemType.VARIABLE: _Parser._variable,
}
