"""Records the terminal picture: python -m docs.generator.recorder.

Runs the commands below in a pseudo-terminal, against a daemon and a store of its own, and writes
what they print as docs/images/terminal-light.svg and terminal-dark.svg. Needs the dev extra.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pexpect
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from docs.generator.palette import SCHEMES, Palette

COLUMNS, ROWS = 92, 50
MODELFILE = "FROM ember\nPARAMETER temperature 0.2\nSYSTEM You are a careful proofreader.\n"
COMMANDS = (
    'hearth run ember "What can you do?"',
    "cat Modelfile",
    "hearth create proofreader -f Modelfile 2>/dev/null",
    'hearth run proofreader "Spell hearth backwards."',
    "hearth ps",
    "hearth bench ember --clients 1,8 --output-tokens 32",
)
_IMAGES = Path(__file__).parents[1] / "images"
_SVG = """\
<svg viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A session with hearth in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font: 600 17px system-ui, sans-serif }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    """Record once, and draw it for each scheme."""
    session = record()
    for scheme, palette in SCHEMES.items():
        picture = draw(session, palette, f"terminal-{scheme}")
        (_IMAGES / f"terminal-{scheme}.svg").write_text(picture, encoding="utf-8")


def record() -> list[tuple[str, str]]:
    """Each command with what it printed."""
    address = f"127.0.0.1:{_free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        Path(folder, "Modelfile").write_text(MODELFILE, encoding="utf-8")
        try:
            return [(command, _run(command, folder, home, address)) for command in COMMANDS]
        finally:
            told = home / "state" / "daemon.json"
            if told.exists():
                os.kill(json.loads(told.read_text())["pid"], signal.SIGTERM)


def draw(session: list[tuple[str, str]], palette: Palette, name: str) -> str:
    """The picture."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    for command, output in session:
        console.print(Text.assemble(("$ ", "bright_red"), (command, "bold")))
        console.print(Text.from_ansi(output))
        console.print()
    theme = _theme(palette)
    return console.export_svg(title="hearth", theme=theme, code_format=_SVG, unique_id=name)


def _run(command: str, folder: str, home: Path, address: str) -> str:
    environment = {name: value for name, value in os.environ.items() if "HEARTH_" not in name}
    environment |= {
        "HEARTH_HOME": str(home),
        "HEARTH_HOST": address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
    }
    output, status = pexpect.run(
        f"sh -c {shlex.quote(command)}",
        withexitstatus=True,
        timeout=120,
        cwd=folder,
        env=environment,
        dimensions=(ROWS, COLUMNS),
    )
    if status != 0:
        raise SystemExit(f"{command} ended with {status}: {output.decode()}")
    return "\n".join(final_line(line) for line in output.decode().split("\r\n")).rstrip()


def final_line(line: str) -> str:
    """What stands in a line when all that was written over is gone."""
    while match := re.search(r"\x1b\[(\d+)D\x1b\[K", line):
        line = line[: match.start() - int(match[1])] + line[match.end() :]
    line = re.sub(r"\x1b\[\?25[lh]|\x1b\[2?K", "", line)
    return line.rpartition("\r")[2].rstrip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _theme(palette: Palette) -> TerminalTheme:
    plain = [_rgb(palette.ink)] * 8
    bright = [_rgb(palette.ink), _rgb(palette.accent), *[_rgb(palette.ink)] * 6]
    return TerminalTheme(_rgb(palette.panel), _rgb(palette.ink), plain, bright)


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return red, green, blue


if __name__ == "__main__":
    main()
