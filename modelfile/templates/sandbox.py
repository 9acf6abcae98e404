"""The environment in which untrusted templates run: nothing of Python is reachable, values given
are not changed, and every operation that can grow something asks the budget.

Jinja's own sandbox leaves `~`, slices, filters and methods of str unlimited; see codegen.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateRuntimeError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from modelfile.templates.budget import Budget, LimitExceeded
from modelfile.templates.codegen import CountingCodeGenerator
from modelfile.templates.filters import filters_of, tests_of
from modelfile.templates.formats import check_format, check_method, check_percent

_HIDDEN = frozenset(
    ("encode", "translate", "maketrans", "to_bytes", "from_bytes", "striptags", "unescape")
)
_PLAIN = frozenset((str, list, dict, tuple, int, float, bool))
_MAX_KNOWN_ATTRIBUTES = 200
_MAX_RAISED = 500
_DATE_FORMAT = re.compile(r"(?:[^%]|%[^0-9]){0,64}", re.DOTALL)


class RaisedByTemplate(TemplateRuntimeError):
    """The template called raise_exception."""


class GenerationTag(Extension):
    """{% generation %}: marks what the assistant said, for training; renders its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """The body in a scope of its own, as transformers has it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one template. budget: of the rendering under way."""

    code_generator_class = CountingCodeGenerator
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            extensions=[GenerationTag, loopcontrols],
            finalize=self.check_written,
        )
        self.budget = Budget()
        self._known_attributes: dict[tuple[type, str], bool] = {}
        self.filters = filters_of(self)
        self.tests.update(tests_of(self))
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def count_steps(self, count: int) -> bool:
        """Called by the generated code for each item that a loop's filter looks at; always True."""
        self.budget.steps(count)
        return True

    def keep_value(self, value: Any) -> Any:
        """Called with every literal list, tuple and dict."""
        return self.budget.keep(value)

    def compare(self, value: Any) -> Any:
        """Called with what an operator compares or searches, unless it is short."""
        return self.budget.compare(value)

    def search(self, value: Any) -> Any:
        """Called with what an operator searches for something that may be long."""
        if isinstance(value, str):
            self.budget.search(value, len(value))
        return self.budget.compare(value)

    def check_written(self, value: Any) -> Any:
        """Called with every value before it becomes text."""
        if not isinstance(value, str):
            self.budget.check_size(self.budget.measure(value))
        return value

    def join_text(self, *parts: Any) -> str:
        """a ~ b"""
        texts = [str(self.check_written(part)) for part in parts]
        self.budget.check_size(sum(map(len, texts)))
        joined: str = self.budget.keep("".join(texts))
        return joined

    def take_slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """value[start:stop:step]"""
        return self.budget.keep(value[start:stop:step])

    def add(self, left: Any, right: Any) -> Any:
        """left + right"""
        if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            self.budget.check_size(len(left) + len(right))
        return self.budget.keep(left + right)

    def concat(self, parts: Iterable[str]) -> str:
        """Join what a template, a macro or a block wrote."""
        texts, size = [], 0
        for part in parts:
            texts.append(part)
            size += len(part) + 1
            if size > self.budget.value_size:
                self.budget.check_size(size)
        joined: str = self.budget.keep("".join(texts))
        return joined

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators that can grow a value."""
        if operator == "+":
            return self.add(left, right)
        if operator == "%" and isinstance(left, str):
            check_percent(self.budget, left, right)
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self.budget.check_size(left.bit_length() * max(right, 0))
        return self.budget.keep(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Functions, macros and methods."""
        __self.budget.steps(1)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            name = str(getattr(__obj, "__name__", ""))
            args = check_method(__self.budget, owner, name, args, kwargs)
        if owner is not None and not isinstance(owner, dict):
            for value in (owner, *args, *kwargs.values()):
                __self.budget.compare(value)
        return __self.budget.keep(super().call(__context, __obj, *args, **kwargs))

    def call_filter(self, *args: Any, **kwargs: Any) -> Any:
        """A filter named in map."""
        self.budget.steps(1)
        return super().call_filter(*args, **kwargs)

    def call_test(self, *args: Any, **kwargs: Any) -> Any:
        """A test named in select."""
        self.budget.steps(1)
        return super().call_test(*args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format and format_map, their size asked first."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def format_text(*args: Any, **kwargs: Any) -> str:
            check_format(self.budget, value.__self__, [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return format_text

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Nothing private, nothing that changes a value, none of the methods of bytes."""
        if type(obj) not in _PLAIN:
            return attr not in _HIDDEN and super().is_safe_attribute(obj, attr, value)
        # For plain types the answer depends on the type and the name alone; asking jinja2 again
        # for every m.content.strip() takes a third of the time of some templates.
        key = (type(obj), attr)
        known = self._known_attributes.get(key)
        if known is None:
            known = attr not in _HIDDEN and super().is_safe_attribute(obj, attr, value)
            if len(self._known_attributes) < _MAX_KNOWN_ATTRIBUTES:
                self._known_attributes[key] = known
        return known

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and not isinstance(right, int):
            left, right = right, left
        if isinstance(left, str | list | tuple) and isinstance(right, int):
            self.budget.check_size(len(left) * max(right, 0))
        elif isinstance(left, int) and isinstance(right, int):
            self.budget.check_size((left.bit_length() + right.bit_length()) // 4)


def _raise_exception(message: Any = "") -> None:
    raise RaisedByTemplate(str(message)[:_MAX_RAISED])


def _strftime_now(form: str) -> str:
    if _DATE_FORMAT.fullmatch(form) is None:
        raise LimitExceeded("a date format of a template is too long or has a width")
    return datetime.now().strftime(form)
