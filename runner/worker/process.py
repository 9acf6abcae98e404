"""The process around one engine: frames in, frames out.

The event loop reads frames and never computes. Prompts are rendered and encoded on one further
thread, in the order of their arrival; the engine has its own. End of the connection means that
the daemon is gone, and ends the process at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runner.backends.backend import ImagePart
from runner.engine.engine import Engine
from runner.engine.sequence import GrammarMatcher
from runner.errors import HearthError, InternalError, InvalidRequest, Unsupported
from runner.types import GenerateRequest, LoadPlan
from runner.worker.engine_thread import EngineThread
from runner.worker.frame_writer import FrameWriter
from runner.worker.images import ImageCache, images_in, images_of
from runner.worker.loader import ModelRuntime, load
from runner.worker.prompts import inputs_to_tokens
from runner.worker.protocol import (
    ProtocolError,
    plan_from_wire,
    read_frame,
    request_from_wire,
)
from runner.worker.rerank_input import rerank_tokens
from runner.worker.truncation import EncodedPrompt, fit_prompt, n_keep_tokens

log = logging.getLogger(__name__)

Frame = dict[str, Any]
ReplyHandler = Callable[[ModelRuntime, Frame], Frame]
PROTOCOL_EXIT_CODE = 76  # EX_PROTOCOL
LOAD_EXIT_CODE = 1
GRAMMAR_THREADS = 2  # one that takes long does not keep the next ones waiting


async def serve(connection: socket.socket) -> int:
    """Serve the daemon at the other end. Returns the exit code of the process."""
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    outbox = FrameWriter(connection, asyncio.get_running_loop())
    try:
        first = await read_frame(reader)
        if first is None:
            return 0
        if first["op"] != "load":
            raise ProtocolError(f"the first frame is {first['op']!r}, not load")
        worker = Worker(_plan(first), outbox)
        return await _first_of(worker.failed, _read(reader, worker))
    except ProtocolError as error:
        log.error("the daemon sent no frame: %s", error)
        return PROTOCOL_EXIT_CODE
    finally:
        writer.close()


async def _first_of(failed: asyncio.Future[int], reading: Any) -> int:
    task = asyncio.ensure_future(reading)
    await asyncio.wait({failed, task}, return_when=asyncio.FIRST_COMPLETED)
    return failed.result() if failed.done() else await task


async def _read(reader: asyncio.StreamReader, worker: Worker) -> int:
    while (frame := await read_frame(reader)) is not None:
        if frame["op"] == "shutdown":
            break
        worker.take(frame)
    return 0


def _plan(frame: Frame) -> LoadPlan:
    try:
        return plan_from_wire(frame["plan"])
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"the load frame has no usable plan: {error}") from None


class Worker:
    """The frames' meaning. Lives on the event loop's thread."""

    def __init__(self, plan: LoadPlan, outbox: FrameWriter) -> None:
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        self._outbox = outbox
        self._loaded: ModelRuntime | None = None
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._prompt_thread = ThreadPoolExecutor(1, thread_name_prefix="prompts")
        self._grammar_threads = ThreadPoolExecutor(GRAMMAR_THREADS, "grammars")
        self._image_thread = ThreadPoolExecutor(1, thread_name_prefix="images")
        self._engine = EngineThread(self._load, self._ready, outbox)
        self._engine.start()

    def take(self, frame: Frame) -> None:
        """Act on a frame. Raises ProtocolError when it makes no sense."""
        op, id = frame["op"], frame.get("id")
        if self._loaded is None:
            raise ProtocolError(f"{op!r} before the model is ready")
        if not isinstance(id, str):
            raise ProtocolError(f"{op!r} without an id")
        handlers: dict[str, Callable[[str, Frame], None]] = {
            "generate": self._generate,
            "cancel": self._cancel,
            "embed": self._embed,
            "rank": self._rank,
            "stats": self._stats,
        }
        if op in handlers:
            handlers[op](id, frame)
        elif op in _ANSWERS:
            self._prepare(id, self._answer(id, frame, _ANSWERS[op]))
        else:
            raise ProtocolError(f"unknown op {op!r}")

    def _load(self) -> Engine:
        """On the engine's thread."""
        try:
            self._loaded = loaded = load(self._plan, self._progress)
        except HearthError as error:
            self._outbox.send({"op": "failed", "error": error.to_wire()})
            self._loop.call_soon_threadsafe(self.failed.set_result, LOAD_EXIT_CODE)
            raise
        return loaded.engine

    def _ready(self) -> None:
        assert self._loaded is not None
        self._outbox.send({"op": "ready", "info": self._loaded.info()})

    def _progress(self, share: float) -> None:
        self._outbox.send({"op": "loading", "progress": share})

    def _generate(self, id: str, frame: Frame) -> None:
        arrived_s = time.monotonic()

        async def submit() -> None:
            request = request_from_wire(frame["request"])
            if request.id != id:
                raise InvalidRequest(f"the request's id {request.id!r} is not the frame's, {id!r}")
            await self._read_images(request)
            request, fitted = await self._off_loop(lambda loaded: _worded(loaded, request))
            fitted = await self._with_images(request, fitted)
            matcher = None if request.grammar is None else await self._match(request, fitted)
            self._engine.submit(request, fitted, arrived_s, matcher)

        self._prepare(id, submit())

    def _cancel(self, id: str, frame: Frame) -> None:
        task = self._preparing.get(id)
        self._engine.cancel(id, prepared=task is None)
        if task is not None:
            task.cancel()

    def _embed(self, id: str, frame: Frame) -> None:
        async def submit() -> None:
            inputs, truncate = frame["inputs"], bool(frame.get("truncate", True))
            tokens = await self._off_loop(lambda loaded: inputs_to_tokens(inputs, loaded.prompts))
            self._engine.embed(id, tokens, truncate, frame.get("priority", 0))

        self._prepare(id, submit())

    def _rank(self, id: str, frame: Frame) -> None:
        async def submit() -> None:
            pairs, truncate = frame["pairs"], bool(frame.get("truncate", False))
            tokens = await self._off_loop(lambda loaded: _pairs_to_tokens(loaded, pairs, truncate))
            self._engine.embed(id, tokens, False)

        self._prepare(id, submit())

    def _stats(self, id: str, frame: Frame) -> None:
        self._reply(id, dataclasses.asdict(self._engine.stats()))

    async def _read_images(self, request: GenerateRequest) -> None:
        """Decode the request's pictures on their own thread, so that prompts go on."""
        images = images_of(request)
        if images and self._images is not None:
            for image in images:
                await self._of_images(self._images.read, image)

    async def _with_images(self, request: GenerateRequest, prompt: EncodedPrompt) -> EncodedPrompt:
        """Encode those of the request's pictures that are in the prompt, one after the other, so
        that others take turns."""
        images, library = images_of(request), self._images
        assert self._loaded is not None
        if not images or library is None or len(prompt.tokens) > _context(self._loaded, request):
            return prompt  # what is too long the engine refuses
        parts: dict[int, ImagePart] = {}
        for image in await self._of_images(images_in, images, prompt.tokens, library):
            parts |= await self._of_images(library.encode, image)
        return dataclasses.replace(prompt, parts=parts)

    @property
    def _images(self) -> ImageCache | None:
        return None if self._loaded is None else self._loaded.images

    async def _of_images(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._image_thread, work, *arguments)

    async def _answer(
        self, id: str, frame: Frame, answer: Callable[[ModelRuntime, Frame], Frame]
    ) -> None:
        if any(message["images"] for message in frame.get("request", {}).get("messages") or ()):
            await self._read_images(request_from_wire(frame["request"]))
        self._reply(id, await self._off_loop(lambda loaded: answer(loaded, frame)))

    async def _off_loop(self, work: Callable[[ModelRuntime], Any]) -> Any:
        assert self._loaded is not None
        return await self._loop.run_in_executor(self._prompt_thread, work, self._loaded)

    async def _match(self, request: GenerateRequest, prompt: EncodedPrompt) -> GrammarMatcher:
        """Compile on threads apart, so that prompts go on."""
        assert self._loaded is not None
        work = self._loaded.matchers.matcher
        return await self._loop.run_in_executor(self._grammar_threads, work, request, prompt)

    def _prepare(self, id: str, work: Any) -> None:
        """Run what precedes the engine as a task; its failure is the request's error."""
        task = self._loop.create_task(self._guard(id, work))
        self._preparing[id] = task
        task.add_done_callback(lambda _: self._preparing.pop(id, None))

    async def _guard(self, id: str, work: Any) -> None:
        try:
            await work
        except HearthError as error:
            self._send_error(id, error)
        except ProtocolError:
            self._send_error(id, InvalidRequest("the answer is too long: ask for less at once"))
        except (KeyError, TypeError, ValueError) as error:
            log.warning("request %s has a wrong shape: %r", id, error)
            self._send_error(id, InvalidRequest(f"the request has a wrong shape: {error}"))
        except Exception:
            log.exception("request %s failed", id)
            self._send_error(id, InternalError("the prompt could not be prepared"))

    def _reply(self, id: str, result: Frame) -> None:
        self._outbox.send({"op": "reply", "id": id, "result": result})

    def _send_error(self, id: str, error: HearthError) -> None:
        self._outbox.send({"op": "error", "id": id, "error": error.to_wire()})


