"""Which files of a repository make a checkpoint in safetensors, and what else a repository
without a model may be.

Owns the reading of file names. Sends no requests, and does not know how a checkpoint is converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from registry.errors import RemoteMissing, RemoteRefused, shown
from registry.hosts.selection.variants import RepositoryFile, Variant

CHECKPOINT = "safetensors"
_WEIGHTS = ".safetensors"
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$", re.ASCII)
_STEMS = ("model", "consolidated")  # of several checkpoints in a repository the first is meant
_CONFIG = "config.json"
_ADAPTER = "adapter_config.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_SLOW = ("vocab.json", "merges.txt")  # the tokenizer of a folder without tokenizer.json
_BESIDE = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "modules.json",
    "*_Pooling/config.json",
    "README.md",
)
_MAX_FILES = 1024
_MAX_ASIDE_BYTES = 256 * 1024 * 1024


def checkpoint_of(repo: str, entries: Iterable[RepositoryFile]) -> Variant:
    """The files of the checkpoint: config.json first, the weights last.

    Raises RemoteMissing for a repository without one, with what it holds instead, and
    RemoteRefused for one whose files are not all there.
    """
    files = {entry.path: entry for entry in entries if _stays_inside(entry.path)}
    sets = _weight_sets(files)
    if not sets or _CONFIG not in files:
        raise _without_model(repo, files)
    stem = next((stem for stem in _STEMS if stem in sets), None)
    if stem is None and len(sets) > 1:
        raise RemoteRefused(f"{repo} has several checkpoints: {', '.join(sorted(sets)[:8])}")
    stem = stem or next(iter(sets))
    weights = _complete(repo, stem, sets[stem])
    aside = [*_BESIDE, f"{stem}{_WEIGHTS}.index.json"]
    if "tokenizer.json" not in files:
        aside += _SLOW
    chosen = [path for path in sorted(files) if any(fnmatchcase(path, name) for name in aside)]
    small = [files[path] for path in (_CONFIG, *chosen)]
    for entry in small:
        if entry.size_bytes > _MAX_ASIDE_BYTES:
            raise RemoteRefused(
                f"{shown(entry.path)} of {repo} has {entry.size_bytes} bytes, at most "
                f"{_MAX_ASIDE_BYTES} are allowed beside the weights"
            )
    if len(small) + len(weights) > _MAX_FILES:
        raise RemoteRefused(
            f"{repo} has {len(small) + len(weights)} files of a model, at most {_MAX_FILES} are "
            "allowed"
        )
    return Variant(CHECKPOINT, (*small, *weights))


def _stays_inside(path: str) -> bool:
    return path.isprintable() and not path.startswith("/") and ".." not in path.split("/")


def _weight_sets(
    files: Mapping[str, RepositoryFile],
) -> dict[str, dict[tuple[int, int], RepositoryFile]]:
    """The files of weights at the top of the repository by their common name, then by number
    and count; a file in one piece is 1 of 1."""
    sets: dict[str, dict[tuple[int, int], RepositoryFile]] = {}
    for path, entry in files.items():
        if "/" in path or not path.endswith(_WEIGHTS) or path.startswith("adapter"):
            continue
        shard = _SHARD.search(path)
        stem = path[: shard.start()] if shard else path.removesuffix(_WEIGHTS)
        place = (int(shard[1]), int(shard[2])) if shard else (1, 1)
        sets.setdefault(stem, {})[place] = entry
    return sets


def _complete(
    repo: str, stem: str, group: Mapping[tuple[int, int], RepositoryFile]
) -> list[RepositoryFile]:
    """All files of the weights in order; the one piece where there are shards as well."""
    if (1, 1) in group:
        return [group[1, 1]]
    count = max(count for _, count in group)
    for number in range(1, count + 1):
        if (number, count) not in group:
            name = f"{stem}-{number:05}-of-{count:05}{_WEIGHTS}"
            raise RemoteRefused(f"{repo} is incomplete: {name} is missing")
    return [group[number, count] for number in range(1, count + 1)]


def _without_model(repo: str, files: Mapping[str, RepositoryFile]) -> RemoteMissing:
    pickle = next((path for path in sorted(files) if path.lower().endswith(_PICKLES)), None)
    if pickle is not None:
        return RemoteMissing(
            f"{repo} has its weights in {shown(pickle)}, a pickle file, which can run code when "
            "opened; look for the model as GGUF or safetensors"
        )
    if _ADAPTER in files:
        return RemoteMissing(f"{repo} is an adapter whose adapter_model.safetensors is missing")
    return RemoteMissing(
        f"{repo} has no complete GGUF model and no safetensors files at its top level"
    )
