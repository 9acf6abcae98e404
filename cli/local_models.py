"""A model file or folder of this machine as a model of the daemon: `hearth run ./model.gguf`.

Owns its name and whether it has to be created. Files reach the daemon like those of a Modelfile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import CliError
from cli.sources import begins_as_path, find, is_whole_gguf
from cli.upload import uploader

if TYPE_CHECKING:
    from runner.client import Client

NAMESPACE = "local"  # as `hearth pull ./model.gguf` has it
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_MAX_CHARACTERS = 80
# In Hugging Face's cache
_SNAPSHOT = re.compile(r"\A.*--(?P<model>(?:(?!--)[^/])++)/snapshots/[^/]++$")


def is_path(text: str) -> bool:
    """Whether text names a file or folder of this machine rather than a model."""
    is_file = text.lower().endswith(".gguf") and Path(text).is_file()
    return is_file or begins_as_path(text)


def model_of_path(client: Client, text: str) -> str:
    """The name of the model that is made of the file or folder at a path: local/<its name>. One
    that is there with the same weights is not made again; with others it gets a tag of its own.

    A folder of safetensors and the parts of a split model are pulled by the daemon, which must be
    on this machine. Raises CliError for what is no model, ClientError.
    """
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise CliError(f"{text} does not exist")
    files = find(str(path), path.parent, "the command") or {}
    if not is_whole_gguf(files):
        return _pulled(client, path)
    name, weights = _name(path), next(iter(files.values()))
    installed = _installed(client, name)
    with uploader(client) as upload:
        if installed is not None and _is_linked(weights, installed, upload.store):
            return name
        digest = upload.bring(weights)
        if installed is not None and installed["weights"] != digest:
            name = f"{name}:{digest[7:19]}"
            installed = _installed(client, name)
        if installed is None:
            brought = {key: digest if file == weights else upload.bring(file)
                       for key, file in files.items()}  # fmt: skip
            upload.create({"model": name, "files": brought})
    return name


def _name(path: Path) -> str:
    snapshot = _SNAPSHOT.search(str(path))
    stem = snapshot["model"] if snapshot else path.name.removesuffix(".gguf")
    return f"{NAMESPACE}/{_NOT_IN_NAMES.sub('-', stem)[:_MAX_CHARACTERS].lstrip('-.') or '_'}"


def _installed(client: Client, name: str) -> Mapping[str, Any] | None:
    from runner.client import ClientError

    try:
        return client.show(name)
    except ClientError as error:
        if error.code == "model_not_found":
            return None
        raise


def _is_linked(path: Path, installed: Mapping[str, Any], store: Path | None) -> bool:
    """Whether the model's weights are this very file, unchanged since: it need not be read."""
    if store is None:
        return False
    try:
        blob = store / "blobs" / installed["weights"].replace(":", "-")
        made_s = datetime.fromisoformat(installed["modified_at"]).timestamp()
        return blob.samefile(path) and path.stat().st_mtime < made_s
    except OSError:
        return False


def _pulled(client: Client, path: Path) -> str:
    from cli.progress import follow, style_for

    pulled = follow(client.pull(str(path)), style_for(as_json=False, quiet=False))
    return str(pulled.get("model") or _name(path))
