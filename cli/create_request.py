"""A Modelfile as /api/create takes it: what it says, and which files it names."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import CliError
from cli.terminal import status

if TYPE_CHECKING:
    from modelfile.ast import Modelfile

DEFAULT = "Modelfile"


@dataclass(frozen=True, slots=True)
class ModelSources:
    """What FROM, ADAPTER and DRAFT name: a model by name, or files. With name, files hold its
    projector only; draft_name and draft likewise are alternatives."""

    name: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    adapters: Mapping[str, Path] = field(default_factory=dict)
    draft: Mapping[str, Path] = field(default_factory=dict)
    draft_name: str | None = None


def read(file: str | None) -> tuple[Modelfile, str]:
    """The parsed Modelfile and what to call it. None: the one of the current folder; where there
    is none, the folder's model alone. Raises CliError naming all that is wrong, with its
    file, line and column."""
    from modelfile.errors import EncodingError
    from modelfile.parser import decode, parse_all

    shown = DEFAULT if file is None else file
    content = _content(Path(shown), file is not None)
    try:
        modelfile, errors = parse_all("FROM ." if content is None else decode(content))
    except EncodingError as error:
        raise CliError(f"{shown}: {error.message}") from None
    if errors:
        raise CliError("\n".join(f"{shown}: {error.message}" for error in errors))
    return modelfile, shown


def _content(file: Path, is_named: bool) -> bytes | None:
    from cli.sources import has_model

    try:
        return read_bytes(file)
    except FileNotFoundError:
        if not is_named and has_model(Path()):
            return None
        raise CliError(
            f"{file} does not exist; create it or give the path of a Modelfile with -f"
        ) from None


def read_bytes(file: Path) -> bytes:
    """A Modelfile's bytes, one more than it may have at most; - reads stdin. Raises CliError, also
    for a model in its place, FileNotFoundError."""
    from cli.sources import model_at, require_file
    from modelfile.parser import MAX_BYTES

    if str(file) == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    model = model_at(file)
    if model is not None:
        raise CliError(
            f"{file} is a model and not a Modelfile. To run it, type: hearth run {model}\n"
            f"For a model of your own, write a Modelfile that begins with: FROM {model}"
        )
    require_file(file)
    with file.open("rb") as content:
        return content.read(MAX_BYTES + 1)


def check(modelfile: Modelfile, shown: str) -> None:
    """Refuse, before any file is read, what no model can be made of; say what has no effect.
    RENDERER and PARSER are left to the daemon, which knows those of the model that FROM names.
    Raises CliError with all that is wrong."""
    from modelfile.check import diagnostics

    errors = []
    for diagnostic in diagnostics(modelfile):
        if not diagnostic.is_error:
            status(f"{shown}: {diagnostic}")
        elif diagnostic.command.instruction not in ("renderer", "parser"):
            errors.append(f"{shown}: {diagnostic}")
    if errors:
        raise CliError("\n".join(errors))


def sources(modelfile: Modelfile, folder: Path) -> ModelSources:
    """What its FROM, ADAPTER and DRAFT name, seen from its folder. Raises CliError."""
    from cli.sources import find

    name, files = _model(modelfile.values("from"), folder)
    adapter = modelfile.last("adapter")
    adapters = None if adapter is None else find(adapter, folder, "ADAPTER")
    draft_text = modelfile.last("draft")
    draft = None if draft_text is None else find(draft_text, folder, "DRAFT")
    if draft is not None and _same(draft, files):
        raise CliError(f"DRAFT {draft_text} is the model itself; name a smaller model")
    draft_name = draft_text if draft is None else None
    return ModelSources(name, files, adapters or {}, draft or {}, draft_name)


def _model(sources: Sequence[str], folder: Path) -> tuple[str | None, dict[str, Path]]:
    """The model's name or None, and the files that FROM names. Raises CliError."""
    from cli.sources import find

    names: list[str] = []
    files: dict[str, Path] = {}
    for text in sources:
        found = find(text, folder)
        if found is None:
            names.append(text)
        for name, path in (found or {}).items():
            files[f"projector-{name}" if name in files else name] = path
    if len(names) > 1:
        raise CliError(
            f"FROM names two models ({', '.join(names)}); a second FROM must name the file of the "
            "model's multimodal projector"
        )
    return next(iter(names), None), files


def _same(draft: Mapping[str, Path], files: Mapping[str, Path]) -> bool:
    mine, others = ({path.resolve() for path in given.values()} for given in (draft, files))
    return bool(mine & others)
