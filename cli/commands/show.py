"""hearth show: Show details of a model."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from cli.completion import InstalledModel
from cli.errors import USAGE, CliError
from cli.terminal import is_terminal
from cli.wrap import visible

PARTS = ("license", "modelfile", "parameters", "system", "template")
_TEXT_LINES = 2
_MEMORY_PARTS = ("total", "weights", "cache", "compute")
_INFO_ROWS = (
    ("context length", "context_length"),
    ("embedding length", "embedding_length"),
    ("layers", "block_count"),
)


def command(
    model: InstalledModel,
    license: Annotated[bool, typer.Option("--license", help="Show only the licenses")] = False,
    modelfile: Annotated[bool, typer.Option("--modelfile", help="Show only the Modelfile")] = False,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Show only the parameters")
    ] = False,
    system: Annotated[bool, typer.Option("--system", help="Show only the system message")] = False,
    template: Annotated[bool, typer.Option("--template", help="Show only the template")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Show details of a model."""
    from cli.connection import connect
    from cli.render import print_json

    parts = zip(PARTS, (license, modelfile, parameters, system, template), strict=True)
    wanted = [part for part, given in parts if given]
    if len(wanted) + as_json > 1:
        raise CliError(
            "use only one of --license, --modelfile, --parameters, --system, --template and --json",
            USAGE,
        )
    shown = connect().show(model)
    if as_json:
        print_json(shown)
    elif wanted:
        print(part_text(shown, wanted[0]))
    else:
        print_info(shown)


def part_text(model: dict[str, Any], part: str) -> str:
    """One text of a model as /api/show gives it; "" when it has none."""
    value = model.get(part)
    text = "\n\n".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return (visible(text) if is_terminal(sys.stdout) else text).rstrip("\n")


def print_info(model: dict[str, Any]) -> None:
    """Everything of a model, in sections."""
    for title, lines in sections(model):
        print(f"  {title}")
        for line in lines:
            print(f"    {line}")
        print()


def sections(model: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The sections of a model that have something to say: (title, lines)."""
    found = [
        ("Model", _table(model_rows(model))),
        ("Projector", _table(projector_rows(model))),
        ("Capabilities", [str(name) for name in model.get("capabilities") or []]),
        ("Parameters", part_text(model, "parameters").splitlines()),
        ("System", _beginning(part_text(model, "system"))),
        ("License", _beginning(part_text(model, "license"))),
    ]
    return [(title, lines) for title, lines in found if lines]


def is_base(model: dict[str, Any]) -> bool:
    """Whether a model, as /api/show gives it, writes text and has no chat template."""
    return "completion" in (model.get("capabilities") or ()) and not model.get("template")


def model_rows(model: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts about the weights."""
    details = model.get("details") or {}
    info = model.get("model_info") or {}
    architecture = str(info.get("general.architecture") or details.get("family") or "")
    rows = [("architecture", architecture), ("parameters", details.get("parameter_size"))]
    if is_base(model):
        rows.append(("kind", "base model: no chat template, continues a text"))
    rows += [(label, info.get(f"{architecture}.{key}")) for label, key in _INFO_ROWS]
    rows.append(("quantization", details.get("quantization_level")))
    rows.append(("bits per weight", model.get("bits_per_weight")))
    if measured := model.get("perplexity"):
        rows += _perplexity_rows(measured)
    if draft := model.get("draft"):
        rows.append(("draft model", f"{draft['parameter_size']} {draft['quantization_level']}"))
    rows.append(("adds adapters to", details.get("parent_model") or None))
    rows.append(("adapters", ", ".join(model.get("adapters") or ()) or None))
    rows.append(("file size", _size(model.get("size"))))
    rows.append(("crashes", model.get("crashes")))
    if memory := model.get("memory"):
        parts = {part: _size(memory[f"{part}_bytes"]) for part in _MEMORY_PARTS}
        rows += [
            ("memory when loaded", f"{parts['total']}; several conversations take more cache"),
            ("  weights", parts["weights"]),
            ("  cache", f"{parts['cache']} for {memory['context_length']} tokens"),
            ("  buffers", parts["compute"]),
        ]
    return [(label, str(value)) for label, value in rows if value]


def _perplexity_rows(measured: dict[str, Any]) -> list[tuple[str, str]]:
    """What the quantization cost."""
    before, after = measured["before"], measured["after"]
    ratio = after["perplexity"] / before["perplexity"]
    return [
        (
            "perplexity",
            f"{after['perplexity']:.4f}, before {before['perplexity']:.4f}: x {ratio:.4f}",
        ),
        ("  measured on", f"{after['tokens']} tokens of {measured['text']}"),
    ]


def projector_rows(model: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts about what makes embeddings of images; none where the model has no such part."""
    found, info = model.get("projector") or {}, model.get("projector_info") or {}
    if not found:
        return []
    rows = [
        ("architecture", found.get("architecture")),
        ("parameters", found.get("parameter_size")),
        ("embedding length", info.get("clip.vision.embedding_length")),
        ("image size", info.get("clip.vision.image_size")),
        ("quantization", found.get("quantization_level")),
        ("size", _size(found.get("size"))),
        ("not used", found.get("fault")),
    ]
    return [(label, str(value)) for label, value in rows if value]


def _size(size_bytes: int | None) -> str | None:
    from cli.render import size

    return size(size_bytes) if size_bytes else None


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(label) for label, _ in rows), default=0)
    return [f"{label:<{width}}    {value}" for label, value in rows]


def _beginning(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[:_TEXT_LINES] + (["..."] if len(lines) > _TEXT_LINES else [])
