"""What the clients of a soak do: one thing at a time, chosen by dice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fuzz_requests import attempts
from tests.soak.http import Exchange, exchange

MODELS = ("ember", "echo", "tools", "slow")  # more than may be loaded at once
PULLED = "pulled"
TOPICS = ("the sea", "three numbers", "a red house", "why it rains", "a short poem")


class Client:
    """One of many clients. told: gets the path and status of each answer. doing: the last thing
    that was begun, with the model where it is one."""

    def __init__(
        self, port: int, registry: str, dice: random.Random, told: Callable[[str, int, bytes], None]
    ) -> None:
        self._port = port
        self._registry = registry
        self._dice = dice
        self._told = told
        self.doing = ""

    async def act(self) -> None:
        """Do one thing."""
        acts, weights = zip(*_ACTS, strict=True)
        (act,) = self._dice.choices(acts, weights)
        self.doing = act.__name__
        await act(self)

    async def chat_whole(self) -> None:
        await self._whole(*self._chat(stream=False))

    async def chat_streamed(self) -> None:
        await self._whole(*self._chat(stream=True))

    async def leave_early(self) -> None:
        """Close the connection after a few pieces, at times before the first one."""
        path, body = self._chat(stream=True)
        async with exchange(self._port, "POST", path, body) as answer:
            if answer.status >= 400:
                self._tell(path, answer, await answer.body())
                return
            left = self._dice.randrange(6)
            async for _ in answer.chunks():
                left -= 1
                if left < 0:
                    break
            self._tell(path, answer)

    async def read_slowly(self) -> None:
        """Ask for much, read nothing for a while, then leave or read on."""
        path, body = self._chat(stream=True, tokens=2000)
        async with exchange(self._port, "POST", path, body, window_bytes=1024) as answer:
            if answer.status >= 400:
                self._tell(path, answer, await answer.body())
                return
            await asyncio.sleep(self._dice.uniform(1, 15))
            if self._dice.random() < 0.5:
                await answer.body()
            self._tell(path, answer)

    async def send_nonsense(self) -> None:
        (attempt,) = attempts(self._dice.randrange(1 << 40), 1)
        if attempt.path.startswith(("/api/pull", "/api/push", "/api/keys", "/api/delete")):
            return
        async with exchange(
            self._port, attempt.method, attempt.path, attempt.body, attempt.headers
        ) as answer:
            content = await answer.body() if attempt.method != "HEAD" else b""
            self._tell(attempt.path, answer, content)

    async def send_half(self) -> None:
        """Promise a long body, send part of it and leave."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        length = self._dice.choice((1000, 1 << 20, 16 << 20))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}"
        writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode())
        writer.write(b"[" * self._dice.randrange(length))
        await asyncio.sleep(self._dice.uniform(0, 3))
        writer.transport.abort()

    async def embed(self) -> None:
        await self._whole("/api/embed", {"model": "echo", "input": [self._topic()] * 4})

    async def store_a_response(self) -> None:
        await self._whole("/v1/responses", {"model": "echo", "input": self._topic()})

    async def look(self) -> None:
        path = self._dice.choice(("/api/tags", "/api/ps", "/metrics", "/v1/models"))
        await self._whole(path, None, method="GET")

    async def pull(self) -> None:
        name = f"{self._registry}/library/{PULLED}{self._dice.randrange(3)}"
        await self._whole("/api/pull", {"model": name, "insecure": True, "stream": False})

    async def create(self) -> None:
        name = f"made{self._dice.randrange(4)}"
        body = {"model": name, "from": "echo", "system": self._topic(), "stream": False}
        await self._whole("/api/create", body)
        await self._whole("/api/chat", self._ollama(name))
        await self._whole("/api/delete", {"model": name}, method="DELETE")

    async def _whole(self, path: str, body: Any, method: str = "POST") -> None:
        async with exchange(self._port, method, path, body) as answer:
            content = await answer.body()
            self._tell(path, answer, content)

    def _tell(self, path: str, answer: Exchange, content: bytes = b"") -> None:
        self._told(path, answer.status, content)

    def _topic(self) -> str:
        return f"{self._dice.choice(TOPICS)} {self._dice.randrange(1000)}"

    def _ollama(self, model: str, tokens: int = 24, stream: bool = False) -> dict[str, Any]:
        turns = [{"role": "user", "content": self._topic() + " x" * self._dice.randrange(200)}]
        options = {"num_predict": tokens}
        return {"model": model, "messages": turns, "stream": stream, "options": options}

    def _chat(self, stream: bool, tokens: int = 24) -> tuple[str, dict[str, Any]]:
        """A request of any surface."""
        model = self._dice.choice(MODELS)
        self.doing += f" of {model}"
        body = self._ollama(model, tokens, stream)
        if self._dice.random() < 0.3:
            return "/api/chat", body
        plain = {"model": model, "stream": stream, "max_tokens": tokens}
        if self._dice.random() < 0.3:
            return "/v1/completions", {**plain, "prompt": self._topic()}
        surface = self._dice.choice(("/v1/chat/completions", "/v1/messages"))
        return surface, {**plain, "messages": body["messages"]}


_ACTS: tuple[tuple[Callable[[Client], Awaitable[None]], int], ...] = (
    (Client.chat_whole, 20),
    (Client.chat_streamed, 25),
    (Client.leave_early, 15),
    (Client.read_slowly, 5),
    (Client.send_nonsense, 15),
    (Client.send_half, 3),
    (Client.embed, 4),
    (Client.store_a_response, 4),
    (Client.look, 5),
    (Client.pull, 2),
    (Client.create, 2),
)
