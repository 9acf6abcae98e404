"""From tokens to the trees of a Go template, with the grammar and the words of
text/template/parse/parse.go.

Knows which functions exist, not what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NoReturn

from modelfile.templates.gotemplate import nodes
from modelfile.templates.gotemplate.errors import SyntaxFault
from modelfile.templates.gotemplate.lexer import Kind, Token, lex, quoted
from modelfile.templates.gotemplate.literals import number, unquote
from modelfile.templates.gotemplate.nodes import Body, Branch, Node, Pipe, Trees

MAX_DEPTH: Final = 64
_OPERANDS: Final = frozenset(
    (Kind.BOOL, Kind.CHARACTER, Kind.COMPLEX, Kind.DOT, Kind.FIELD, Kind.IDENTIFIER, Kind.NUMBER,
     Kind.NIL, Kind.RAW_STRING, Kind.STRING, Kind.VARIABLE, Kind.OPEN)
)  # fmt: skip
_NOT_EXECUTABLE: Final = (nodes.Bool, nodes.Dot, nodes.Nil, nodes.Number, nodes.String)
_BRANCHES: Final[dict[str, type[Branch]]] = {
    "if": nodes.If,
    "with": nodes.With,
    "range": nodes.Range,
}


def parse(source: str, functions: Collection[str]) -> Trees:
    """The templates that source defines; "" is source itself. Raises SyntaxFault."""
    parser = _Parser(source, functions)
    parser.template()
    return parser.trees


def is_empty(node: Node) -> bool:
    """True when there is nothing but blanks and definitions."""
    if isinstance(node, Body):
        return all(map(is_empty, node.nodes))
    return isinstance(node, nodes.Text) and not node.text.strip()


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
        root = Body(0)
        while self._peek().kind is not Kind.EOF:
            if self._starts("define"):
                self._define()
                continue
            node = self._text_or_action()
            if isinstance(node, nodes.End | nodes.Else):
                self._fail(f"unexpected {node}")
            root.nodes.append(node)
        self._add("", root)

    def _starts(self, keyword: str) -> bool:
        if self._peek().kind is not Kind.LEFT:
            return False
        at = self._at + 1
        while self._tokens[at].kind is Kind.SPACE:
            at += 1
        token = self._tokens[at]
        if token.kind is Kind.KEYWORD and token.text == keyword:
            self._at = at + 1
            return True
        return False

    def _define(self) -> None:
        name = self._name(self._next(), "define clause")
        self._expect(Kind.RIGHT, "define clause")
        self._add(name, self._separate("define clause"))

    def _separate(self, context: str) -> Body:
        """The body of define and block, which sees no variables but $."""
        outer, self._variables = self._variables, ["$"]
        ranges, self._ranges = self._ranges, 0
        body, end = self._body()
        if not isinstance(end, nodes.End):
            self._fail(f"unexpected {end} in {context}")
        self._variables, self._ranges = outer, ranges
        return body

    def _add(self, name: str, body: Body) -> None:
        if name not in self.trees or is_empty(self.trees[name]):
            self.trees[name] = body
        elif not is_empty(body):
            self._fail(f"template: multiple definition of template {quoted(name)}")

    def _body(self) -> tuple[Body, Node]:
        """Nodes up to {{end}} or {{else}}, which is given as well."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"blocks nest more than {MAX_DEPTH} deep")
        body = Body(self._peek().position)
        while self._peek_word().kind is not Kind.EOF:
            node = self._text_or_action()
            if isinstance(node, nodes.End | nodes.Else):
                self._depth -= 1
                return body, node
            body.nodes.append(node)
        return self._fail("unexpected EOF")

    def _text_or_action(self) -> Node:
        token = self._next()
        if token.kind is Kind.TEXT:
            return nodes.Text(token.position, token.text)
        if token.kind is not Kind.LEFT:
            self._unexpected(token, "input")
        self._action_line = token.line
        node = self._action()
        self._action_line = None
        return node

    def _action(self) -> Node:
        token = self._peek_word()
        if token.kind is Kind.KEYWORD and token.text in _CONTROLS:
            self._next()
            return _CONTROLS[token.text](self, token)
        return nodes.Action(token.position, self._pipeline("command", Kind.RIGHT))

    def _break(self, token: Token) -> Node:
        after = self._next()
        if after.kind is not Kind.RIGHT:
            self._unexpected(after, f"{{{{{token.text}}}}}")
        if not self._ranges:
            self._fail(f"{{{{{token.text}}}}} outside {{{{range}}}}")
        kind = nodes.Break if token.text == "break" else nodes.Continue
        return kind(token.position)

    def _end(self, token: Token) -> Node:
        return nodes.End(self._expect(Kind.RIGHT, "end").position)

    def _else(self, token: Token) -> Node:
        after = self._peek_word()
        if after.kind is Kind.KEYWORD and after.text in ("if", "with"):
            return nodes.Else(after.position)
        return nodes.Else(self._expect(Kind.RIGHT, "else").position)

    def _control(self, token: Token) -> Node:
        """if, with and range; a chain of else if is read without recursion."""
        keyword, outer = token.text, len(self._variables)
        chain: list[tuple[Pipe, Body]] = []
        last: Body | None = None
        while True:
            pipe = self._pipeline(keyword, Kind.RIGHT)
            self._ranges += keyword == "range"
            body, end = self._body()
            self._ranges -= keyword == "range"
            chain.append((pipe, body))
            if isinstance(end, nodes.End):
                break
            after = self._peek()
            if keyword == "range" or after.kind is not Kind.KEYWORD or after.text != keyword:
                last, end = self._body()
                if not isinstance(end, nodes.End):
                    self._fail(f"expected end; found {end}")
                break
            self._next()
        del self._variables[outer:]
        return _chained(_BRANCHES[keyword], chain, last)

    def _template(self, token: Token) -> Node:
        name_token = self._next()
        name = self._name(name_token, "template clause")
        pipe = None
        if self._next().kind is not Kind.RIGHT:
            self._at -= 1
            pipe = self._pipeline("template clause", Kind.RIGHT)
        return nodes.Call(name_token.position, name, pipe)

    def _block(self, token: Token) -> Node:
        name_token = self._next()
        name = self._name(name_token, "block clause")
        pipe = self._pipeline("block clause", Kind.RIGHT)
        self._add(name, self._separate("block clause"))
        return nodes.Call(name_token.position, name, pipe)

    def _refuse(self, token: Token) -> NoReturn:
        self._unexpected(token, "command")

    def _name(self, token: Token, context: str) -> str:
        if token.kind not in (Kind.STRING, Kind.RAW_STRING):
            self._unexpected(token, context)
        return self._unquote(token)

    def _unquote(self, token: Token) -> str:
        try:
            return unquote(token.text)
        except ValueError as error:
            return self._fail(str(error))

    def _pipeline(self, context: str, end: Kind) -> Pipe:
        pipe = Pipe(self._peek_word().position, [], False, [])
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

    def _declarations(self, pipe: Pipe, context: str) -> None:
        """$x :=, $x =, and $i, $x := of range."""
        while self._peek_word().kind is Kind.VARIABLE:
            start = self._at
            name = self._next()
            after = self._peek_word()
            comma = after.kind is Kind.CHAR and after.text == ","
            if not comma and after.kind not in (Kind.ASSIGN, Kind.DECLARE):
                self._at = start
                return
            self._next()
            pipe.variables.append(nodes.Variable(name.position, name.text.split(".")))
            self._variables.append(name.text)
            if not comma:
                pipe.assigns = after.kind is Kind.ASSIGN
                return
            if context != "range" or len(pipe.variables) > 1:
                self._fail(f"too many declarations in {context}")
            if self._peek_word().kind not in (Kind.VARIABLE, Kind.RIGHT, Kind.CLOSE):
                self._fail("range can only initialize variables")

    def _check(self, pipe: Pipe, context: str) -> None:
        if not pipe.commands:
            self._fail(f"missing value for {context}")
        for stage, command in enumerate(pipe.commands[1:], 2):
            if isinstance(command.arguments[0], _NOT_EXECUTABLE):
                self._fail(f"non executable command in pipeline stage {stage}")

    def _command(self) -> nodes.Command:
        command = nodes.Command(self._peek_word().position, [])
        while True:
            self._peek_word()
            operand = self._operand()
            if operand is not None:
                command.arguments.append(operand)
            token = self._take()
            if token.kind is Kind.SPACE:
                continue
            if token.kind in (Kind.RIGHT, Kind.CLOSE):
                self._at -= 1
            elif token.kind is not Kind.PIPE:
                self._unexpected(token, "operand")
            break
        if not command.arguments:
            self._fail("empty command")
        return command

    def _operand(self) -> Node | None:
        node = self._term()
        if node is None or self._peek().kind is not Kind.FIELD:
            return node
        start = self._peek().position
        names = []
        while self._peek().kind is Kind.FIELD:
            names.append(self._take().text[1:])
        if isinstance(node, nodes.Field | nodes.Variable):
            return type(node)(start, node.names + names)
        if isinstance(node, _NOT_EXECUTABLE):
            self._fail(f"unexpected . after term {quoted(str(node))}")
        return nodes.Chain(start, node, names)

    def _term(self) -> Node | None:
        token = self._next()
        build = _TERMS.get(token.kind)
        if build is None:
            self._at -= 1
            return None
        return build(self, token)

    def _function(self, token: Token) -> Node:
        if token.text not in self._functions:
            self._fail(f"function {quoted(token.text)} not defined")
        return nodes.Identifier(token.position, token.text)

    def _variable(self, token: Token) -> Node:
        if token.text not in self._variables:
            self._fail(f"undefined variable {quoted(token.text)}")
        return nodes.Variable(token.position, [token.text])

    def _number(self, token: Token) -> Node:
        try:
            return number(token.position, token.text, token.kind)
        except ValueError as error:
            return self._fail(str(error))

    def _parenthesis(self, token: Token) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("max expression depth exceeded")
        pipe = self._pipeline("parenthesized pipeline", Kind.CLOSE)
        self._depth -= 1
        return pipe

    def _string(self, token: Token) -> Node:
        return nodes.String(token.position, token.text, self._unquote(token))

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        """The next token that is no space."""
        self._peek_word()
        return self._take()

    def _peek_word(self) -> Token:
        while self._tokens[self._at].kind is Kind.SPACE:
            self._at += 1
        return self._tokens[self._at]

    def _expect(self, kind: Kind, context: str) -> Token:
        token = self._next()
        if token.kind is not kind:
            self._unexpected(token, context)
        return token

    def _unexpected(self, token: Token, context: str) -> NoReturn:
        if token.kind is Kind.ERROR:
            extra = ""
            if self._action_line is not None and self._action_line != token.line:
                action = "" if token.text.endswith(" action") else " in action"
                extra = f"{action} started at line {self._action_line}"
            raise SyntaxFault(f"{token}{extra}", token.line)
        raise SyntaxFault(f"unexpected {token} in {context}", token.line)

    def _fail(self, message: str) -> NoReturn:
        at = self._at if self._peek().kind is Kind.EOF else max(0, self._at - 1)
        raise SyntaxFault(message, self._tokens[at].line)


