"""hearth pull: Download a model from a registry, Hugging Face or a URL."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import OK, USAGE, CliError, report


def command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Such as gemma3, hf.co/user/repo:Q4_K_M, registry.example.com/ns/model:tag, the "
            "https URL of a GGUF file, ./file.gguf or a folder",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the model is called here")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain HTTP and untrusted certificates")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors")] = False,
) -> None:
    """Download models. An interrupted download is resumed.

    The file shortnames.toml in hearth's data folder defines short names, such as
    small = "hf.co/user/repo:Q4_K_M"

    Ctrl-C stops the download unless another command is waiting for the same model.
    """
    from cli.connection import connect
    from cli.progress import follow, style_for
    from runner.client import ClientError
    from runner.notification import told_of_pull
    from runner.settings import load

    if name is not None and len(names) > 1:
        raise CliError("--name is for one model; pull the others one by one", USAGE)
    worst, style = OK, style_for(as_json, quiet)
    settings = load()
    client = connect(settings)
    for source in names:
        try:
            with told_of_pull(source, settings.notifications):
                pulled = follow(client.pull(_place(source), insecure, name), style)
        except ClientError as error:
            worst = max(worst, report(error))
        else:
            if style not in ("json", "quiet") and "unchecked" not in pulled:
                print(f"pulled '{pulled.get('model', source)}'")
    if worst != OK:
        raise typer.Exit(worst)


def _place(name: str) -> str:
    """The whole path for one that begins where the user is; other names as they are."""
    if not name.startswith(("./", "../", "~/")) and name not in (".", ".."):
        return name
    import os

    return os.path.abspath(os.path.expanduser(name))
