"""The errors of Modelfiles, parameters, templates and builds.

A leaf with its own root: knows no HTTP and nothing of the runner.
"""

from __future__ import annotations


class ModelfileError(Exception):
    """The root. message: what happened, with which value, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ParseError(ModelfileError):
    """The text is not a Modelfile. line and column count from 1; text: what stands there;
    nearest: the valid word most like it."""

    def __init__(
        self, reason: str, line: int, column: int, text: str = "", nearest: str | None = None
    ) -> None:
        hint = f'; did you mean "{nearest}"?' if nearest else ""
        shown = f": {_quoted(text)}" if text else ""
        super().__init__(f"line {line}, column {column}{shown}: {reason}{hint}")
        self.reason = reason
        self.line = line
        self.column = column
        self.text = text
        self.nearest = nearest


class EncodingError(ModelfileError):
    """The bytes are not text. line and column, in bytes, count from 1; None: the whole file."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class RenderError(ModelfileError):
    """The grammar has no way to write a value."""


class ParameterError(ModelfileError):
    """A parameter is unknown or its value cannot be used. name: the parameter."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class UnknownParameter(ParameterError):
    """No such parameter. suggestions: the nearest names, best first."""

    def __init__(self, name: str, suggestions: tuple[str, ...]) -> None:
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        super().__init__(f"unknown parameter {_quoted(name)}{hint}", name)
        self.suggestions = suggestions


class TemplateError(ModelfileError):
    """A chat template cannot be compiled, refuses the messages, or takes too much."""


class BuildError(ModelfileError):
    """A bundle cannot be built from this description."""


class ConvertError(BuildError):
    """A checkpoint or an adapter cannot become GGUF; the message names the tensor, key or file."""


def _quoted(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "...")
