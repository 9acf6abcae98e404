"""The models in the cache of the Hugging Face Hub, GGUF files and safetensors:
models--<user>--<repository>/snapshots/<revision>/*, links to ../../blobs/<digest>. Since
huggingface-hub 2.4 these are links too, to <cache>/blobs/<2 hex digits>/<hash>, which all
repositories share. Links to anywhere else are not followed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from registry.foreign.models import ForeignFolder, ForeignModel, folders_in, model_files, unique
from registry.hosts.kinds.huggingface import HUGGING_FACE

_PREFIX = "models--"
_DEPTH = 2
_SHARED = "blobs"
_ENDS = (".gguf", ".safetensors", ".json", ".txt", ".model", ".jinja", "readme.md")


def folders(environ: Mapping[str, str], home: Path) -> list[Path]:
    """Where the Hub's library keeps its cache, in its own order of variables."""
    said = [
        (environ.get("HF_HUB_CACHE"), ""),
        (environ.get("HUGGINGFACE_HUB_CACHE"), ""),
        (environ.get("HF_HOME"), "hub"),
        (environ.get("XDG_CACHE_HOME"), "huggingface/hub"),
    ]
    found = [Path(text).expanduser() / rest for text, rest in said if text and text.strip()]
    return [*found[:1], home / ".cache/huggingface/hub"][: 1 if found else 2]


def models(root: Path) -> list[ForeignModel]:
    """The models in the cache at root, those of the main revision first. Blocks on the disk."""
    return unique(
        model
        for name in folders_in(root)
        if name.startswith(_PREFIX)
        for folder in _snapshots(root / name)
        for model in folder.models()
    )


def _snapshots(repository: Path) -> list[ForeignFolder]:
    user, separator, model = repository.name.removeprefix(_PREFIX).partition("--")
    if not separator:
        return []
    revisions = folders_in(repository / "snapshots")
    main = _main(repository)
    ordered = sorted(revisions, key=lambda revision: (revision != main, revision))
    shared = repository.parent / _SHARED
    inside = [repository] if shared.is_symlink() else [repository, shared]
    return [
        ForeignFolder(
            HUGGING_FACE,
            user,
            model,
            model_files(repository / "snapshots" / revision, _DEPTH, *inside, ends=_ENDS),
        )
        for revision in ordered
    ]


def _main(repository: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (repository / "refs" / "main").read_text("ascii")[:64].strip()
    return None
