"""Quantizes one model file in a folder of the store, and measures what that costs.

Owns the order of the jobs and the texts that they get. Knows nothing of where the file comes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelfile.errors import BuildError
from modelfile.load_quantization import FLOAT_TYPES
from modelfile.quantization import CALIBRATED, weights_type
from registry.digest import Digest
from registry.formats.gguf import GgufHeader
from registry.store import Store
from runner.library.calibration_text import calibration_texts, evaluation_text

Job = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class QuantizationRequest:
    """How the weights shall be stored. overrides: pairs of a regular expression over tensor names
    and a type. imatrix: a blob that tells which weights matter. calibration: a blob of text from
    which that is found out; evaluation: one on which the perplexity is measured, before and
    after."""

    type: str
    overrides: tuple[tuple[str, str], ...] = ()
    imatrix: Digest | None = None
    calibration: Digest | None = None
    evaluation: Digest | None = None
    allow_requantize: bool = False

    @property
    def bits_per_weight(self) -> float:
        """About the bits that a weight will have."""
        return weights_type(self.type).bits_per_weight

    @property
    def is_calibrated(self) -> bool:
        """Made by PyTorch, from a text."""
        return self.type in CALIBRATED

    @property
    def method(self) -> str:
        """Of the job calibrated. Which weights are left out a text says only where one is given."""
        if self.type == "SPARSE-2:4":
            return "magnitude" if self.calibration is None else "wanda"
        return self.type.partition("-")[0].lower()


class WeightsQuantizer:
    """The quantization of a model file. run: does a job."""

    def __init__(self, store: Store, wanted: QuantizationRequest, folder: Path, run: Job) -> None:
        self._store = store
        self._wanted = wanted
        self._folder = folder
        self._run = run
        self._target = folder / "quantized.gguf"

    async def quantize(
        self, source: Path, config: Path | None
    ) -> tuple[Path, Mapping[str, Any] | None]:
        """The quantized file, and its perplexity before and after where that is measured. config:
        the config.json that the source was made from. Raises what the jobs raise."""
        if self._wanted.is_calibrated:
            return await self._by_text(source, config)
        given = self._wanted.calibration, self._wanted.evaluation
        text = await asyncio.to_thread(evaluation_text, self._store, *given)
        before = None if text is None else await self._measure(source, text[0], "llamacpp")
        await self._to_type(source)
        if text is None:
            return self._target, None
        after = await self._measure(self._target, text[0], "llamacpp")
        return self._target, self._measured(text[1], before, after)

    async def _to_type(self, source: Path) -> None:
        wanted = self._wanted
        imatrix = await self._imatrix(source)
        job = {
            "source": str(source),
            "target": str(self._target),
            "type": wanted.type,
            "overrides": [list(pair) for pair in wanted.overrides],
            "imatrix": None if imatrix is None else str(imatrix),
            "allow_requantize": wanted.allow_requantize,
        }
        await self._run("quantize", job)

    async def _imatrix(self, source: Path) -> Path | None:
        wanted = self._wanted
        if wanted.calibration is None:
            return None if wanted.imatrix is None else self._store.blob_path(wanted.imatrix)
        target = self._folder / "imatrix.gguf"
        text = str(self._store.blob_path(wanted.calibration))
        await self._run("imatrix", {"model": str(source), "text": text, "target": str(target)})
        return target

    async def _by_text(
        self, source: Path, config: Path | None
    ) -> tuple[Path, Mapping[str, Any] | None]:
        given = self._wanted.calibration, self._wanted.evaluation
        texts = await asyncio.to_thread(calibration_texts, self._store, *given)
        before = await self._measure(source, texts.evaluation, "torch")
        text, folder = self._folder / "calibration.txt", self._folder / "checkpoint"
        await asyncio.to_thread(text.write_text, texts.calibration, "utf-8")
        await asyncio.to_thread(folder.mkdir)
        method = self._wanted.method
        job = {
            "source": str(source),
            "target": str(self._target),
            "folder": str(folder),
            "method": method,
            "text": None if method == "magnitude" else str(text),
            "config": None if config is None else str(config),
        }
        await self._run("calibrated", job)
        after = await self._measure(self._target, texts.evaluation, "torch")
        return self._target, self._measured(texts.source, before, after)

    async def _measure(self, model: Path, text: str, backend: str) -> Mapping[str, Any]:
        path = self._folder / "evaluation.txt"
        await asyncio.to_thread(path.write_text, text, "utf-8")
        return await self._run(
            "perplexity", {"model": str(model), "text": str(path), "backend": backend}
        )

    def _measured(
        self, text: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return {"type": self._wanted.type, "text": text, "before": before, "after": after}


def check_floats(header: GgufHeader, wanted: QuantizationRequest) -> None:
    """Refuse weights that are quantized already, unless that is allowed. Raises BuildError."""
    types = {tensor.type for tensor in header.tensors} - set(FLOAT_TYPES)
    if types and not wanted.allow_requantize:
        raise BuildError(
            f"the model's weights are already quantized ({', '.join(sorted(types))}); make"
            f" {wanted.type} from floats, or use --allow-requantize"
        )
