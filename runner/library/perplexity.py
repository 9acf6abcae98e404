"""The perplexity of an installed model on a text, measured in a child process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelfile.load_quantization import OFF
from registry.bundle import Bundle
from runner.library.jobs import run_job
from runner.library.progress import ReportProgress


async def measure_perplexity(
    bundle: Bundle, text: str, options: Mapping[str, Any], report: ReportProgress
) -> dict[str, Any]:
    """Measure: perplexity, error (its standard error), tokens, chunks, context. options: those of
    the job, see runner/jobs/perplexity.py. A caller that is cancelled ends it.

    Raises InvalidRequest, ModelLoadFailed, WorkerCrashed, InternalError.
    """
    scale = float(bundle.parameters.get("lora_scale", 1.0))
    with tempfile.TemporaryDirectory(prefix="hearth-eval-") as folder:
        path = Path(folder) / "text"
        await asyncio.to_thread(path.write_text, text, "utf-8")
        job = {
            "model": str(bundle.model_path),
            "adapters": [[str(adapter.path), scale] for adapter in bundle.adapters],
            "text": str(path),
            **_backend(bundle),
            **options,
        }
        return await run_job("perplexity", job, report, "chunks")


def _backend(bundle: Bundle) -> dict[str, Any]:
    """What computes it: torch, where that alone can, or the Modelfile says so."""
    quantize = bundle.parameters.get("quantize", OFF)
    asked = bundle.parameters.get("backend") == "torch" or quantize != OFF
    if not asked and not bundle.header.keeps_checkpoint:
        return {}
    return {"backend": "torch", "quantize": None if quantize == OFF else quantize}
