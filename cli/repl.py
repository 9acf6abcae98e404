"""The chat on a terminal: reads messages and commands, shows answers, until the user leaves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cli.answer import print_timing, show_answer
from cli.errors import explain
from cli.multiline import read_message
from cli.prompt_images import extract_images
from cli.session import Session
from cli.slash import execute, is_command

if TYPE_CHECKING:
    from cli.keyboard import Keyboard

HINT = "Use Ctrl + d or /bye to exit."


def chat(session: Session, history_file: Path | None) -> None:
    """Talk until /bye or Ctrl-D. history_file None: nothing that is typed is kept."""
    from cli.keyboard import Keyboard

    keyboard = Keyboard(history_file)
    while True:
        keyboard.set_history(session.history)
        try:
            text = read_message(keyboard.ask)
        except EOFError:
            return
        except KeyboardInterrupt:
            _explain_interrupt(keyboard)
            continue
        if is_command(text):
            if not execute(session, text):
                return
        elif text.strip():
            _answer(session, text)


def _explain_interrupt(keyboard: Keyboard) -> None:
    if keyboard.was_empty:
        print(HINT)


def _answer(session: Session, text: str) -> None:
    try:
        text, images = extract_images(session, text)
        chunks = session.ask(text, images)
        answer = show_answer(chunks, session.word_wrap, session.show_thinking)
    except KeyboardInterrupt:
        print()
        return
    except Exception as error:
        sys.stdout.flush()
        print(f"Error: {explain(error)[0]}", file=sys.stderr)
        return
    print("\n")
    session.remember(text, answer.text, images)
    if session.verbose:
        print_timing(answer.last)
