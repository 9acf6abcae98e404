"""The chat on a terminal: reads messages and commands, shows answers, until the user leaves."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cli.answer import StreamedAnswer, print_timing, show_answer, writer
from cli.chat_start import introduce
from cli.endings import report_ending
from cli.errors import explain
from cli.line_keyboard import LineKeyboard
from cli.multiline import unquoted
from cli.prompt_images import extract_images
from cli.session import Session
from cli.slash import execute, is_command
from cli.terminal import can_move, status

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from cli.keyboard import Keyboard
    from runner.replies import JsonObject, ReplyChunk

HINT = "Use Ctrl + d or /bye to exit."
_STOPPED = "stopped; the question and this part of the answer stay in the conversation"
_STOPPED_EARLY = "stopped before the answer began; the question stays in the conversation"


def chat(session: Session, shown: JsonObject, history_file: Path | None) -> None:
    """Talk until /bye or Ctrl-D. shown: see chat_start. history_file None: nothing that is typed
    is kept."""
    keyboard = _keyboard(history_file)
    if session.toolbox is not None:
        session.toolbox.ask = keyboard.confirm
    with keyboard.open():
        introduce(session, shown)
        while _turn(session, keyboard):
            pass


def _keyboard(history_file: Path | None) -> Keyboard | LineKeyboard:
    if not can_move(sys.stdout):
        return LineKeyboard()
    from cli.keyboard import Keyboard

    return Keyboard(history_file)


def _turn(session: Session, keyboard: Keyboard | LineKeyboard) -> bool:
    """One message or command; False when the chat is over."""
    keyboard.set_history(session.history)
    try:
        text = keyboard.ask()
    except EOFError:
        return False
    except KeyboardInterrupt:
        if keyboard.was_empty:
            print(HINT)
        return True
    try:
        if is_command(text):
            return execute(session, unquoted(text))
        if unquoted(text).strip():
            _answer(session, unquoted(text), keyboard)
    except KeyboardInterrupt:
        print()
    return True


def _answer(session: Session, text: str, keyboard: Keyboard | LineKeyboard) -> None:
    """With tools, the keyboard is free between the answers: a call may have to be allowed."""
    if session.toolbox is None:
        with keyboard.answering():
            _converse(session, text, nullcontext)
    else:
        _converse(session, text, keyboard.answering)


def _converse(
    session: Session, text: str, answering: Callable[[], AbstractContextManager[None]]
) -> None:
    def show(chunks: Generator[ReplyChunk, None, None]) -> StreamedAnswer:
        with answering():
            return show_answer(chunks, writer(session.word_wrap), session.show_thinking)

    try:
        text, images = extract_images(session, text)
        if session.toolbox is not None and not session.alone:
            turns = session.asked(text, images)
            answer, session.turns = session.toolbox.answered(turns, session.chat, show)
        else:
            answer = show(session.ask(text, images))
    except Exception as error:
        sys.stdout.flush()
        status(f"Error: {explain(error)[0]}")
        return
    print() if answer.stopped else print("\n")
    if not session.alone and session.toolbox is None:
        session.remember(text, answer.text, images)
        if answer.stopped:
            status(f"({_STOPPED if answer.text else _STOPPED_EARLY})")
    report_ending(session, answer.last)
    if session.verbose:
        print_timing(answer.last)
