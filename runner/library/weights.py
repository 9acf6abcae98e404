"""One GGUF from whatever a model is to be made of: merged, converted, quantized.

Owns the order of the jobs, the space they need and what they leave when they end early: nothing.
Knows nothing of HTTP, of tensors and of types: runner/jobs does the work in processes of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelfile.build import check_header
from modelfile.errors import BuildError
from registry.bundle import model_header, model_layer
from registry.digest import Digest
from registry.names import Name
from registry.store import Store
from runner.library.jobs import run_job
from runner.library.progress import ReportProgress, run_with_progress
from runner.library.quantizing import QuantizationRequest, WeightsQuantizer, check_floats
from runner.library.weight_files import WeightsFormat, file_sizes, weights_format

RunJob = Callable[[str, Mapping[str, Any], ReportProgress, str | None], Awaitable[dict[str, Any]]]

PLAIN_TYPES = ("F32", "F16", "BF16")
_UNITS = {
    "quantize": "tensors",
    "imatrix": "chunks",
    "perplexity": "chunks",
    "calibrated": "layers",
}  # else bytes


@dataclass(frozen=True, slots=True)
class WeightsInput:
    """What to make weights of: blobs by the names of their files, or an installed model.
    keep_quantized: a quantized checkpoint stays as it is, for the torch backend."""

    files: Mapping[str, Digest] = field(default_factory=dict)
    adapter_files: Mapping[str, Digest] = field(default_factory=dict)
    from_model: Name | None = None
    quantization: QuantizationRequest | None = None
    keep_quantized: bool = False

    @property
    def groups(self) -> tuple[Mapping[str, Digest], ...]:
        """The files that belong together."""
        return tuple(files for files in (self.files, self.adapter_files) if files)

    @property
    def digests(self) -> set[Digest]:
        """Every blob that was given."""
        found = {*self.files.values(), *self.adapter_files.values()}
        if self.quantization is not None:
            wanted = self.quantization
            others = (wanted.imatrix, wanted.calibration, wanted.evaluation)
            found.update(digest for digest in others if digest is not None)
        return found


@dataclass(frozen=True, slots=True)
class BuiltWeights:
    """What a model shall have. model and adapters: None for those of the installed model.
    written: blobs that were written for it. perplexity: see registry.bundle.Bundle."""

    model: Digest | None = None
    adapters: tuple[Digest, ...] | None = None
    written: tuple[Digest, ...] = ()
    perplexity: Mapping[str, Any] | None = None


class WeightsBuilder:
    """The build of one model's weights in a folder of the store. report is called with its
    progress."""

    def __init__(
        self, store: Store, inputs: WeightsInput, report: ReportProgress, run: RunJob = run_job
    ) -> None:
        self._store = store
        self._input = inputs
        self._report = report
        self._run = run
        self._written: list[Digest] = []

    async def build(self) -> BuiltWeights:
        """Merge, convert and quantize as asked. When this fails or is cancelled, nothing is left.

        Raises BuildError, InvalidGguf, ModelMissing, BlobMissing, StoreFull, StoreFault,
        StoreReadOnly, and the errors of runner.errors that a job raises.
        """
        try:
            source = await asyncio.to_thread(self._source)
            if source is not None and not self._needs_folder():
                return BuiltWeights(self._input_model(), self._input_adapters())
            self._store.require_space(self._needed_bytes(source))
            async with _workspace(self._store) as folder:
                return await self._build(folder, source)
        except BaseException:
            await asyncio.to_thread(self._store.discard, self._written)
            raise

    async def _build(self, folder: Path, source: Path | None) -> BuiltWeights:
        written = source is None
        if source is None:
            source = await self._whole(folder / "whole.gguf")
        quantization = self._input.quantization
        measured: Mapping[str, Any] | None = None
        if quantization is not None and not (written and self._converts_to(quantization.type)):
            maker = WeightsQuantizer(self._store, quantization, folder, self._job)
            quantized, measured = await maker.quantize(source, self._config())
            if written:
                source.unlink()
            source, written = quantized, True
        model = await self._take(source) if written else self._input_model()
        path = source if model is None else self._store.blob_path(model)
        adapters = await self._adapters(folder, path)
        return BuiltWeights(model, adapters, tuple(self._written), measured)

    def _needs_folder(self) -> bool:
        inputs = self._input
        kinds = [weights_format(self._store, files) for files in inputs.groups]
        return inputs.quantization is not None or any(
            kind is not WeightsFormat.GGUF for kind in kinds
        )

    def _source(self) -> Path | None:
        """The GGUF that is there already; None when it must be made first."""
        inputs = self._input
        if inputs.from_model is not None:
            manifest = self._store.get(inputs.from_model).manifest
            path = self._store.blob_path(model_layer(manifest).digest)
        elif weights_format(self._store, inputs.files) is WeightsFormat.GGUF:
            (digest,) = inputs.files.values()
            path = self._store.blob_path(digest)
        else:
            return None
        header = model_header(path)
        check_header(header)
        if inputs.quantization is not None and header.is_speech:
            raise BuildError("a speech model stays as it is; create it without quantizing")
        if inputs.quantization is not None and header.keeps_checkpoint:
            raise BuildError(
                f"the model's weights are already quantized ({header.quantization}); they cannot be"
                " quantized again"
            )
        if inputs.quantization is not None and not header.tensors:
            raise BuildError("the model has no weights to quantize")
        if inputs.quantization is not None and inputs.quantization.is_calibrated:
            check_floats(header, inputs.quantization)
        return path

    def _config(self) -> Path | None:
        """The config.json that the weights came with."""
        digest = self._input.files.get("config.json")
        return None if digest is None else self._store.blob_path(digest)

    def _input_model(self) -> Digest | None:
        return next(iter(self._input.files.values()), None)

    def _input_adapters(self) -> tuple[Digest, ...] | None:
        return tuple(self._input.adapter_files.values()) or None

    def _needed_bytes(self, source: Path | None) -> int:
        """About the bytes of all files that will be written, the adapter's left out."""
        quantization = self._input.quantization
        if source is None:
            whole = written = sum(file_sizes(self._store, self._input.files).values())
        else:
            whole, written = model_header(source).file_size_bytes, 0
        if quantization is None or (source is None and self._converts_to(quantization.type)):
            return written
        share = min(1.0, quantization.bits_per_weight / 16)
        return written + int(whole * share * (2 if quantization.is_calibrated else 1))

    def _converts_to(self, kind: str) -> bool:
        """Whether the conversion gives this type by itself."""
        files = self._input.files
        return (
            kind in PLAIN_TYPES and weights_format(self._store, files) is WeightsFormat.SAFETENSORS
        )

    async def _whole(self, target: Path) -> Path:
        """Merge the parts, or convert the safetensors, into target."""
        files, quantization = self._input.files, self._input.quantization
        if weights_format(self._store, files) is WeightsFormat.SPEECH:
            return await self._packed(target)
        if weights_format(self._store, files) is WeightsFormat.PARTS:
            parts = list(self._paths(files).values())
            await self._job("merge", {"parts": parts, "target": str(target)})
            return target
        kind = "auto"
        if quantization is not None and quantization.type in PLAIN_TYPES:
            kind = quantization.type
        await self._convert(files, target, kind, None)
        return target

    async def _packed(self, target: Path) -> Path:
        """The files of a speech model in one, target."""
        if self._input.quantization is not None:
            raise BuildError("a speech model stays as it is; create it without quantizing")
        await self._job("speech", {"files": self._paths(self._input.files), "target": str(target)})
        return target

    async def _convert(
        self, files: Mapping[str, Digest], target: Path, kind: str, base: Path | None
    ) -> None:
        job = {
            "files": self._paths(files),
            "target": str(target),
            "type": kind,
            "adapter": base is not None,
            "keep": self._input.keep_quantized and self._input.quantization is None,
            "base": None if base is None else str(base),
        }
        await self._job("convert", job)

    async def _adapters(self, folder: Path, base: Path) -> tuple[Digest, ...] | None:
        files = self._input.adapter_files
        if not files or weights_format(self._store, files) is WeightsFormat.GGUF:
            return self._input_adapters()
        target = folder / "adapter.gguf"
        await self._convert(files, target, "F16", base)
        return (await self._take(target),)

    async def _job(self, name: str, job: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._run(name, job, self._report, _UNITS.get(name))

    async def _take(self, path: Path) -> Digest:
        """A file of the workspace as a blob."""
        store, size_bytes = self._store, _size(path)
        digest, _ = await run_with_progress(
            lambda advance: store.take_made(path, advance), "verifying", size_bytes, self._report
        )
        self._written.append(digest)
        return digest

    def _paths(self, files: Mapping[str, Digest]) -> dict[str, str]:
        return {name: str(self._store.blob_path(digest)) for name, digest in files.items()}


@contextlib.asynccontextmanager
async def _workspace(store: Store) -> AsyncIterator[Path]:
    """A folder of the store, removed in a thread: that takes a while for large files."""
    opened = store.workspace()
    folder = opened.__enter__()
    try:
        yield folder
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


def _size(path: Path) -> int:
    return path.stat().st_size
