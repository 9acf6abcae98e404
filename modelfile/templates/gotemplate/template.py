"""A Go template: compiled once, rendered within a budget.

Owns the limits and the error messages; knows nothing of chat messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from modelfile.errors import TemplateError
from modelfile.templates.budget import Budget, LimitExceeded
from modelfile.templates.gotemplate.builtins import BUILTINS, TemplateFunction
from modelfile.templates.gotemplate.errors import ExecFault, SyntaxFault
from modelfile.templates.gotemplate.expressions import Execution
from modelfile.templates.gotemplate.nodes import ListNode, Trees
from modelfile.templates.gotemplate.parser import parse
from modelfile.templates.gotemplate.statements import TemplateSet
from modelfile.templates.gotemplate.values import to_bytes

MAX_SOURCE_BYTES: Final = 64 * 1024
_MAX_MESSAGE_CHARS: Final = 300


class GoTemplate:
    """A compiled template. functions: beyond Go's own."""

    def __init__(
        self, source: str, functions: Mapping[str, TemplateFunction] | None = None
    ) -> None:
        """Compile source. Raises TemplateError with the line."""
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > MAX_SOURCE_BYTES:
            raise TemplateError(f"the template has {size} bytes, at most {MAX_SOURCE_BYTES}")
        self.source = source
        self._functions = {**BUILTINS, **(functions or {})}
        try:
            self.trees: Trees = parse(source, self._functions)
            self._compiled = TemplateSet(self.trees, self._functions)
        except SyntaxFault as error:
            raise TemplateError(f"the template, line {error.line}: {_brief(error.message)}") from (
                error)  # fmt: skip
        except RecursionError as error:
            raise TemplateError("the template nests too deeply") from error

    def replaced(self, root: ListNode) -> GoTemplate:
        """The same template with another main part."""
        other = object.__new__(GoTemplate)
        other.source, other._functions = self.source, self._functions
        other.trees = {**self.trees, "": root}
        other._compiled = TemplateSet(other.trees, self._functions)
        return other

    def render(self, data: Any, budget: Budget) -> str:
        """The text for data, a value as values.py has them. Raises TemplateError."""
        run = Execution(budget)
        try:
            self._compiled.execute("", run, data)
        except ExecFault as error:
            raise TemplateError(self._message(error)) from error
        except LimitExceeded as error:
            raise TemplateError(str(error)) from error
        except RecursionError as error:
            raise TemplateError("the template nests too deeply") from error
        except MemoryError as error:
            raise TemplateError("the template takes too much memory") from error
        text = "".join(run.out)
        return text if text.isascii() else to_bytes(text).decode("utf-8", "replace")

    def _message(self, error: ExecFault) -> str:
        line = self.source.count("\n", 0, error.position) + 1
        message = (f"the template failed, line {line}, at <{_brief(error.context)}>:"
                f" {_brief(error.message)}")  # fmt: skip
        return to_bytes(message).decode("utf-8", "replace")


def _brief(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + "..."
