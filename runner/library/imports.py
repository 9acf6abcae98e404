"""Models of Ollama, LM Studio and the Hugging Face cache taken into the store, without a copy where
the file system allows it.

Owns the order and what became of each model. Which models are meant: import_candidates.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from modelfile.build import build
from modelfile.description import Description
from modelfile.errors import ModelfileError
from registry.digest import Digest
from registry.errors import RegistryError, StoreError, StoreReadOnly, shown_size
from registry.foreign.link import import_file
from registry.foreign.models import ForeignModel
from registry.manifest import MODEL_TYPE, Manifest
from registry.progress import Progress
from registry.records import BlobOrigin
from registry.store import Store
from runner.errors import HearthError, Unsupported
from runner.library.import_candidates import ImportCandidate, ImportOptions, import_candidates
from runner.library.library import Library
from runner.library.model_builder import projector_fault
from runner.library.progress import Advance, run_with_progress
from runner.library.weights import WeightsBuilder, WeightsInput

_PROJECTOR = "mmproj"  # no name of a file of weights, which end with .gguf


@dataclass(frozen=True, slots=True)
class ImportNote:
    """Something that does not come with the model that is taken."""

    text: str


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """A model that was taken, or why it was refused; copy_bytes: what copying it would take."""

    model: str
    reason: str | None = None
    copy_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ImportTotals:
    """What came of an import."""

    models: int
    imported: int
    refused: int
    linked_bytes: int
    copied_bytes: int


ImportEvent = ImportCandidate | Progress | ImportNote | ImportOutcome | ImportTotals
ReportImport = Callable[[ImportEvent], Awaitable[None]]


async def run_import(library: Library, options: ImportOptions, report: ReportImport) -> None:
    """List another program's models, and take those that are asked for: the candidates, what is
    done with each, and last the totals. A caller that is cancelled ends it; the models that were
    taken stay.

    Raises StoreReadOnly, InvalidRequest, ModelNotFound, StoreError.
    """
    if library.read_only and not options.dry_run:
        raise StoreReadOnly("import models")
    found = await asyncio.to_thread(import_candidates, library.store, options)
    for candidate in found:
        await report(candidate)
    counts: Counter[str] = Counter()
    for candidate in () if options.dry_run else found:
        if candidate.state == "new":
            importing = _Import(library.store, candidate.model, options.copy, counts, report)
            outcome = await importing.run()
            if outcome.reason is None:
                await library.on_change(outcome.model)
            await report(outcome)
    await report(
        ImportTotals(
            models=len(found),
            imported=counts["imported"],
            refused=counts["refused"],
            linked_bytes=counts["link"] + counts["reflink"],
            copied_bytes=counts["copy"],
        )
    )


@dataclass(frozen=True, slots=True)
class _Import:
    """The import of one model. counts: models by outcome, and bytes by the way they came."""

    store: Store
    model: ForeignModel
    copy: bool
    counts: Counter[str]
    report: ReportImport

    async def run(self) -> ImportOutcome:
        """Take it; what fails leaves nothing. Raises StoreError."""
        name = self.model.name.short
        try:
            await self._import()
        except StoreError:
            raise
        except (RegistryError, ModelfileError, HearthError) as error:
            self.counts["refused"] += 1
            return ImportOutcome(name, error.message, getattr(error, "size_bytes", None))
        self.counts["imported"] += 1
        return ImportOutcome(name)

    @property
    def _is_made(self) -> bool:
        """Whether what is installed is another file than those that are taken."""
        return self.model.content is None and len(self.model.files) > 1

    async def _import(self) -> None:
        store, model = self.store, self.model
        if self._is_made and not self.copy:
            what = "is in safetensors; converting" if model.titles else "is in parts; joining"
            size = shown_size(model.size_bytes)
            raise Unsupported(f"it {what} them writes about {size}: allow it with --copy")
        digests: dict[str, Digest] = {}
        with store.holding(file.digest for file in model.all_files if file.digest is not None):
            try:
                work = partial(self._take, digests)
                status = f"importing {model.name.short}"
                await run_with_progress(work, status, model.size_bytes, self.report)
                with store.holding(digests.values()):
                    await self._install(digests)
            finally:
                await asyncio.to_thread(store.discard, digests.values())

    def _take(self, digests: dict[str, Digest], advance: Advance) -> None:
        """Make the files blobs; digests gets them under names that a build takes: the Hub's files
        are named by their digest. Blocks on the disk."""
        titles = dict(enumerate(self.model.titles))
        for number, file in enumerate(self.model.all_files):
            digest, method = import_file(self.store, file, self.copy, advance)
            name = titles.get(number, f"{number:05}-{self.model.name.model}.gguf")
            digests[_PROJECTOR if file is self.model.projector else name] = digest
            self.counts["copy" if self._is_made else method] += file.size_bytes

    async def _install(self, digests: dict[str, Digest]) -> None:
        store, model = self.store, self.model
        if model.content is not None:
            manifest = Manifest.from_bytes(model.content)
            await asyncio.to_thread(store.put_manifest, model.name, manifest, model.content)
            return
        files = {name: digest for name, digest in digests.items() if name != _PROJECTOR}
        inputs = WeightsInput(files=files, keep_quantized=True)
        weights = await WeightsBuilder(store, inputs, self.report).build()
        assert weights.model is not None
        projector = await self._projector(digests.get(_PROJECTOR), weights.model)
        files = {"model.gguf": weights.model}
        description = Description(model.name, files=files, projector=projector)
        try:
            with store.holding(weights.written):
                await asyncio.to_thread(lambda: list(build(store, description)))
        finally:
            await asyncio.to_thread(store.discard, weights.written)
        origin = BlobOrigin(str(model.files[0].path), recipe=model.recipe)
        await asyncio.to_thread(store.keep_origin, model.name, origin, MODEL_TYPE)

    async def _projector(self, projector: Digest | None, model: Digest) -> Digest | None:
        """The projector; None, which is reported, for one that the model cannot use."""
        if projector is None:
            return None
        fault = await asyncio.to_thread(projector_fault, self.store, projector, model)
        if fault is not None:
            await self.report(ImportNote(f"the projector was skipped: {fault}"))
        return projector if fault is None else None
