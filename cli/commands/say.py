"""hearth say: Speak a text, or write the sound to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import USAGE, CliError
from cli.speech_model import SpeechModel, model_for

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_PLAYERS = (("paplay",), ("aplay", "-q"), ("afplay",))


def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text to speak; - reads stdin")],
    model: SpeechModel = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help=f"Write a file: {', '.join(_FORMATS)}"),
    ] = None,
    voice: Annotated[
        str | None, typer.Option(metavar="NAME", help="Speaker, if the model has several")
    ] = None,
    speed: Annotated[float, typer.Option(metavar="N", help="Speed, from 0.25 to 4")] = 1.0,
) -> None:
    """Speak a text, or write the sound to a file.

    Without --output it is played with paplay, aplay or afplay. --model is needed only if several
    Piper voices are installed."""
    from cli.connection import connect

    kind = "wav" if output is None else output.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise CliError(f"{output}: the name must end with one of .{', .'.join(_FORMATS)}", USAGE)
    player = _player() if output is None else ()
    client = connect()
    body: dict[str, Any] = {
        "model": model_for(client, "speech", model),
        "input": _read(text),
        "voice": voice,
        "speed": speed,
        "response_format": kind,
    }
    sound = client.post("/v1/audio/speech", body)
    if output is None:
        _play(player, sound)
    else:
        _write(output, sound)


def _read(text: str) -> str:
    import sys

    return sys.stdin.read() if text == "-" else text


def _player() -> tuple[str, ...]:
    from shutil import which

    found = next((each for each in _PLAYERS if which(each[0])), None)
    if found is None:
        names = ", ".join(each[0] for each in _PLAYERS)
        raise CliError(f"no program to play sound was found ({names}); give --output FILE", USAGE)
    return found


def _play(player: tuple[str, ...], sound: Iterable[bytes]) -> None:
    """Play a whole WAV file: players want one that they can seek in."""
    import subprocess
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile(suffix=".wav") as file:
        _write(Path(file.name), sound)
        done = subprocess.run((*player, file.name), check=False)
    if done.returncode:
        raise CliError(f"{player[0]} could not play the sound; give --output FILE")


def _write(path: Path, sound: Iterable[bytes]) -> None:
    """A WAV file gets the lengths that a stream cannot have."""
    pieces = list(sound)
    data = bytearray(b"".join(pieces))
    if data[:4] == b"RIFF":
        data[4:8] = (len(data) - 8).to_bytes(4, "little")
        data[40:44] = (len(data) - 44).to_bytes(4, "little")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
