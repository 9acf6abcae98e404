"""hearth pull: Download a model from a registry, Hugging Face or a URL."""

from __future__ import annotations

import click

from cli.errors import OK, report


@click.command()
@click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    required=True,
    help="Such as gemma3, hf.co/user/repo:Q4_K_M, registry.example.com/ns/model:tag, the https URL "
    "of a GGUF file, ./file.gguf or a folder",
)
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and untrusted certificates")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line")
@click.option("--quiet", "-q", is_flag=True, help="Print only errors")
def command(names: tuple[str, ...], insecure: bool, as_json: bool, quiet: bool) -> None:
    """Download models. An interrupted download is resumed.

    The file shortnames.toml in hearth's data folder defines short names, such as
    small = "hf.co/user/repo:Q4_K_M"

    Ctrl-C stops the download unless another command is waiting for the same model.
    """
    from cli.connection import connect
    from cli.progress import follow, style_for
    from runner.client import ClientError

    worst, style = OK, style_for(as_json, quiet)
    client = connect()
    for name in names:
        try:
            stored = follow(client.pull(_place(name), insecure), style)
        except ClientError as error:
            worst = max(worst, report(error))
        else:
            if style not in ("json", "quiet"):
                print(f"pulled '{stored or name}'")
    if worst != OK:
        raise click.exceptions.Exit(worst)


def _place(name: str) -> str:
    """The whole path for one that begins where the user is; other names as they are."""
    if not name.startswith(("./", "../", "~/")):
        return name
    import os

    return os.path.abspath(os.path.expanduser(name))
