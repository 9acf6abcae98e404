"""Which models of another program are meant, and which of them can be taken.

Owns the question what is here already. Takes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from registry.digest import Digest
from registry.errors import ModelMissing
from registry.foreign import huggingface, lmstudio, ollama
from registry.foreign.models import ForeignModel
from registry.names import Name, nearest
from registry.store import Store
from runner.errors import InvalidRequest, ModelNotFound
from runner.library.lookup import parse_name

_PROGRAMS: dict[str, ModuleType] = {"ollama": ollama, "lmstudio": lmstudio, "hf": huggingface}
_TITLES = {"ollama": "Ollama", "lmstudio": "LM Studio", "hf": "the Hugging Face cache"}


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Which models of which program. path: its folder, None: where it usually is. names: which
    models; empty: all. copy: copy what cannot be linked. dry_run: list only."""

    program: str
    path: str | None = None
    names: tuple[str, ...] = ()
    copy: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ImportCandidate:
    """A model and what is to be done with it: new, present (nothing), or blocked (nothing, for
    a reason)."""

    model: ForeignModel
    state: str
    reason: str | None = None


def import_candidates(store: Store, options: ImportOptions) -> list[ImportCandidate]:
    """The models that are meant. Blocks on the disk. Raises InvalidRequest for a folder that is
    not there, ModelNotFound with near names."""
    program = _PROGRAMS[options.program]
    root = _root(store, program, options)
    models: list[ForeignModel] = program.models(root)
    return [_judged(store, model) for model in _chosen(models, options)]


def _root(store: Store, program: ModuleType, options: ImportOptions) -> Path:
    if options.path is not None:
        folders = [Path(options.path).expanduser()]
    else:
        folders = program.folders(os.environ, Path.home())
    root = next((folder for folder in folders if folder.is_dir()), None)
    if root is None:
        raise InvalidRequest(
            f"the folder of {_TITLES[options.program]} was not found; give it with --path",
            param="path",
        )
    if root.resolve() == store.root.resolve():
        raise InvalidRequest(
            "this folder is the model store itself; its models are already installed",
                             param="path")  # fmt: skip
    return root


def _chosen(models: list[ForeignModel], options: ImportOptions) -> list[ForeignModel]:
    """The models that are meant: all, or those named in full or without the tag."""
    if not options.names:
        return models
    chosen: dict[Name, ForeignModel] = {}
    for text in options.names:
        wanted = parse_name(text).folded
        count = 4 if ":" in text.rpartition("/")[2] else 3
        same = [model for model in models if model.name.folded[:count] == wanted[:count]]
        if not same:
            near = list(nearest(text, [model.name for model in models]))
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            message = f"{_TITLES[options.program]} has no model {text[:200]!r}{hint}"
            raise ModelNotFound(message, model=text, suggestions=near)
        chosen |= {model.name: model for model in same}
    return list(chosen.values())


def _judged(store: Store, model: ForeignModel) -> ImportCandidate:
    if model.obstacle is not None:
        return ImportCandidate(model, "blocked", model.obstacle)
    try:
        installed = store.get(model.name)
    except ModelMissing:
        return ImportCandidate(model, "new")
    if installed.fault is not None:
        return ImportCandidate(model, "new")
    blobs = {layer.digest for layer in installed.manifest.blobs}
    if model.content is not None and Digest.of(model.content) == installed.digest:
        return ImportCandidate(model, "present")
    if model.content is None and all(file.digest in blobs for file in model.all_files):
        return ImportCandidate(model, "present")
    origins = (store.records.origin(digest) for digest in blobs)
    if any(origin is not None and origin.recipe == model.recipe for origin in origins):
        return ImportCandidate(model, "present")
    short = model.name.short
    reason = f"another model {short} is installed; to replace it, run `hearth rm {short}` first"
    return ImportCandidate(model, "blocked", reason)
