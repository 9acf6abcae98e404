"""Which GGUF of a repository is meant: by quantization, by file, or the best for this machine.

Owns the reading of file names and the choice. Sends no requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from registry.errors import RemoteMissing, shown

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE | re.ASCII)
_QUANTIZATION = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|"
    r"F32|FP32))$",
    re.IGNORECASE | re.ASCII,
)
_NO_MODEL = re.compile(r"(?:^|/)(?:mmproj|imatrix)|[-._](?:mmproj|imatrix)[-._]", re.IGNORECASE)
_ADAPTER = re.compile(r"(?:^|[-._/])lora[-._][^/]*$", re.IGNORECASE)
_UNQUANTIZED = ("F16", "BF16", "FP16", "F32", "FP32")
_SHARE_OF_MEMORY = 0.6  # the rest is for the cache of keys and values, and for other programs
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file of a repository. sha256: None for small files, of which the host does not say it.
    git_id: the same for the same content."""

    path: str
    size_bytes: int
    sha256: str | None
    git_id: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One form of the model: a file, or all of its shards in order."""

    label: str
    entries: tuple[RepositoryFile, ...]

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(entry.size_bytes for entry in self.entries)


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """A variant, and the reason in words where the user did not choose it."""

    variant: Variant
    note: str | None = None


SizeOf = Callable[[Variant], int]


def _own_size(variant: Variant) -> int:
    return variant.size_bytes


def variants_of(entries: Iterable[RepositoryFile], adapters: bool = False) -> list[Variant]:
    """The models among the files, in the order of their names, or those that are LoRA adapters by
    their names. Incomplete sets of shards are left out."""
    groups: dict[str, dict[int, RepositoryFile]] = {}
    counts: dict[str, int] = {}
    for entry in entries:
        if not _is_gguf(entry.path) or _NO_MODEL.search(entry.path):
            continue
        if adapters is not (_ADAPTER.search(entry.path) is not None):
            continue
        shard = _SHARD.search(entry.path)
        stem = entry.path[: shard.start()] if shard else entry.path[: -len(".gguf")]
        groups.setdefault(stem, {})[int(shard[1]) if shard else 1] = entry
        counts[stem] = int(shard[2]) if shard else 1
    return [
        Variant(_label(stem), tuple(group[index] for index in sorted(group)))
        for stem, group in sorted(groups.items())
        if sorted(group) == list(range(1, counts[stem] + 1))
    ]


def model_name(variant: Variant) -> str:
    """The variant's file name in lower case without the quantization and the number of a shard."""
    path = variant.entries[0].path.rpartition("/")[2]
    shard = _SHARD.search(path)
    stem = path[: shard.start()] if shard else path[: -len(".gguf")]
    found = _QUANTIZATION.search(stem)
    return (stem[: found.start()] if found else stem).lower()


def choose_variant(
    repo: str,
    variants: list[Variant],
    selector: str | None,
    memory_bytes: int,
    size_of: SizeOf = _own_size,
) -> VariantChoice:
    """The variant that selector means, or without one the largest that memory_bytes hold well.
    size_of: the bytes of a variant with what comes along with it.

    Raises RemoteMissing naming those that there are.
    """
    if not variants:
        raise RemoteMissing(f"{repo} has no GGUF model")
    if selector is not None:
        return VariantChoice(_selected(repo, variants, selector))
    if len(variants) == 1:
        return VariantChoice(variants[0])
    return _best(variants, memory_bytes, size_of)


def _selected(repo: str, variants: list[Variant], selector: str) -> Variant:
    wanted = selector.lower()
    for variant in variants:
        paths = [entry.path.lower() for entry in variant.entries]
        if wanted in paths or wanted in [path.rpartition("/")[2] for path in paths]:
            return variant
    for variant in variants:
        if wanted in (variant.label.lower(), variant.label.lower().removeprefix("ud-")):
            return variant
    labels = ", ".join(variant.label for variant in variants[:_SHOWN])
    raise RemoteMissing(f"{repo} has no {shown(selector)}; it has {labels}")


def _best(variants: list[Variant], memory_bytes: int, size_of: SizeOf) -> VariantChoice:
    quantized = [v for v in variants if v.label.upper() not in _UNQUANTIZED] or variants
    budget = memory_bytes * _SHARE_OF_MEMORY
    fitting = [v for v in quantized if size_of(v) <= budget]
    memory = f"{memory_bytes / 2**30:.1f} GiB of memory"
    if fitting:
        best = max(fitting, key=size_of)
        return VariantChoice(
            best, f"choosing {best.label} of {len(variants)}: the best for {memory}"
        )
    best = min(quantized, key=size_of)
    return VariantChoice(best, f"choosing {best.label}, the smallest: none fits {memory}")


def _is_gguf(path: str) -> bool:
    return path.lower().endswith(".gguf")


def quantization_in(stem: str) -> str | None:
    """The quantization that a name without its extension ends with."""
    found = _QUANTIZATION.search(stem)
    return found[1] if found else None


def _label(stem: str) -> str:
    return quantization_in(stem) or stem.rpartition("/")[2]
