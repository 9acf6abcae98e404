"""What can go wrong with a Go template. Known to this package only; its users see TemplateError."""

from __future__ import annotations


class SyntaxFault(Exception):
    """The text is no template. line counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class ExecFault(Exception):
    """A template failed while it was rendered. context: the expression; position: its offset in
    the source, in characters."""

    def __init__(self, message: str, context: str = "", position: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        self.position = position


class CallFault(Exception):
    """A function of a template refused its arguments. The message is Go's."""
