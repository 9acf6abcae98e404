"""POST /api/distill, hearth's own: train a small student of an installed model.

The answer is NDJSON: {"status", "completed", "total", "unit", "state"} while the teacher is read
and the student is trained (the state has the loss), and at last {"status": "success", "model",
"parameters", "divergence", "agreement", ...}. The work is done in a separate process, which ends
when the client disconnects; the same request resumes it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from runner.library.distill import Distillation, distill
from runner.models.system_memory import available_bytes
from runner.server.answers import StatusResponse
from runner.server.http_request import HttpRequest
from runner.server.job_memory import require_memory
from runner.server.ollama.progress import ProgressStream
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.server.sse import NDJSON

_RESERVE_BYTES = 512 << 20  # the process; what training takes, the job compares with what is free


class DistillRequest(WireModel):
    """POST /api/distill. model: the teacher. name: of the student. text: digest of a blob, UTF-8.
    student: sizes in the words of config.json; the teacher's for those left out. separator: between
    the documents of the text. answer: what stands before and after that which is learned; without
    it all is. context: most tokens of a document. epochs: how often the text is read; steps takes
    its place."""

    model: str = Field(min_length=1)
    name: str = Field(min_length=1)
    text: str = Field(min_length=1)
    student: dict[str, Any]
    separator: str = Field("<|endoftext|>", max_length=256)
    answer: list[str] | None = Field(None, min_length=2, max_length=2)
    context: int | None = Field(None, ge=8, le=1 << 20)
    epochs: float = Field(3.0, gt=0, le=10_000)
    steps: int | None = Field(None, ge=1, le=10**9)
    seed: int = Field(1, ge=0, lt=2**31)
    threads: int | None = Field(None, ge=1, le=1024)
    stream: bool | None = None


@route("POST", "/api/distill", streams=NDJSON)
async def train_student(http: HttpRequest, body: DistillRequest) -> StatusResponse | None:
    """Train a student of a model, with progress. If the client disconnects, the work ends."""
    services = http.services
    answer = ProgressStream(http, body.stream is not False)
    fields = body.model_dump(exclude={"model", "stream"})
    between = None if body.answer is None else (body.answer[0], body.answer[1])
    wanted = Distillation(teacher=body.model, **{**fields, "answer": between})
    async with http.cancelled_on_disconnect():
        teacher = await asyncio.to_thread(lambda: services.library.find(body.model))
        what = f"a student of {teacher.name.short}"
        require_memory(what, teacher.size_bytes + _RESERVE_BYTES, "stop a model first")
        folder = services.settings.state_dir / "distill"
        result = await distill(
            services.library,
            wanted,
            folder,
            answer.report,
            native=services.settings.native_kernels,
            available_bytes=available_bytes(),
        )
        return await answer.finish({"status": "success", "model": body.name, **result})
