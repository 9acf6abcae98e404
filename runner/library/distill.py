"""A small model of a larger one's answers to a text, trained in a child process.

Owns the folder in which a training that was ended can go on, and the bundle that is made of it:
the teacher's, with the student's weights.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from modelfile.build import build
from modelfile.description import Description
from registry.bundle import Bundle, model_layer
from registry.digest import Digest
from registry.names import Name
from runner.errors import InvalidRequest
from runner.library.jobs import run_job
from runner.library.library import Library
from runner.library.lookup import parse_name
from runner.library.progress import Progress, ReportProgress, run_with_progress

_UNITS = {"asking the teacher": "documents", "taking layers": "layers", "training": "steps"}


@dataclass(frozen=True, slots=True)
class Distillation:
    """What is wanted: see runner/jobs/distill.py. text: digest of a blob. name: of the student."""

    teacher: str
    name: str
    text: str
    student: Mapping[str, Any]
    separator: str
    answer: tuple[str, str] | None
    context: int | None
    epochs: float
    steps: int | None
    seed: int
    threads: int | None


async def distill(
    library: Library,
    wanted: Distillation,
    folder: Path,
    report: ReportProgress,
    *,
    native: bool,
    available_bytes: int,
) -> dict[str, Any]:
    """Train, and install the student; what the job says of it. folder: where unfinished trainings
    are kept, one for each teacher, text and plan; the same request goes on there. native: whether
    hearth's kernels are used. available_bytes: what the job may take.

    Raises InvalidRequest, ModelNotFound, BuildError, StoreError, and what the job raises.
    """
    name, text = parse_name(wanted.name, "name"), Digest.parse(wanted.text)
    stored = await asyncio.to_thread(library.find, wanted.teacher)
    bundle = await asyncio.to_thread(library.read, stored)
    _check(bundle)
    with library.store.holding([text, model_layer(stored.manifest).digest]):
        own = folder / _key(bundle, wanted)
        await asyncio.to_thread(own.mkdir, parents=True, exist_ok=True)
        job = {
            **asdict(wanted),
            "model": str(bundle.model_path),
            "text": str(library.store.blob_path(text)),
            "target": str(own / "student.gguf"),
            "native_kernels": native,
            "available_bytes": available_bytes,
        }

        async def told(progress: Progress) -> None:
            unit = _UNITS.get(progress.status)
            counts = (progress.completed, progress.total)
            await report(Progress(progress.status, *counts, unit, state=progress.state))

        result = await run_job("distill", job, told)
        await _install(library, name, bundle.name, own / "student.gguf", report)
    await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
    await asyncio.to_thread(library.store.discard, [text])
    await library.on_change(name.short)
    return result


async def _install(
    library: Library, name: Name, teacher: Name, student: Path, report: ReportProgress
) -> None:
    store, size = library.store, await asyncio.to_thread(os.path.getsize, student)
    store.require_space(size)
    with store.workspace() as workspace:
        made = workspace / student.name
        await asyncio.to_thread(shutil.copyfile, student, made)
        digest, _ = await run_with_progress(
            lambda advance: store.take_made(made, advance), "verifying", size, report
        )
    try:
        with store.holding([digest]):
            description = Description(name, from_model=teacher, weights=digest, adapters=())
            await asyncio.to_thread(lambda: list(build(store, description)))
    finally:
        await asyncio.to_thread(store.discard, [digest])


def _check(bundle: Bundle) -> None:
    """Raises InvalidRequest for a teacher that teaches no text."""
    name, header = bundle.name.short, bundle.header
    if bundle.projector is not None:
        raise InvalidRequest(f"{name} reads images, which a student of it could not", param="model")
    if header.is_embedding or header.is_speech or header.keeps_checkpoint:
        raise InvalidRequest(
            f"{name} cannot teach: llama.cpp computes no next tokens with it", param="model"
        )


def _key(bundle: Bundle, wanted: Distillation) -> str:
    """The same for the same training."""
    plan = {**asdict(wanted), "teacher": str(bundle.digest), "name": None}
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]
