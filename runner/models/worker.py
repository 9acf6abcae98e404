"""A loaded model as those who use it see it, wherever it runs.

What differs between a process of this machine and replicas on others is behind generate, call and
stream; what a model can be asked in one message is written here, once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from runner.errors import HearthError
from runner.models.delta_stream import DeltaStream
from runner.models.observer import Observer
from runner.types import Embeddings, GenerateRequest, WorkerStats
from runner.worker.json_codec import from_json, text_to_json, to_json
from runner.worker.protocol import WorkerInfo, vector_from_wire


class Worker(ABC):
    """A loaded model. crashed: it ended by a fault, signal_name: by this signal. grow_pool: see
    runner.models.pool_growth."""

    name: str
    info: WorkerInfo
    observer: Observer
    crashed: bool
    signal_name: str | None
    grow_pool: Callable[[int], Awaitable[int]] | None

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its process on this machine, None where there is none."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """True while a request is in flight."""

    @property
    def replicas(self) -> int:
        """How many answer requests side by side."""
        return 1

    @abstractmethod
    def on_failure(self, callback: Callable[[], None]) -> None:
        """Call callback once the worker, having been ready, is given up; its process may last."""

    @abstractmethod
    def on_end(self, callback: Callable[[], None]) -> None:
        """Call callback once the process is gone, however it ended."""

    @abstractmethod
    def generate(self, requests: Sequence[GenerateRequest]) -> DeltaStream:
        """Start the sequences of requests, which the observer counts for their models; their ids
        must be unique in this worker."""

    @abstractmethod
    async def call(self, op: str, **values: Any) -> Any:
        """The result of a frame that is answered by one reply. Raises what the worker reports,
        WorkerCrashed, WorkerTimeout."""

    @abstractmethod
    def stream(self, op: str, **values: Any) -> AsyncGenerator[Any]:
        """The parts of the reply to a frame as they come, and last the reply. Closing it cancels
        the request. Raises what the worker reports, WorkerCrashed, WorkerTimeout."""

    @abstractmethod
    def fail_all(self, error: HearthError) -> None:
        """End every request in flight with error; the worker forgets them."""

    @abstractmethod
    async def close(self) -> None:
        """End it; requests in flight fail. Returns when it is gone."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, without waiting."""

    async def embed(
        self,
        inputs: Sequence[str] | Sequence[Sequence[int]],
        request: GenerateRequest,
        *,
        truncate: bool,
    ) -> Embeddings:
        """One vector for each input. Of request the priority, client, salt, form, scales of the
        adapters and context length count, the most tokens of an input. Raises what the worker
        reports."""
        shares = to_json(request)
        given = [text_to_json(one) if isinstance(one, str) else one for one in inputs]
        found = await self._vectors("embed", inputs=given, truncate=truncate, **shares)
        self.observer.embedded(found.prompt_tokens)
        return found

    async def rank(
        self, pairs: Sequence[tuple[str, str]], *, truncate: bool, client: str = ""
    ) -> Embeddings:
        """The score of each query with its document, from 0 to 1, as a vector of one number.
        truncate: read only the beginning of documents that are too long. Raises what the worker
        reports."""
        given = [(text_to_json(query), text_to_json(document)) for query, document in pairs]
        return await self._vectors("rank", pairs=given, truncate=truncate, client=client)

    async def _vectors(self, op: str, **values: Any) -> Embeddings:
        """The answer to embed or rank."""
        vectors, tokens = list[tuple[float, ...]](), 0
        async with aclosing(self.stream(op, **values)) as parts:
            async for part in parts:
                if isinstance(part, list):
                    vectors += map(vector_from_wire, part)
                    await asyncio.sleep(0)
                else:
                    tokens = int(part["prompt_tokens"])
        return Embeddings(tuple(vectors), tokens)

    async def render(self, request: GenerateRequest) -> str:
        """The prompt that the model would get. Raises what the worker reports."""
        reply = await self.call("render", request=to_json(request))
        return str(reply["prompt"])

    async def count(self, request: GenerateRequest) -> int:
        """How many tokens the prompt has. Raises what the worker reports."""
        reply = await self.call("count", request=to_json(request))
        return int(reply["count"])

    async def encode(self, request: GenerateRequest) -> list[int]:
        """The token ids of the prompt. Raises what the worker reports."""
        reply = await self.call("encode", request=to_json(request))
        return list(reply["tokens"])

    async def tokenize(
        self, text: str, *, add_special: bool, parse_special: bool = False
    ) -> list[int]:
        """The token ids of a text. add_special: as those of a prompt; else parse_special: control
        tokens that it names count. Raises what the worker reports."""
        special = {"add_special": add_special, "parse_special": parse_special}
        reply = await self.call("tokenize", text=text_to_json(text), **special)
        return list(reply["tokens"])

    async def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of token ids; special: control tokens by their names, else they have none.
        Raises what the worker reports."""
        return str((await self.call("detokenize", tokens=list(tokens), special=special))["text"])

    async def pieces(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token by itself. Raises what the worker reports."""
        return list((await self.call("pieces", tokens=list(tokens)))["pieces"])

    async def stats(self) -> WorkerStats:
        """The worker's counters."""
        return from_json(WorkerStats, await self.call("stats"))
