"""hearth eval: Measure the perplexity of models on a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import InstalledModels
from cli.text_file import read_text

if TYPE_CHECKING:
    from cli.eval_state import EvalState

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

    Lower is better. RATIO compares each model with the first. The same command resumes an
    interrupted run."""
    from cli.connection import connect
    from cli.eval_state import EvalState
    from cli.render import print_json
    from runner.settings import load

    content = read_text(text, _MAX_TEXT_BYTES)
    settings = load()
    client = connect(settings)
    folder = settings.state_dir / "eval"
    states = [(model, EvalState(folder, model, text, content, context)) for model in models]
    body = {"text": content, "context": context}
    results = [
        _measure(client, {**body, "model": model}, state, as_json) for model, state in states
    ]
    for _, state in states:
        state.remove()
    for result in results:
        result["ratio"] = result["perplexity"] / results[0]["perplexity"]
    if as_json:
        print_json({"results": results})
    else:
        _print(results)


def _measure(client: Any, body: dict[str, Any], state: EvalState, quiet: bool) -> dict[str, Any]:
    from contextlib import closing

    from cli.progress import style_for, view_for
    from cli.terminal import status

    view = view_for(style_for(as_json=False, quiet=quiet))
    resume = state.load()
    result: dict[str, Any] = {}
    with closing(view), closing(client.evaluate({**body, "resume": resume})) as lines:
        for line in lines:
            if line.get("status") == "success":
                result = {key: value for key, value in line.items() if key != "status"}
                continue
            if resume is not None:
                done = f"continuing after {line['completed']} of {line['total']} chunks"
                other = "the saved state is from another model: starting again"
                is_known = line["completed"] == resume["chunks"]
                status(f"{body['model']}: {done if is_known else other}")
                resume = None
            state.save(line.pop("state"))
            line["status"] = f"evaluating {body['model']}"
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