def _chained(kind: type[Branch], chain: list[tuple[Pipe, Body]], last: Body | None) -> Node:
    """The first branch, the others each within the else of the one before."""
    node: Branch | None = None
    for pipe, body in reversed(chain):
        or_else = last if node is None else Body(node.position, [node])
        node = kind(pipe.position, pipe, body, or_else)
    assert node is not None
    return node


_CONTROLS: Final[dict[str, Callable[[_Parser, Token], Node]]] = {
    "block": _Parser._block,
    "break": _Parser._break,
    "continue": _Parser._break,
    "define": _Parser._refuse,
    "else": _Parser._else,
    "end": _Parser._end,
    "if": _Parser._control,
    "range": _Parser._control,
    "template": _Parser._template,
    "with": _Parser._control,
}
_TERMS: Final[dict[Kind, Callable[[_Parser, Token], Node]]] = {
    Kind.BOOL: lambda parser, token: nodes.Bool(token.position, token.text == "true"),
    Kind.CHARACTER: _Parser._number,
    Kind.COMPLEX: _Parser._number,
    Kind.DOT: lambda parser, token: nodes.Dot(token.position),
    Kind.FIELD: lambda parser, token: nodes.Field(token.position, [token.text[1:]]),
    Kind.IDENTIFIER: _Parser._function,
    Kind.NIL: lambda parser, token: nodes.Nil(token.position),
    Kind.NUMBER: _Parser._number,
    Kind.OPEN: _Parser._parenthesis,
    Kind.RAW_STRING: _Parser._string,
    Kind.STRING: _Parser._string,
    Kind.VARIABLE: _Parser._variable,
}
