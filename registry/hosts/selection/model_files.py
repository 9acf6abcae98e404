"""Which files of a repository or folder are wanted: a GGUF with its projector, a speech model, an
adapter, or the safetensors.

Owns the order of preference and the messages about it. Sends no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from registry.errors import RemoteMissing, shown
from registry.hosts.host import Role
from registry.hosts.selection.adapters import adapter_of
from registry.hosts.selection.checkpoint import checkpoint_of
from registry.hosts.selection.projectors import projector_for, projectors_of, with_projector
from registry.hosts.selection.speech import speech_of
from registry.hosts.selection.variants import RepositoryFile, Variant, choose_variant, variants_of


@dataclass(frozen=True, slots=True)
class SelectedFiles:
    """The files that are wanted, and what the user should hear of the choice."""

    entries: tuple[RepositoryFile, ...]
    role: Role = "weights"
    projector: RepositoryFile | None = None
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> list[tuple[RepositoryFile, Role]]:
        """All of them, each with what it is for."""
        files: list[tuple[RepositoryFile, Role]] = [(entry, self.role) for entry in self.entries]
        return files if self.projector is None else [*files, (self.projector, "projector")]

    def title(self, entry: RepositoryFile) -> str:
        """What the file is called, each another way: the parts of a checkpoint by their paths, a
        GGUF without its folder."""
        if not entry.path.lower().endswith(".gguf"):
            return entry.path
        names = [file.path.rpartition("/")[2] for file, _ in self.files]
        name = entry.path.rpartition("/")[2]
        return name if names.count(name) == 1 else entry.path


def select_files(
    repo: str, entries: list[RepositoryFile], selector: str | None, memory_bytes: int
) -> SelectedFiles:
    """The GGUF that selector means, or the best for the memory, with its projector; the speech
    model, the adapter or the safetensors where there is none. repo: what the files are called
    together.

    Raises RemoteMissing with what there is instead, RemoteRefused.
    """
    models, adapters = variants_of(entries), variants_of(entries, adapters=True)
    found = [*models, *adapters] if selector is not None else models or adapters
    if found:
        projectors = projectors_of(entries)

        def size_of(variant: Variant) -> int:
            beside = projector_for(variant, found, projectors)
            return variant.size_bytes + (0 if beside is None else beside.size_bytes)

        choice = choose_variant(repo, found, selector, memory_bytes, size_of)
        beside = projector_for(choice.variant, found, projectors)
        notes = [choice.note, None if beside is None else with_projector(beside)]
        message = tuple(text for text in notes if text is not None)
        return SelectedFiles(choice.variant.entries, projector=beside, notes=message)
    speech = speech_of(entries)
    if speech is not None and selector is None:
        return SelectedFiles(speech.entries)
    adapter = adapter_of(repo, entries)
    variant = adapter or checkpoint_of(repo, entries)
    if selector is not None:
        what = "safetensors" if adapter is None else "an adapter"
        raise RemoteMissing(
            f"{repo} has no {shown(selector)}: it contains {what} and no GGUF. Pull "
            f"hf.co/{repo} and quantize it with: hearth create --quantize"
        )
    if adapter is not None:
        return SelectedFiles(variant.entries, "adapter")
    note = "no GGUF files found: downloading safetensors to convert them"
    return SelectedFiles(variant.entries, notes=(note,))
