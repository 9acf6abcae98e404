"""The models of an Ollama store: manifests and blobs, as in our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.digest import Digest
from registry.errors import RegistryError
from registry.foreign.models import ForeignFile, ForeignModel, foreign_file, unique
from registry.manifest import Descriptor, Manifest
from registry.manifests import Manifests
from registry.names import Name


def folders(environ: Mapping[str, str], home: Path) -> list[Path]:
    """Where Ollama keeps its models: as its user says, its own, or as a service of the system."""
    said = environ.get("OLLAMA_MODELS", "").strip()
    usual = [home / ".ollama/models", Path("/usr/share/ollama/.ollama/models")]
    return [Path(said).expanduser(), *usual] if said else usual


def models(root: Path) -> list[ForeignModel]:
    """The models of the store at root. Blocks on the disk."""
    manifests = Manifests(root / "manifests", root)
    return unique(_model(root, manifests, name) for name in manifests.names())


def _model(root: Path, manifests: Manifests, name: Name) -> ForeignModel:
    try:
        content = manifests.read(name).content
        manifest = Manifest.from_bytes(content)
    except (RegistryError, OSError) as error:
        reason = error.message if isinstance(error, RegistryError) else "its manifest is missing"
        return ForeignModel(name, (), obstacle=reason)
    found = [_blob(root, layer) for layer in manifest.blobs]
    files = tuple(file for file in found if isinstance(file, ForeignFile))
    reasons = [file for file in found if isinstance(file, str)]
    return ForeignModel(name, files, content, reasons[0] if reasons else None)


def _blob(root: Path, layer: Descriptor) -> ForeignFile | str:
    digest: Digest = layer.digest
    for name in (digest.file_name, str(digest)):  # the second form is that of old versions
        path = root / "blobs" / name
        if not path.exists():
            continue
        file = foreign_file(path, root)
        if isinstance(file, str):
            return file
        if file.size_bytes != layer.size_bytes:
            return f"blob {digest.short} has {file.size_bytes} bytes, not {layer.size_bytes}"
        return ForeignFile(file.path, file.size_bytes, digest)
    return f"blob {digest.short} is missing"
