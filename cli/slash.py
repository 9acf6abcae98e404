"""The /commands of the chat: what each one does to a session. Reads no keyboard."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from difflib import get_close_matches

from cli.errors import CliError, explain
from cli.parameters import parameter_help, parse_parameter
from cli.prompt_images import IMAGE_SUFFIXES as PICTURE_ENDS
from cli.session import Session

HELP = """\
Available commands:
  /set            Set session variables
  /show           Show model information
  /load MODEL     Chat with another model
  /list           List the installed models
  /clear          Forget the conversation
  /bye            Leave (also /exit and Ctrl+D)
  /?, /help       This help; /help set, /help show, /help shortcuts

Use \"\"\" to begin and end a multi-line message.
Include the path of an image, such as ./cat.png, to send it to a vision model."""

HELP_SET = """\
Available commands:
  /set parameter NAME VALUE   Set a parameter, such as temperature 0.2
  /set system TEXT            Set the system message
  /set history                Save what you type in the history
  /set nohistory              Do not save a history
  /set wordwrap               Wrap lines at words
  /set nowordwrap             Do not wrap lines
  /set format json            Request answers in JSON
  /set noformat               Request answers in any format
  /set think [level]          Enable thinking
  /set nothink                Disable thinking
  /set verbose                Show timings after each answer
  /set quiet                  Do not show timings"""

HELP_SHOW = """\
Available commands:
  /show info         Details of the model
  /show license      The licenses
  /show modelfile    The Modelfile
  /show parameters   The parameters, and those set in this chat
  /show system       The system message
  /show template     The prompt template"""

HELP_SHORTCUTS = """\
Available keyboard shortcuts:
  Up, Down           Earlier and later messages
  Ctrl + a, Ctrl + e Start and end of the line
  Alt + b, Alt + f   One word back and forward
  Ctrl + k, Ctrl + u Delete to the end, to the start of the line
  Ctrl + w           Delete the word before the cursor
  Alt + Enter        New line
  Tab                Complete a command
  Ctrl + l           Clear the screen
  Ctrl + c           Stop the answer
  Ctrl + d           Leave"""

TOPICS = {"set": HELP_SET, "show": HELP_SHOW, "shortcuts": HELP_SHORTCUTS}
SET_WORDS = (
    "parameter",
    "system",
    "history",
    "nohistory",
    "wordwrap",
    "nowordwrap",
    "format",
    "noformat",
    "think",
    "nothink",
    "verbose",
    "quiet",
)
SHOW_WORDS = ("info", "license", "modelfile", "parameters", "system", "template")

Words = list[str]


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
        print(_unknown(name))
        return True
    try:
        handler(session, rest.strip())
    except Exception as error:
        print(f"Error: {explain(error)[0]}")
    return True


def _unknown(name: str) -> str:
    near = get_close_matches(name, [*_COMMANDS, "/bye", "/exit"], n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Unknown command '{name}'.{hint} Type /? for help"


def _help(session: Session, rest: str) -> None:
    print(TOPICS.get(rest.lstrip("/"), HELP))


def _clear(session: Session, rest: str) -> None:
    session.clear()
    print("Cleared the conversation")


def _load(session: Session, rest: str) -> None:
    if not rest:
        raise CliError("give the name of a model: /load MODEL")
    from cli.spinner import Spinner

    with Spinner(f"loading {rest}"):
        session.switch(rest)
    print(f"Now chatting with {rest}")


def _list(session: Session, rest: str) -> None:
    from cli.commands.list import print_models

    print_models(session.client.tags(), rest)


def _set(session: Session, rest: str) -> None:
    word, _, value = rest.partition(" ")
    setter = _SETTERS.get(word)
    if setter is None:
        print(HELP_SET if not word else f"Unknown command '/set {word}'. Type /? for help")
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
    session.system = rest
    print("Set system message.")


def _set_format(session: Session, rest: str) -> None:
    if rest != "json":
        raise CliError("the only supported format is json: /set format json")
    session.format = "json"
    print("Set format to 'json' mode.")


def _set_think(session: Session, rest: str) -> None:
    session.think = rest or True
    print(f"Set 'think' mode to '{rest}'." if rest else "Set 'think' mode.")


def _switch(attribute: str, value: object, message: str) -> Callable[[Session, str], None]:
    def change(session: Session, rest: str) -> None:
        setattr(session, attribute, value)
        print(message)

    return change


def _show(session: Session, rest: str) -> None:
    if rest not in SHOW_WORDS:
        print(HELP_SHOW if not rest else f"Unknown command '/show {rest}'. Type /? for help")
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
    print(text or f"No {rest} was specified for this model.")


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
    "/list": _list,
    "/clear": _clear,
    "/help": _help,
    "/?": _help,
}

NAMES = (*_COMMANDS, "/bye", "/exit")
