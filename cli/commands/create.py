"""hearth create: Create a model from a Modelfile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.completion import quantization_types
from cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from runner.client import Client


_FileOption = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="PATH",
        help="The Modelfile; ./Modelfile by default, - reads it from stdin",
    ),
]
_QuantizeOption = Annotated[
    str | None,
    typer.Option(
        "--quantize",
        "-q",
        metavar="TYPE",
        autocompletion=quantization_types,
        help="Quantize the weights to a type such as Q4_K_M",
    ),
]
_SparsifyOption = Annotated[
    str | None,
    typer.Option(
        metavar="2:4",
        help="Keep two of each four weights: the largest, or with --calibration the most important",
    ),
]
_DraftQuantizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        autocompletion=quantization_types,
        help="Quantize the weights of the draft model",
    ),
]
_ImatrixOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Importance matrix for the quantization, in llama.cpp's format"
    ),
]
_CalibrateOption = Annotated[
    Path | None,
    typer.Option(
        "--calibrate",
        "--calibration",
        metavar="FILE",
        help="Calibrate the quantization on this text (GPTQ, AWQ, or an importance matrix)",
    ),
]
_EvalOption = Annotated[
    Path | None,
    typer.Option(
        "--eval",
        metavar="FILE",
        help="Measure the perplexity on this text before and after; hearth show prints it",
    ),
]
_TensorTypeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX=TYPE", help="Quantize the tensors whose names match REGEX to TYPE"),
]
_AllowRequantizeOption = Annotated[
    bool, typer.Option("--allow-requantize", help="Quantize weights that are already quantized")
]
_CopyOption = Annotated[
    bool, typer.Option("--copy", help="Copy files into the store instead of linking them")
]


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new model")],
    file: _FileOption = None,
    quantize: _QuantizeOption = None,
    sparsify: _SparsifyOption = None,
    draft_quantize: _DraftQuantizeOption = None,
    imatrix: _ImatrixOption = None,
    calibrate: _CalibrateOption = None,
    eval_text: _EvalOption = None,
    tensor_type: _TensorTypeOption = None,
    allow_requantize: _AllowRequantizeOption = False,
    copy: _CopyOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line")] = False,
) -> None:
    """Create a model from a Modelfile.

    FROM names a model (pulled if it is not installed), a GGUF file, the first part of a split GGUF
    file, or a safetensors folder; a second FROM names the GGUF file of the multimodal projector
    (mmproj). ADAPTER names a GGUF file or a PEFT folder. DRAFT names a small model for speculative
    decoding in the same way as FROM. Paths are relative to the Modelfile. Without a Modelfile, the
    model in the current folder is used.

    Files are cloned into the store if the file system supports it, otherwise hard-linked if only
    you can write to them, otherwise copied. Never modify a linked file in place; write a new one or
    use --copy.
    """
    kinds = (_weights_type(quantize, sparsify), draft_quantize)
    body = _quantization(kinds, tensor_type or [], allow_requantize) | {"model": name}
    matrix = {"imatrix": imatrix, "calibrate": calibrate, "evaluate": eval_text}
    _create(body, file, {k: v for k, v in matrix.items() if v is not None}, copy, as_json)
    if not as_json:
        print(f"created '{name}'")


def _create(
    body: dict[str, Any], file: str | None, options: Mapping[str, Path], copy: bool, as_json: bool
) -> None:
    """Bring the files and have the model built. options: files for the quantization, by field."""
    from cli.connection import connect
    from cli.create_request import check, read, sources
    from cli.upload import uploader
    from modelfile.description import create_fields

    for path in options.values():
        _check_option(path, "quantize" in body)
    modelfile, shown = read(file)
    check(modelfile, shown)
    body |= create_fields(modelfile)
    given = sources(modelfile, Path() if file in (None, "-") else Path(file or "").parent)
    names = {"from": given.name, "draft": given.draft_name}
    body |= {field: name for field, name in names.items() if name is not None}
    client = connect()
    if given.files or given.adapters or given.draft or options:
        _check_name(client, body["model"])
    with uploader(client, copy, as_json) as delivery:
        if given.files:
            body["files"] = delivery.bring_all(given.files)
        if given.adapters:
            body["adapters"] = delivery.bring_all(given.adapters)
        if given.draft:
            body["draft_files"] = delivery.bring_all(given.draft)
        delivery.create(body | delivery.bring_all(options))


def _weights_type(quantize: str | None, sparsify: str | None) -> str | None:
    """What the weights become. Sparse ones are a type as others are."""
    if sparsify is None:
        return quantize
    if sparsify != "2:4":
        raise CliError(f"--sparsify {sparsify} is not supported, only 2:4", USAGE)
    if quantize is not None:
        raise CliError("use --sparsify or --quantize, not both", USAGE)
    return "sparse-2:4"


def _quantization(
    kinds: tuple[str | None, str | None], overrides: list[str], allow: bool
) -> dict[str, Any]:
    """kinds: the types for the model and for its draft model."""
    kind, of_draft = kinds
    if kind is None and (overrides or (allow and of_draft is None)):
        raise CliError("--tensor-type and --allow-requantize need --quantize TYPE", USAGE)
    wanted = {"quantize": kind, "draft_quantize": of_draft}
    body: dict[str, Any] = {field: value for field, value in wanted.items() if value is not None}
    if overrides:
        body["tensor_types"] = dict(_override(text) for text in overrides)
    return body | ({"allow_requantize": True} if allow else {})


def _override(text: str) -> tuple[str, str]:
    pattern, equals, kind = text.rpartition("=")
    if not equals or not pattern or not kind:
        raise CliError(
            f"--tensor-type {text} is invalid: use REGEX=TYPE, such as attn_v=Q8_0", USAGE
        )
    return pattern, kind


def _check_option(path: Path, quantized: bool) -> None:
    from cli.sources import require_file

    if not quantized:
        raise CliError("--imatrix, --calibrate and --eval need --quantize TYPE", USAGE)
    try:
        require_file(path)
    except FileNotFoundError:
        raise CliError(f"{path} does not exist") from None


def _check_name(client: Client, name: str) -> None:
    """Have an impossible name refused before gigabytes are read."""
    from runner.client import ClientError

    try:
        client.show(name)
    except ClientError as error:
        if error.code == "invalid_value":
            raise
