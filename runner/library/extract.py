"""The texts of documents, read in a child process that can do nothing else."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Final

from registry.progress import Progress
from runner.errors import InvalidRequest
from runner.library.jobs import run_job

TIMEOUT_S: Final = 120.0


async def extract_chunks(
    source: Path, name: str, chunk_chars: int, overlap_chars: int, max_chunks: int
) -> list[str]:
    """The chunks of a document of that name. A caller that is cancelled ends it. Raises
    InvalidRequest, Unsupported, WorkerCrashed, OSError."""
    with tempfile.TemporaryDirectory(prefix="hearth-extract-") as folder:
        target = Path(folder) / "chunks"
        job = {
            "source": str(source),
            "name": name,
            "chunk_chars": chunk_chars,
            "overlap_chars": overlap_chars,
            "target": str(target),
        }
        try:
            async with asyncio.timeout(TIMEOUT_S):
                done = await run_job("extract", job, _silent)
        except TimeoutError:
            raise InvalidRequest(f"the file was not read within {TIMEOUT_S:g} s") from None
        if done["chunks"] > max_chunks:
            raise InvalidRequest(f"the file has {done['chunks']} chunks; at most {max_chunks} fit")
        return await asyncio.to_thread(_read, target)


def _read(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


async def _silent(progress: Progress) -> None:
    """Nobody waits for it."""
