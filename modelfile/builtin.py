"""The models that come with hearth: put into a store once, without a network.

A built-in model is a folder registry/builtin/<name>/ with a Modelfile and <name>.gguf. The
store remembers what was put there, so that a model the user removed stays removed, one the user
replaced stays theirs, and an untouched one follows the installed version of hearth.
"""

from __future__ import annotations

import json
import logging
from importlib.resources import files
from pathlib import Path
from typing import Any

from modelfile.build import build
from modelfile.description import from_modelfile
from modelfile.errors import ModelfileError
from modelfile.parser import decode, parse
from registry.errors import ModelMissing, RegistryError
from registry.names import Name
from registry.store import Store

_STATE = "builtin.json"
_CHUNK_BYTES = 1024 * 1024
_log = logging.getLogger(__name__)


def seed_builtin(store: Store, source: Path | None = None) -> list[Name]:
    """Put the built-in models into a writable store where they are missing for the first time or
    older than the package's. source: the folder of models, the package's by default. Gives the
    names that were written.

    A model that cannot be read or written is logged and left out: the daemon starts without it.
    """
    folder = source if source is not None else Path(str(files("registry"))) / "builtin"
    known = _read_state(store)
    written = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (place / "Modelfile").is_file() or not (place / f"{place.name}.gguf").is_file():
            continue
        try:
            seeded = _seed(store, place, known)
        except (RegistryError, ModelfileError, OSError) as error:
            _log.warning("the built-in model %s was skipped: %s", place.name, error)
            continue
        if seeded is not None:
            written.append(seeded)
    return written


def _seed(store: Store, place: Path, known: dict[str, Any]) -> Name | None:
    stamp = _stamp(place)
    entry = known.get(place.name)
    if isinstance(entry, dict) and entry.get("stamp") == stamp:
        return None
    name = Name.parse(place.name)
    installed = _installed(store, name)
    model, written = entry.get("model") if isinstance(entry, dict) else None, None
    if _wanted(entry, installed):
        _install(store, name, place)
        model, written = _installed(store, name), name
    known[place.name] = {"stamp": stamp, "model": model}
    store.write_state(_STATE, json.dumps(known, sort_keys=True).encode("ascii"))
    return written


def _wanted(entry: Any, installed: str | None) -> bool:
    """True for a model never seen whose name is free, and for an older one left untouched."""
    if not isinstance(entry, dict):
        return installed is None
    return installed is not None and entry.get("model") == installed


def _install(store: Store, name: Name, place: Path) -> None:
    weights = place / f"{place.name}.gguf"
    modelfile = parse(decode((place / "Modelfile").read_bytes()))
    with (
        weights.open("rb") as content,
        store.blob_writer(size_bytes=weights.stat().st_size) as writer,
    ):
        while chunk := content.read(_CHUNK_BYTES):
            writer.write(chunk)
        digest, _ = writer.commit()
    try:
        for _ in build(store, from_modelfile(modelfile, name, {weights.name: digest})):
            pass
    except BaseException:
        store.discard([digest])
        raise


def _installed(store: Store, name: Name) -> str | None:
    try:
        return str(store.get(name).digest)
    except ModelMissing:
        return None


def _stamp(place: Path) -> str:
    """Changes when the package's files change; cheap to read at every start."""
    stamps = []
    for path in (place / "Modelfile", place / f"{place.name}.gguf"):
        status = path.stat()
        stamps.append(f"{status.st_size}-{status.st_mtime_ns}")
    return "/".join(stamps)


def _read_state(store: Store) -> dict[str, Any]:
    try:
        value = json.loads(store.read_state(_STATE) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
