"""hearth watermark: Check whether a text has a model's watermark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.completion import installed_models
from cli.text_file import read_text

_MAX_TEXT_BYTES = 4 << 20  # a request has a million characters


def command(
    action: Annotated[Literal["detect"], typer.Argument(help="What to do", metavar="detect")],  # noqa: ARG001
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text; - reads it from stdin")],
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            autocompletion=installed_models,
            help="The model that may have written it, or one of the same vocabulary",
        ),
    ],
    gamma: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="watermark_gamma of the answer; the model's by default"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Check whether a text has a model's watermark.

    Answers have one if watermark is set in the request or in the model's Modelfile. About 200
    tokens are enough; fewer if the model had many choices.
    """
    from cli.connection import connect
    from cli.render import print_json

    text = read_text(file, _MAX_TEXT_BYTES)
    body = {"model": model, "text": text, "watermark_gamma": gamma}
    found = connect().detect_watermark(body)
    if as_json:
        print_json(found)
        return
    verdict = "a watermark" if found["is_watermarked"] else "no watermark"
    expected = found["watermark_gamma"] * found["scored"]
    print(
        f"{verdict}: {found['green']} of {found['scored']} pairs of tokens are green, where chance"
        f" gives {expected:.0f} (z = {found['z_score']:.2f}, p = {found['p_value']:.2g})"
    )
