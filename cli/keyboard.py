"""Reads lines from the keyboard: editing, history, completion of commands (prompt_toolkit)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from cli.parameters import parameter_names
from cli.slash import NAMES, SET_WORDS, SHOW_WORDS, TOPICS
from cli.terminal import can_colour

PROMPT = ">>> "
CONTINUATION = "... "
PLACEHOLDER = "Send a message (/? for help)"


def candidates(words: list[str]) -> Iterable[str]:
    """What may stand after words, the complete ones of a command line."""
    match words:
        case []:
            return NAMES
        case ["/set"]:
            return SET_WORDS
        case ["/set", "parameter"]:
            return parameter_names()
        case ["/set", "format"]:
            return ("json",)
        case ["/show"]:
            return SHOW_WORDS
        case ["/help" | "/?"]:
            return tuple(TOPICS)
    return ()


class CommandCompleter(Completer):
    """Completes /commands and their words; messages are left alone."""

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The words that continue the line before the cursor."""
        line = document.text_before_cursor
        if not line.startswith("/"):
            return
        *words, started = line.split(" ")
        for word in candidates(words):
            if word.startswith(started):
                yield Completion(word, start_position=-len(started))


class Keyboard:
    """The line editor of one chat."""

    def __init__(self, history_file: Path | None) -> None:
        self._history_file = history_file
        self._keeps_history = True
        self.was_empty = True
        self._prompt = self._new_prompt()

    def set_history(self, keep: bool) -> None:
        """Whether what is typed from now on goes to the history file."""
        if keep != self._keeps_history:
            self._keeps_history = keep
            self._prompt = self._new_prompt()

    def ask(self, continued: bool) -> str:
        """One line. Raises EOFError (Ctrl-D on an empty line) and KeyboardInterrupt (Ctrl-C;
        was_empty then says whether anything had been typed)."""
        self.was_empty = False
        if continued:
            return self._prompt.prompt(CONTINUATION, placeholder="")
        return self._prompt.prompt(PROMPT, placeholder=_placeholder())

    def _new_prompt(self) -> PromptSession[str]:
        return PromptSession(
            history=self._history(),
            completer=CommandCompleter(),
            complete_while_typing=False,
            key_bindings=self._keys(),
            enable_history_search=True,
            enable_suspend=True,
        )

    def _history(self) -> History:
        if self._history_file is None or not self._keeps_history:
            return InMemoryHistory()
        self._history_file.parent.mkdir(parents=True, exist_ok=True)
        self._history_file.touch(mode=0o600)
        return FileHistory(str(self._history_file))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            self.was_empty = not event.current_buffer.text
            event.app.exit(exception=KeyboardInterrupt())

        # Not Ctrl-J: Enter pressed while an answer still runs arrives as a line feed.
        @keys.add("escape", "enter")
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys


def _placeholder() -> FormattedText:
    import sys

    style = "fg:ansibrightblack" if can_colour(sys.stdout) else ""
    return FormattedText([(style, PLACEHOLDER)])
