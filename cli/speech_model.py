"""Chooses the speech model if the command does not name one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.completion import installed_models
from cli.errors import CliError

if TYPE_CHECKING:
    from runner.client import Client

SpeechModel = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="MODEL", autocompletion=installed_models, help="Model to use"
    ),
]
_FAMILIES = {"transcription": "whisper", "speech": "piper"}
_SOURCES = {
    "transcription": "a folder of a Whisper model for CTranslate2",
    "speech": "the .onnx file of a Piper voice",
}


def model_for(
    client: Client, capability: Literal["transcription", "speech"], wanted: str | None
) -> str:
    """wanted, else the only installed model that can do it. Raises CliError, ClientError."""
    if wanted is not None:
        return wanted
    family = _FAMILIES[capability]
    names = [each["name"] for each in client.tags() if each["details"]["family"] == family]
    if len(names) == 1:
        return names[0]
    if names:
        raise CliError(f"several models can do this: choose one with --model ({', '.join(names)})")
    raise CliError(
        f"no {family} model is installed; create one from a Modelfile with FROM and the path of"
        f" {_SOURCES[capability]}"
    )
