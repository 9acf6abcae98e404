"""hearth transcribe: Transcribe a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.errors import USAGE, CliError
from cli.speech_model import SpeechModel, model_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Format = Literal["text", "json", "srt", "vtt", "verbose_json"]


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording: wav, mp3, m4a, ...")],
    model: SpeechModel = None,
    form: Annotated[
        _Format,
        typer.Option("--format", metavar="FORMAT", help="text, json, srt, vtt, verbose_json"),
    ] = "text",
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Language spoken, such as en")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Preceding text, or names that occur")
    ] = None,
    translate: Annotated[bool, typer.Option("--translate", help="Translate to English")] = False,
) -> None:
    """Transcribe a recording.

    The text is printed as it is recognized. --model is needed only if several Whisper models are
    installed."""
    from cli.connection import connect
    from cli.sources import require_file

    try:
        require_file(file)
    except FileNotFoundError:
        raise CliError(f"{file} does not exist", USAGE) from None
    client = connect()
    fields = {
        "model": model_for(client, "transcription", model),
        "response_format": form,
        "language": language,
        "prompt": prompt,
        "stream": "true" if form == "text" else None,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    path = f"/v1/audio/{'translations' if translate else 'transcriptions'}"
    answer = client.post_form(path, given, file)
    for text in _texts(answer) if form == "text" else (part.decode() for part in answer):
        print(text, end="", flush=True)
    print(end="" if form in ("srt", "vtt") else "\n")


def _texts(chunks: Iterable[bytes]) -> Iterator[str]:
    """What the events of a stream add. Raises CliError for what ended it."""
    pending = b""
    for chunk in chunks:
        *events, pending = (pending + chunk).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: "):
                value = json.loads(event.removeprefix(b"data: "))
                if "error" in value:
                    raise CliError(str(value["error"].get("message")))
                if value.get("type") == "transcript.text.delta":
                    yield value["delta"]
