"""Reads messages from the keyboard: editing, history, completion of commands (prompt_toolkit)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor

from cli.chat_help import SET_WORDS, SHOW_WORDS, TOPICS
from cli.completion import installed_models
from cli.line_keyboard import CONTINUATION, PROMPT
from cli.multiline import is_open
from cli.parameters import parameter_names
from cli.private_files import private_files
from cli.slash import NAMES
from cli.terminal import can_colour
from cli.typeahead import as_one_input, collected, unechoed
from runner.types import THINK_LEVELS

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
        case ["/set", "think"]:
            return THINK_LEVELS
        case ["/show"]:
            return SHOW_WORDS
        case ["/help" | "/?"]:
            return tuple(TOPICS)
        case ["/load"]:
            return installed_models("")
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
        # A terminal that does not answer where its cursor is would be told so in its own lines,
        # and late answers of a slow one would be read as typed text.
        os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")
        self._history_file = history_file
        self._keeps_history = True
        self.was_empty = True
        self._prompt = self._new_prompt()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within the block the terminal shows nothing that is typed while no message is asked for;
        what was typed before it is kept for the first."""
        with unechoed(self._prompt.input) as typed_before:
            store_typeahead(self._prompt.input, typed_before)
            yield

    def set_history(self, keep: bool) -> None:
        """Whether what is typed from now on goes to the history file."""
        if keep != self._keeps_history:
            self._keeps_history = keep
            self._prompt = self._new_prompt()

    def ask(self) -> str:
        '''One message, with its """ if it has them. Raises EOFError (Ctrl-D on an empty line) and
        KeyboardInterrupt (Ctrl-C; was_empty then says whether anything had been typed).'''
        self.was_empty = False
        text = self._prompt.prompt(PROMPT, placeholder=_placeholder())
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def confirm(self, question: str) -> str:
        """A line in answer to a question, nothing for Ctrl-D. What was typed before it was shown
        does not answer it, and stays for the next message. Raises KeyboardInterrupt."""
        keys = get_typeahead(self._prompt.input)
        try:
            return PromptSession[str]().prompt(question)
        except EOFError:
            return ""
        finally:
            store_typeahead(self._prompt.input, keys)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """What is typed or pasted within the block becomes one input of the next prompt."""
        keys = get_typeahead(self._prompt.input)
        self._prompt.output.enable_bracketed_paste()
        self._prompt.output.flush()
        try:
            with collected(self._prompt.input, keys):
                yield
        finally:
            self._prompt.output.disable_bracketed_paste()
            self._prompt.output.flush()
            store_typeahead(self._prompt.input, as_one_input(keys))

    def _new_prompt(self) -> PromptSession[str]:
        return PromptSession(
            history=self._history(),
            completer=CommandCompleter(),
            complete_while_typing=False,
            key_bindings=self._keys(),
            prompt_continuation=lambda _width, _line, is_soft_wrap: (
                "" if is_soft_wrap else CONTINUATION
            ),
            input_processors=[TabsProcessor(tabstop=8, char1=" ", char2=" ")],
            enable_suspend=True,
        )

    def _history(self) -> History:
        if self._history_file is None or not self._keeps_history:
            return InMemoryHistory()
        with private_files():
            self._history_file.parent.mkdir(parents=True, exist_ok=True)
            self._history_file.touch()
        return FileHistory(str(self._history_file))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        # Not in the search of Ctrl-R: there these keys belong to the search, and a prompt that
        # ends within it leaves the next one there, where no message can be typed.
        editing = has_focus(DEFAULT_BUFFER)

        @keys.add("c-c", filter=editing)
        def interrupt(event: KeyPressEvent) -> None:
            self.was_empty = not event.current_buffer.text
            event.app.exit(exception=KeyboardInterrupt())

        @keys.add("enter", filter=editing)
        def end(event: KeyPressEvent) -> None:
            if is_open(event.current_buffer.text):
                event.current_buffer.insert_text("\n")
            else:
                event.current_buffer.validate_and_handle()

        @keys.add("c-j", filter=editing)
        @keys.add("escape", "enter", filter=editing)
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-g", filter=editing)
        def edit_in_editor(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor()

        @keys.add("tab", filter=editing & ~Condition(self._at_command))
        def tab(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\t")

        return keys

    def _at_command(self) -> bool:
        return self._prompt.default_buffer.text.startswith("/")


def _placeholder() -> FormattedText:
    style = "fg:ansibrightblack" if can_colour(sys.stdout) else ""
    return FormattedText([(style, PLACEHOLDER)])
