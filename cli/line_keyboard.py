"""Reads messages line by line, as the terminal itself edits them: for terminals without a cursor
that can be moved (TERM=dumb), in which nothing can be drawn again."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from cli.multiline import is_open

PROMPT = ">>> "
CONTINUATION = "... "


class LineKeyboard:
    """See cli.keyboard.Keyboard. Nothing that is typed is kept."""

    was_empty = True  # Ctrl-C takes what was typed with it

    def open(self) -> AbstractContextManager[None]:
        """See Keyboard."""
        return nullcontext()

    answering = open

    def set_history(self, keep: bool) -> None:
        """See Keyboard."""

    def confirm(self, question: str) -> str:
        """See Keyboard."""
        try:
            return input(question)
        except EOFError:
            return ""

    def ask(self) -> str:
        """See Keyboard."""
        try:
            text = input(PROMPT)
            while is_open(text):
                text += f"\n{input(CONTINUATION)}"
        except (EOFError, KeyboardInterrupt):
            print()
            raise
        return text
