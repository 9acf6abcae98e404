"""Frames in, frames out, for a speech model: the counterpart of runner.worker.process.Worker.

Every request has a thread of its own while it is worked on, one of a client and MAX_ACTIVE of all;
the others wait as they came, without being decoded. Their native calls take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from registry.errors import RegistryError
from registry.formats.gguf import read_header
from runner.backends.host_sampling.threads import physical_cores
from runner.errors import HearthError, InternalError, InvalidRequest, ModelLoadFailed, Unsupported
from runner.leaf_errors import as_hearth_error
from runner.speech import SynthesisRequest, TranscriptionRequest
from runner.types import LoadPlan, WorkerStats
from runner.worker.frame_writer import FrameWriter
from runner.worker.json_codec import from_json, to_json
from runner.worker.memory import resident_bytes
from runner.worker.protocol import ExitCode, ProtocolError, WorkerInfo
from runner.worker.speech.synthesizer import Synthesizer
from runner.worker.speech.transcriber import Transcriber
from runner.worker.speech.turns import Cancelled, Job, Turns

log = logging.getLogger(__name__)

Frame = dict[str, Any]
MAX_ACTIVE: Final = 4
_FRAMES: Final[dict[str, Any]] = {
    "transcribe": TranscriptionRequest,
    "synthesize": SynthesisRequest,
}
_GIVES: Final = {
    "whisper": "this model transcribes speech and does nothing else: use /v1/audio/transcriptions",
    "piper": "this model speaks texts and does nothing else: use /v1/audio/speech",
}


class SpeechWorker:
    """The frames' meaning. Lives on the event loop's thread."""

    def __init__(self, plan: LoadPlan, frames: FrameWriter, unconfined: Sequence[str] = ()) -> None:
        """unconfined: what of the sandbox is missing."""
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[int] = self._loop.create_future()
        self._plan = plan
        self._frames = frames
        self._unconfined = tuple(unconfined)
        self._turns = Turns(self._stepped)
        self._model: Transcriber | Synthesizer | None = None
        self._waiting: dict[str, tuple[Job, str, Frame]] = {}
        self._active: dict[str, Job] = {}
        self._cancelled = 0
        threading.Thread(target=self._load, name="load", daemon=True).start()

    def take(self, frame: Frame) -> None:
        """Act on a frame. Raises ProtocolError when it makes no sense."""
        op, id = frame["op"], frame.get("id")
        if self._model is None:
            raise ProtocolError(f"{op!r} before the model is ready")
        if not isinstance(id, str):
            raise ProtocolError(f"{op!r} without an id")
        if op == "cancel":
            self._cancel(id)
        elif op == "stats":
            self._frames.send({"op": "reply", "id": id, "result": to_json(self._stats())})
        elif op == {"whisper": "transcribe", "piper": "synthesize"}[self._plan.backend]:
            client = str(frame["request"].get("client", ""))
            self._waiting[id] = (Job(id, client), op, frame["request"])
            self._start_waiting()
        elif op not in ("pause", "resume"):
            self._send_error(id, Unsupported(_GIVES[self._plan.backend], param="model"))

    def _cancel(self, id: str) -> None:
        waiting, active = self._waiting.pop(id, None), self._active.get(id)
        self._cancelled += waiting is not None or active is not None
        if active is not None:
            self._turns.cancel(active)

    def _start_waiting(self) -> None:
        """Begin what may begin: of the clients that have nothing under way, the first request."""
        busy = {job.client for job in self._active.values()}
        for job, op, request in list(self._waiting.values()):
            if len(self._active) >= MAX_ACTIVE:
                return
            if job.client not in busy:
                busy.add(job.client)
                del self._waiting[job.id]
                self._active[job.id] = job
                arguments = (job, op, request)
                threading.Thread(target=self._work, args=arguments, daemon=True).start()

    def _ended(self, job: Job) -> None:
        del self._active[job.id]
        self._start_waiting()

    def _work(self, job: Job, op: str, wire: Frame) -> None:
        """In a thread of its own."""
        self._turns.begin(job)
        try:
            request: Any = from_json(_FRAMES[op], wire)
            wire.clear()
            assert self._model is not None
            run: Any = getattr(self._model, op)
            result = run(request, lambda part: self._send_part(job, part))
            self._frames.send({"op": "reply", "id": job.id, "result": to_json(result)})
        except Cancelled:
            pass
        except HearthError as error:
            self._send_error(job.id, error)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("request %s failed", job.id, exc_info=True)
            self._send_error(job.id, InvalidRequest(f"the request cannot be worked on: {error}"))
        except Exception:
            log.exception("request %s failed", job.id)
            self._send_error(job.id, InternalError("the request failed; see the daemon's log"))
        finally:
            self._turns.end(job)
            with contextlib.suppress(RuntimeError):  # the daemon is gone, and the loop with it
                self._loop.call_soon_threadsafe(self._ended, job)

    def _send_part(self, job: Job, part: Any) -> None:
        if job.cancelled:
            raise Cancelled
        self._frames.wait_for_room()
        self._frames.send({"op": "part", "id": job.id, "result": to_json(part)})

    def _stepped(self) -> None:
        """The daemon knows by it that calls end."""
        self._frames.send({"op": "step", "deltas": []})

    def _send_error(self, id: str, error: HearthError) -> None:
        self._frames.send({"op": "error", "id": id, "error": error.to_wire()})

    def _load(self) -> None:
        """In a thread of its own."""
        try:
            self._model = self._loaded()
        except Exception as error:
            known = as_hearth_error(error)
            if known is None:
                log.exception("the speech model %s cannot be loaded", self._plan.path)
                known = ModelLoadFailed(f"the model cannot be loaded: {error}")
            self._frames.send({"op": "failed", "error": known.to_wire()})
            with contextlib.suppress(RuntimeError):  # the daemon is gone, and the loop with it
                self._loop.call_soon_threadsafe(self.failed.set_result, ExitCode.LOAD_FAILED)
            return
        info = WorkerInfo(vocabulary=0, unconfined=self._unconfined)
        self._frames.send({"op": "ready", "info": to_json(info)})

    def _loaded(self) -> Transcriber | Synthesizer:
        plan, files = self._plan, _kept_files(Path(self._plan.path))
        threads = plan.threads or physical_cores()
        self._frames.send({"op": "loading", "progress": 0.5})
        if plan.backend == "whisper":
            return Transcriber(files, self._turns, threads)
        return Synthesizer(files, self._turns, threads)

    def _stats(self) -> WorkerStats:
        return WorkerStats(
            steps=self._turns.calls,
            running=len(self._active),
            waiting=len(self._waiting),
            pool_tokens=0,
            pool_used=0,
            cached_tokens=0,
            completion_tokens=0,
            preemptions=0,
            cancelled=self._cancelled,
            rss_bytes=resident_bytes(),
            step_age_s=self._turns.step_age_s,
        )


def _kept_files(path: Path) -> dict[str, bytes]:
    """The files that the bundle's GGUF holds, by their names."""
    try:
        header = read_header(path)
    except RegistryError as error:
        raise ModelLoadFailed(error.message) from None
    found = {}
    with path.open("rb") as file:
        for tensor in header.tensors:
            file.seek(header.data_offset + tensor.offset)
            found[tensor.name] = file.read(tensor.size_bytes)
    return found
