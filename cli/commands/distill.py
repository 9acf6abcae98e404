"""hearth distill: Train a small model to imitate an installed one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.completion import installed_models
from cli.errors import USAGE, CliError
from cli.text_file import read_text

_MAX_CONFIG_BYTES = 1 << 20

_TeacherArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEACHER", autocompletion=installed_models, help="Name of an installed model"
    ),
]
_StudentOption = Annotated[
    Path,
    typer.Option(metavar="CONFIG", help="JSON file with the student's sizes, as in config.json"),
]
_TextOption = Annotated[Path, typer.Option(metavar="FILE", help="Text to learn from")]
_NameOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the student; TEACHER-student by default"),
]
_SeparatorOption = Annotated[str, typer.Option(metavar="TEXT", help="Separator between documents")]
_AnswerOption = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="BEFORE AFTER", help="Learn only the text between these, including AFTER"),
]
_ContextOption = Annotated[
    int | None, typer.Option(metavar="N", help="Maximum tokens of a document; the rest is cut")
]
_EpochsOption = Annotated[float, typer.Option(metavar="N", help="Passes over the text")]
_StepsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Number of training steps, instead of --epochs")
]
_SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Seed for the order of documents and the first weights")
]
_ThreadsOption = Annotated[
    int | None, typer.Option(metavar="N", help="CPU threads; all cores by default")
]
_PlotOption = Annotated[
    Path | None, typer.Option(metavar="FILE.svg", help="Write a plot of the loss")
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line")]


def command(
    teacher: _TeacherArgument,
    student: _StudentOption,
    text: _TextOption,
    name: _NameOption = None,
    separator: _SeparatorOption = "<|endoftext|>",
    answer: _AnswerOption = None,
    context: _ContextOption = None,
    epochs: _EpochsOption = 3.0,
    steps: _StepsOption = None,
    seed: _SeedOption = 1,
    threads: _ThreadsOption = None,
    plot: _PlotOption = None,
    as_json: _JsonOption = False,
) -> None:
    """Train a small model to imitate an installed one.

    The student learns the probabilities of the teacher's most likely next tokens in the text.
    CONFIG has hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
    intermediate_size and the like; missing sizes are the teacher's. If the teacher is a Llama and
    the student has the same width, the student begins with layers of the teacher.

    The same command resumes an interrupted training. Needs PyTorch.
    """
    from cli.connection import connect
    from cli.progress import follow, style_for
    from cli.upload import uploader

    body: dict[str, Any] = {
        "model": teacher,
        "name": name or f"{teacher.partition(':')[0]}-student",
        "student": _config(student),
        "separator": separator,
        "answer": answer,
        "context": context,
        "epochs": epochs,
        "steps": steps,
        "seed": seed,
        "threads": threads,
    }
    if not text.is_file():
        raise CliError(f"{text} does not exist", USAGE)
    client = connect()
    with uploader(client, as_json=as_json) as delivery:
        body["text"] = delivery.bring(text)
    result = follow(client.distill(body), style_for(as_json, quiet=False))
    losses = [(step, loss) for step, loss in result["losses"]]
    if plot is not None and losses:
        _write_plot(plot, losses, result["model"])
    if not as_json:
        _tell(result, losses)


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path, _MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise CliError(f"{path} is not JSON: {error}", USAGE) from None
    if not isinstance(found, dict):
        raise CliError(f"{path} holds no JSON object", USAGE)
    return found


def _write_plot(path: Path, losses: list[tuple[int, float]], name: str) -> None:
    from cli.loss_plot import svg_plot

    try:
        path.write_text(svg_plot(losses, f"{name}: nats per token from the teacher"), "utf-8")
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None


def _tell(result: dict[str, Any], losses: list[tuple[int, float]]) -> None:
    from cli.loss_plot import text_plot

    print(text_plot(losses))
    share = result["parameters"] / result["teacher_parameters"]
    print(
        f"{result['model']} has {result['parameters'] / 1e6:.2f} M parameters, {share:.0%} of the"
        f" teacher's, and was trained for {result['steps']} steps of {result['tokens']} tokens"
    )
    if result["divergence"] is not None:
        print(
            f"on held-out documents it is {result['divergence']:.3f} nats per token from the"
            f" teacher, and {result['agreement']:.1%} of its most likely tokens are the teacher's"
        )
