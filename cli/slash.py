"""The /commands of the chat: what each one does to a session. Reads no keyboard."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from cli.chat_help import SET_WORDS, SHOW_WORDS, help_text
from cli.chat_start import chat_model, introduce
from cli.endings import report_ending
from cli.errors import CliError, explain
from cli.parameters import parameter_help, parse_parameter, think_value
from cli.prompt_images import IMAGE_SUFFIXES as PICTURE_ENDS
from cli.session import Session
from cli.terminal import columns, fitted, status


def is_command(text: str) -> bool:
    """Whether a line is a command and not a message: /word, not a path such as /etc/hosts or that
    of a picture."""
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    is_path = "/" in word[1:] or word.lower().endswith(PICTURE_ENDS)
    return word.startswith("/") and not is_path


def execute(session: Session, text: str) -> bool:
    """Do what a command line says; False when the chat is over. Errors are printed."""
    name, _, rest = text.strip().partition(" ")
    if name in ("/bye", "/exit"):
        return False
    handler = _COMMANDS.get(name)
    if handler is None:
        print(_unknown(name, NAMES))
        return True
    try:
        handler(session, rest.strip())
    except Exception as error:
        print(fitted(f"Error: {explain(error)[0]}", sys.stdout))
    return True


def _unknown(text: str, known: Sequence[str]) -> str:
    *start, word = text.split()
    near = get_close_matches(word, known, n=1)
    hint = f" Did you mean {' '.join([*start, near[0]])}?" if near else ""
    return f"Unknown command '{text}'.{hint} Type /? for help"


def _help(_session: Session, rest: str) -> None:
    print(help_text(rest.lstrip("/"), columns()))


def _clear(session: Session, _rest: str) -> None:
    session.clear()
    print("Cleared the conversation")


def _load(session: Session, rest: str) -> None:
    if not rest:
        raise CliError("give the name of a model: /load MODEL")
    from cli.spinner import Spinner

    dropped = session.system
    with Spinner(f"loading {rest}"):
        shown = chat_model(session.client, rest)
        loaded = session.switch(rest)
    print(f"Now chatting with {rest}")
    if dropped:
        status("(the system message that was set is dropped; /set system sets another)")
    report_ending(session, loaded)
    introduce(session, shown)


def _save(session: Session, rest: str) -> None:
    if not rest:
        raise CliError("give the model a name: /save NAME")
    if any("images" in turn for turn in session.turns):
        print("The model gets the conversation without its images")
    session.save(rest)
    print(f"Created new model '{rest}'")


def _list(session: Session, rest: str) -> None:
    from cli.commands.list import print_models

    print_models(session.client.tags(), rest)


def _set(session: Session, rest: str) -> None:
    word, _, value = rest.partition(" ")
    setter = _SETTERS.get(word)
    if setter is None:
        _help(session, "set") if not word else print(_unknown(f"/set {word}", SET_WORDS))
        return
    setter(session, value.strip())


def _set_parameter(session: Session, rest: str) -> None:
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise CliError(f"{rest!r} cannot be parsed: {error}") from None
    if len(words) < 2:
        print(parameter_help(words[0] if words else None))
        return
    value = parse_parameter(words[0], words[1:])
    session.options[words[0]] = value
    print(f"Set parameter '{words[0]}' to '{', '.join(words[1:])}'")


def _set_system(session: Session, rest: str) -> None:
    if not rest:
        raise CliError("give the message: /set system TEXT")
    if session.raw:
        raise CliError("--raw sends only the prompt, without a system message")
    session.system = rest
    print("Set system message.")


def _set_format(session: Session, rest: str) -> None:
    if rest != "json":
        raise CliError("the only supported format is json: /set format json")
    session.format = "json"
    print("Set format to 'json' mode.")


def _set_think(session: Session, rest: str) -> None:
    level = think_value(rest or "true")
    if level and not session.can("thinking"):
        raise CliError(f"{session.model} does not support thinking; /load another model for it")
    session.think = level
    print(f"Set 'think' mode to '{rest}'." if rest else "Set 'think' mode.")


def _switch(attribute: str, value: object, message: str) -> Callable[[Session, str], None]:
    def change(session: Session, _rest: str) -> None:
        setattr(session, attribute, value)
        print(message)

    return change


def _show(session: Session, rest: str) -> None:
    if rest not in SHOW_WORDS:
        _help(session, "show") if not rest else print(_unknown(f"/show {rest}", SHOW_WORDS))
        return
    from cli.commands.show import part_text, print_info

    if rest == "system" and session.system:
        print(session.system)
        return
    model = session.client.show(session.model)
    if rest == "info":
        print_info(model)
        return
    text = part_text(model, rest)
    if rest == "parameters":
        text = _parameters(session, text)
    absent = _ABSENT.get(rest, f"{rest} was")
    print(text or f"No {absent} specified for this model.")


def _parameters(session: Session, of_model: str) -> str:
    own = "\n".join(f"  {name:<30} {value}" for name, value in session.options.items())
    parts = []
    if of_model:
        parts.append("Model defined parameters:\n" + _indented(of_model))
    if own:
        parts.append("User defined parameters:\n" + own)
    return "\n\n".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


_ABSENT = {"system": "system message was", "parameters": "parameters were"}
_SETTERS: dict[str, Callable[[Session, str], None]] = {
    "parameter": _set_parameter,
    "system": _set_system,
    "format": _set_format,
    "think": _set_think,
    "nothink": _switch("think", False, "Set 'nothink' mode."),
    "noformat": _switch("format", None, "Disabled format."),
    "history": _switch("history", True, "History is saved."),
    "nohistory": _switch("history", False, "History is not saved."),
    "wordwrap": _switch("word_wrap", True, "Set 'wordwrap' mode."),
    "nowordwrap": _switch("word_wrap", False, "Set 'nowordwrap' mode."),
    "verbose": _switch("verbose", True, "Set 'verbose' mode."),
    "quiet": _switch("verbose", False, "Set 'quiet' mode."),
}

_COMMANDS: dict[str, Callable[[Session, str], None]] = {
    "/set": _set,
    "/show": _show,
    "/load": _load,
    "/save": _save,
    "/list": _list,
    "/clear": _clear,
    "/help": _help,
    "/?": _help,
}

NAMES = (*_COMMANDS, "/bye", "/exit")