def _worded(
    loaded: ModelRuntime, request: GenerateRequest
) -> tuple[GenerateRequest, EncodedPrompt]:
    sampling, fitted = loaded.wording.resolve(request.sampling), _fit(loaded, request)
    keep = n_keep_tokens(loaded.prompts, request, fitted)
    return dataclasses.replace(request, sampling=sampling, n_keep=keep), fitted


def _fit(loaded: ModelRuntime, request: GenerateRequest) -> EncodedPrompt:
    return fit_prompt(loaded.prompts, request, _context(loaded, request))


def _context(loaded: ModelRuntime, request: GenerateRequest) -> int:
    most = loaded.engine.context_length
    return min(request.context_length or most, most)


def _pairs_to_tokens(loaded: ModelRuntime, pairs: list[Any], truncate: bool) -> list[list[int]]:
    pair = loaded.model.pair
    if pair is None:
        raise InvalidRequest("the model does not rank texts", param="model")
    most = loaded.engine.max_input_tokens if truncate else None
    return [rerank_tokens(pair, str(query), str(document), most) for query, document in pairs]


def _tokenize(loaded: ModelRuntime, frame: Frame) -> Frame:
    if frame.get("add_special", True):
        return {"tokens": loaded.prompts.encode_text(frame["text"])}
    tokens = loaded.model.tokenizer.encode(frame["text"], add_bos=False, parse_special=False)
    return {"tokens": tokens}


