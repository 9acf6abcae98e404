"""The help of the chat, laid out for the terminal's width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

Rows = Sequence[tuple[str, str]]

COMMANDS: Rows = (
    ("/set", "Set parameters and how the chat behaves; /set alone lists them"),
    ("/show", "Show details of the model; /show alone lists them"),
    ("/load MODEL", "Chat with another model"),
    ("/save NAME", "Save the model with its settings and the conversation"),
    ("/list", "List the installed models"),
    ("/clear", "Forget the conversation"),
    ("/bye", "Leave (also /exit and Ctrl + d)"),
    ("/?, /help", "This help; /help set, /help show, /help shortcuts"),
)
COMMANDS_END = (
    'Use """ to begin and end a message of several lines.',
    "Include the path of an image, such as ./cat.png, to send it to a vision model.",
)
SET: Rows = (
    ("/set parameter NAME VALUE", "Set a parameter, such as temperature 0.2"),
    ("/set system TEXT", "Set the system message"),
    ("/set history", "Save what you type in the history"),
    ("/set nohistory", "Do not save it"),
    ("/set wordwrap", "Wrap lines at words"),
    ("/set nowordwrap", "Do not wrap lines"),
    ("/set format json", "Request answers in JSON"),
    ("/set noformat", "Request answers in any format"),
    ("/set think [LEVEL]", "Enable thinking"),
    ("/set nothink", "Disable thinking"),
    ("/set verbose", "Show timings after each answer"),
    ("/set quiet", "Do not show timings"),
)
SHOW: Rows = (
    ("/show info", "Details of the model"),
    ("/show license", "The licenses"),
    ("/show modelfile", "The Modelfile"),
    ("/show parameters", "The parameters, and those set in this chat"),
    ("/show system", "The system message"),
    ("/show template", "The prompt template"),
)
SHORTCUTS: Rows = (
    ("Up, Down", "Earlier and later messages"),
    ("Ctrl + r", "Search earlier messages"),
    ("Ctrl + a, Ctrl + e", "Start and end of the line"),
    ("Alt + b, Alt + f", "One word back and forward"),
    ("Ctrl + k, Ctrl + u", "Delete to the end, to the start of the line"),
    ("Ctrl + w", "Delete the word before the cursor"),
    ("Ctrl + j, Alt + Enter", "New line"),
    ("Tab", "Complete a command"),
    ("Ctrl + g", "Write the message in your editor"),
    ("Ctrl + l", "Clear the screen"),
    ("Ctrl + c", "Stop the answer"),
    ("Ctrl + d", "Leave"),
)
_MIN_MEANING = 24  # with fewer columns left, what a command does stands below it


def help_text(topic: str, width: int) -> str:
    """The help of a topic, "set", "show" or "shortcuts", or of all commands, no line longer than
    width columns where words allow."""
    return "\n".join(_lines(topic, max(width, 16)))


def _lines(topic: str, width: int) -> Iterator[str]:
    rows = TOPICS.get(topic, COMMANDS)
    what = "keyboard shortcuts" if rows is SHORTCUTS else "commands"
    yield from wrap(f"Available {what}:", width)
    yield from _table(rows, width)
    if rows is COMMANDS:
        yield ""
        for text in COMMANDS_END:
            yield from wrap(text, width)


def _table(rows: Rows, width: int) -> Iterator[str]:
    indent = max(len(usage) for usage, _ in rows) + 4
    beside = width - indent >= _MIN_MEANING
    for usage, meaning in rows:
        lines = wrap(meaning, width - (indent if beside else 6))
        if beside:
            yield f"  {usage:<{indent - 2}}{lines[0]}"
            yield from (" " * indent + line for line in lines[1:])
        else:
            yield from (f"  {line}" for line in wrap(usage, width - 2, break_long_words=False))
            yield from (f"      {line}" for line in lines)


TOPICS = {"set": SET, "show": SHOW, "shortcuts": SHORTCUTS}
SET_WORDS = tuple(usage.split()[1] for usage, _ in SET)
SHOW_WORDS = tuple(usage.split()[1] for usage, _ in SHOW)
