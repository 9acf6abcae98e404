"""Two ways to ask ember: through a running hearth over HTTP, or the GGUF in this process. One
interface: `complete`.

Greedy decoding in both.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.ember.chat import IM_END, render
from tests.ember.exchange import Call, Json

CALL_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """What is sent: messages, tools, and a bound on the answer."""

    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `malformed` counts tool-call blocks that were not a name and an object of
    arguments.
    """

    content: str
    calls: tuple[Call, ...] = ()
    malformed: int = 0


class Driver(Protocol):
    """Answers questions in order."""

    def complete(self, questions: list[Question]) -> list[Reply]:
        """One reply per question; raises when the model cannot be reached or loaded."""


def parse_text(text: str) -> Reply:
    """Split generated text into content and tool calls."""
    calls: list[Call] = []
    malformed = 0
    for block in CALL_BLOCK.findall(text):
        try:
            value = json.loads(block)
            calls.append(Call(str(value["name"]), dict(value["arguments"])))
        except (ValueError, KeyError, TypeError):
            malformed += 1
    content = CALL_BLOCK.sub("", text)
    malformed += "<tool_call>" in content
    return Reply(content.strip(), tuple(calls), malformed)


def _reply_of_message(message: dict[str, Any]) -> Reply:
    parsed = parse_text(message.get("content") or "")
    calls, malformed = list(parsed.calls), parsed.malformed
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        try:
            calls.append(
                Call(
                    call["function"]["name"],
                    dict(json.loads(arguments) if isinstance(arguments, str) else arguments),
                )
            )
        except (ValueError, TypeError):
            malformed += 1
    return Reply(parsed.content, tuple(calls), malformed)


def _on_the_wire(message: Any) -> Any:
    """The message as the OpenAI API has it: the arguments of its tool calls are JSON text."""
    if "tool_calls" not in message:
        return message
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.dumps(call["function"]["arguments"]),
            },
        }
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


class HttpDriver:
    """POST /v1/chat/completions of a running daemon, several requests at a time."""

    def __init__(
        self, url: str, model: str = "ember", concurrency: int = 8, timeout_s: float = 120.0
    ) -> None:
        import httpx

        self.model, self.concurrency = model, concurrency
        base = url.rstrip("/").removesuffix("/v1")
        self.client = httpx.Client(base_url=base, timeout=timeout_s)

    def _one(self, question: Question) -> Reply:
        body: dict[str, Json] = {
            "model": self.model,
            "messages": [_on_the_wire(message) for message in question.messages],
            "temperature": 0,
            "max_tokens": question.max_tokens,
        }
        if question.tools:
            body["tools"] = question.tools
        response = self.client.post("/v1/chat/completions", json=body)
        if response.is_error:
            raise RuntimeError(f"the daemon answered {response.status_code}: {response.text[:500]}")
        return _reply_of_message(response.json()["choices"][0]["message"])

    def complete(self, questions: list[Question]) -> list[Reply]:
        """Ask all questions, `concurrency` at a time."""
        with ThreadPoolExecutor(self.concurrency) as pool:
            return list(pool.map(self._one, questions))


class GgufDriver:
    """The GGUF in this process with llama_cpp's low-level API, many sequences in one batch."""

    def __init__(
        self, path: Path, parallel: int = 16, threads: int = 2, context: int = 2048
    ) -> None:
        import llama_cpp

        self.api = llama_cpp
        self.parallel, self.context = parallel, context
        llama_cpp.llama_log_set(_SILENT, None)
        model_parameters = llama_cpp.llama_model_default_params()
        model_parameters.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_parameters)
        if not self.model:
            raise ValueError(f"llama.cpp could not load {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = context * parallel, 2048, 512
        parameters.n_seq_max, parameters.n_threads, parameters.n_threads_batch = (
            parallel,
            threads,
            threads,
        )
        self.llama = llama_cpp.llama_init_from_model(self.model, parameters)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary_size = llama_cpp.llama_vocab_n_tokens(self.vocabulary)

    def tokenize(self, text: str) -> list[int]:
        """Ids of `text` with special tokens, nothing added."""
        raw = text.encode()
        ids = (self.api.llama_token * (len(raw) + 8))()
        count = self.api.llama_tokenize(self.vocabulary, raw, len(raw), ids, len(ids), False, True)
        return list(ids[:count])

    def _piece(self, token: int) -> bytes:
        buffer = (self.api.ctypes.c_char * 64)()
        count = self.api.llama_token_to_piece(self.vocabulary, token, buffer, 64, 0, True)
        return bytes(buffer[:count])

    def complete(self, questions: list[Question]) -> list[Reply]:
        """Decode greedily, `parallel` sequences at a time, a new question taking the slot of a
        finished one.
        """
        waiting = list(enumerate(questions))[::-1]
        texts: dict[int, bytes] = {}
        slots: dict[int, _Slot] = {}
        while waiting or slots:
            for sequence in range(self.parallel):
                if sequence not in slots and waiting:
                    index, question = waiting.pop()
                    prompt = self.tokenize(render(question.messages, question.tools, generate=True))
                    room = self.context - len(prompt)
                    if room < 1:
                        raise ValueError(f"question {index} has {len(prompt)} tokens, no room left")
                    slots[sequence] = _Slot(index, prompt, min(question.max_tokens, room))
            for sequence, slot in self._step(slots):
                texts[slot.index] = b"".join(map(self._piece, slot.written))
                del slots[sequence]
                self.api.llama_memory_seq_rm(
                    self.api.llama_get_memory(self.llama), sequence, -1, -1
                )
        return [
            parse_text(texts[index].decode(errors="replace").removesuffix(IM_END))
            for index in range(len(questions))
        ]

    def _step(self, slots: dict[int, _Slot]) -> list[tuple[int, _Slot]]:
        """One decode of every slot that fits; returns the finished ones."""
        import numpy as np

        batch = self.api.llama_batch_init(2048, 0, 1)
        used, rows = 0, []
        for sequence, slot in slots.items():
            if used + len(slot.pending) > 2048:
                continue
            for token in slot.pending:
                batch.token[used], batch.pos[used], batch.n_seq_id[used] = token, slot.position, 1
                batch.seq_id[used][0], batch.logits[used] = sequence, False
                slot.position += 1
                used += 1
            batch.logits[used - 1] = True
            rows.append((used - 1, sequence, slot))
        batch.n_tokens = used
        if self.api.llama_decode(self.llama, batch) != 0:
            raise RuntimeError("llama_decode failed")
        finished = []
        for row, sequence, slot in rows:
            logits = np.ctypeslib.as_array(
                self.api.llama_get_logits_ith(self.llama, row), shape=(self.vocabulary_size,)
            )
            token = int(logits.argmax())
            if self.api.llama_vocab_is_eog(self.vocabulary, token):
                finished.append((sequence, slot))
                continue
            slot.written.append(token)
            slot.pending = [token]
            if len(slot.written) >= slot.limit:
                finished.append((sequence, slot))
        self.api.llama_batch_free(batch)
        return finished


class _Slot:
    """A sequence that is being decoded."""

    def __init__(self, index: int, pending: list[int], limit: int) -> None:
        self.index, self.pending, self.limit = index, pending, limit
        self.position = 0
        self.written: list[int] = []


def _silent_callback() -> Any:
    import ctypes

    return ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
        lambda level, text, data: None
    )


_SILENT = _silent_callback()