def _detokenize(loaded: ModelRuntime, frame: Frame) -> Frame:
    return {"text": b"".join(_pieces_of(loaded, frame["tokens"])).decode("utf-8", "replace")}


def _pieces(loaded: ModelRuntime, frame: Frame) -> Frame:
    pieces = _pieces_of(loaded, frame["tokens"])
    return {"pieces": [piece.decode("utf-8", "replace") for piece in pieces]}


def _pieces_of(loaded: ModelRuntime, tokens: list[int]) -> list[bytes]:
    tokenizer = loaded.model.tokenizer
    for token in tokens:
        if not 0 <= token < tokenizer.vocabulary:
            raise InvalidRequest(
                f"token {token} is not in the vocabulary (0 to {tokenizer.vocabulary - 1})"
            )
    return [tokenizer.piece(token) for token in tokens]


def _render(loaded: ModelRuntime, frame: Frame) -> Frame:
    return {"prompt": loaded.prompts.render(request_from_wire(frame["request"]))}


def _count(loaded: ModelRuntime, frame: Frame) -> Frame:
    return {"count": len(loaded.prompts.encode(request_from_wire(frame["request"])))}


def _encode(loaded: ModelRuntime, frame: Frame) -> Frame:
    request = request_from_wire(frame["request"])
    if images_of(request):
        raise Unsupported(
            "the tokens of messages with images cannot be listed; their number can be counted",
            param="messages",
        )
    return {"tokens": loaded.prompts.encode(request)}


_ANSWERS: dict[str, ReplyHandler] = {
    "tokenize": _tokenize,
    "detokenize": _detokenize,
    "render": _render,
    "pieces": _pieces,
    "count": _count,
    "encode": _encode,
}


def run(fd: int) -> None:
    """Serve the daemon on an inherited socket and end the process. Native code may still be
    computing, so nothing is torn down: the system takes everything back."""
    try:
        connection = socket.socket(fileno=fd)
    except OSError as error:
        sys.exit(f"{fd} is not an inherited socket: {error}")
    try:
        code = asyncio.run(serve(connection))
    except Exception:
        log.critical("the worker failed", exc_info=True)
        code = 70
    logging.shutdown()
    os._exit(code)
