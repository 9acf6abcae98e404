"""The models of LM Studio: <publisher>/<repository>/*.gguf."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.foreign.models import ForeignFolder, ForeignModel, folders_in, model_files, unique
from registry.names import DEFAULT_HOST

_DEPTH = 1  # some repositories keep each quantization in a folder of its own


def folders(environ: Mapping[str, str], home: Path) -> list[Path]:
    """Where LM Studio keeps its models, now and in old versions."""
    return [home / ".lmstudio/models", home / ".cache/lm-studio/models"]


def models(root: Path) -> list[ForeignModel]:
    """The models below root. Blocks on the disk."""
    return unique(
        model
        for publisher in folders_in(root)
        for repository in folders_in(root / publisher)
        for model in _repository(root, publisher, repository).models()
    )


def _repository(root: Path, publisher: str, repository: str) -> ForeignFolder:
    files = model_files(root / publisher / repository, _DEPTH, root)
    return ForeignFolder(DEFAULT_HOST, publisher, repository, files)
