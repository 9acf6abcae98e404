"""hearth eval: Measure the perplexity of models on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.completion import InstalledModels
from cli.errors import USAGE, CliError

_MAX_TEXT_BYTES = 6 << 20  # a request holds 8 MiB, and JSON writes some letters longer


def command(
    models: InstalledModels,
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text file to predict")],
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens per chunk; 512 by default")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Measure the perplexity of models on a text.

    Lower is better. RATIO compares each model with the first."""
    from cli.connection import connect
    from cli.render import print_json

    content = _read(text)
    client = connect()
    results = [_measure(client, model, content, context, as_json) for model in models]
    for result in results:
        result["ratio"] = result["perplexity"] / results[0]["perplexity"]
    if as_json:
        print_json({"results": results})
    else:
        _print(results)


def _read(path: Path) -> str:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > _MAX_TEXT_BYTES:
            raise CliError(f"{path} has {size_bytes} bytes; the limit is {_MAX_TEXT_BYTES}", USAGE)
        return path.read_text("utf-8")
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}", USAGE) from None
    except UnicodeDecodeError as error:
        raise CliError(
            f"{path} is not UTF-8: invalid byte at position {error.start}", USAGE
        ) from None


def _measure(
    client: Any, model: str, text: str, context: int | None, quiet: bool
) -> dict[str, Any]:
    from contextlib import closing

    from cli.progress import style_for, view_for

    view = view_for(style_for(as_json=False, quiet=quiet))
    body = {"model": model, "text": text, "context": context}
    result: dict[str, Any] = {}
    with closing(view), closing(client.evaluate(body)) as lines:
        for line in lines:
            if line.get("status") == "success":
                result = {key: value for key, value in line.items() if key != "status"}
            else:
                line["status"] = f"evaluating {model}"
                view.show(line)
    return result


def _print(results: list[dict[str, Any]]) -> None:
    from cli.render import print_table

    rows = [
        (
            item["model"],
            f"{item['perplexity']:.4f} ± {item['standard_error']:.4f}",
            f"{item['ratio']:.4f}",
            str(item["tokens"]),
            str(item["chunks"]),
            str(item["context"]),
        )
        for item in results
    ]
    print_table(("NAME", "PERPLEXITY", "RATIO", "TOKENS", "CHUNKS", "CONTEXT"), rows)
