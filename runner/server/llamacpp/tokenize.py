"""POST /tokenize and /detokenize, GET /tokenizer_info, in the words of vLLM and of llama.cpp's
server: text or a conversation to token ids, and back. The model is loaded; nothing is generated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from pydantic import Field

from runner.errors import InvalidRequest
from runner.server.generation import by_rules, complete_prompt
from runner.server.http_request import HttpRequest
from runner.server.images import require_vision
from runner.server.json_bounds import MAX_VALUES
from runner.server.leases import leased
from runner.server.llamacpp.answers import (
    DetokenizeResponse,
    TokenizeResponse,
    TokenizerInfo,
    TokenPiece,
)
from runner.server.llamacpp.apply_template import TemplateMessage, messages_of
from runner.server.llamacpp.props import asked_model
from runner.server.request_body import MAX_MESSAGES, MAX_TOOLS, WireModel
from runner.server.routes import route
from runner.turns import in_steps
from runner.types import GenerateRequest

MAX_TOKENS = MAX_VALUES
MAX_TEXT_BYTES = 1 << 20  # a token each at worst: 30 ms
MAX_PIECES = 1 << 16  # 70 ms, in steps
_STEP = 1 << 12


class TokenizeRequest(WireModel):
    """POST /tokenize: exactly one of prompt, content and messages."""

    model: str = Field(min_length=1)
    prompt: str | None = None
    content: str | None = None  # llama.cpp's name
    messages: list[TemplateMessage] | None = Field(None, max_length=MAX_MESSAGES)
    tools: list[dict[str, Any]] | None = Field(None, max_length=MAX_TOOLS)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None  # vLLM's name, on unless it is set
    add_special: bool | None = None  # llama.cpp's name, off unless it is set
    parse_special: bool = True  # llama.cpp's; without, control tokens count with add_special only
    return_token_strs: bool | None = None
    with_pieces: bool | None = None
    keep_alive: Any = None

    @property
    def special(self) -> bool:
        """Whether the tokens that a prompt begins with are added."""
        if self.add_special_tokens is not None or self.content is None:
            return self.add_special_tokens is not False
        return bool(self.add_special)


def check_size(texts: Iterable[str], param: str) -> None:
    """Refuse texts whose tokens would be too many for one answer. Raises InvalidRequest."""
    size_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if size_bytes > MAX_TEXT_BYTES:
        raise InvalidRequest(
            f"{size_bytes} bytes; at most {MAX_TEXT_BYTES} are tokenized at once", param=param
        )


class DetokenizeRequest(WireModel):
    """POST /detokenize."""

    model: str = Field(min_length=1)
    tokens: list[int] = Field(max_length=MAX_TOKENS)
    keep_alive: Any = None


@route("POST", "/tokenize", scope="inference")
async def tokenize(http: HttpRequest, body: TokenizeRequest) -> TokenizeResponse:
    """Tokenize a text: {"count", "max_model_len", "tokens", "token_strs"}; with_pieces: "tokens" as
    llama.cpp's objects {"id", "piece"}."""
    given = [part for part in (body.prompt, body.content, body.messages) if part is not None]
    if len(given) != 1:
        raise InvalidRequest("send exactly one of prompt, content and messages", param="prompt")
    turns = await in_steps(messages_of, body.messages or ())
    texts = [body.prompt or "", body.content or "", *(turn.content for turn in turns)]
    check_size(texts, "prompt")
    await require_vision(http.services.library, body.model, turns, {})
    options = {} if body.add_generation_prompt else {"add_generation_prompt": False}
    request = GenerateRequest(
        messages=turns,
        continues=body.continue_final_message,
        tools=tuple(body.tools or ()),
        template_options=options,
    )
    async with leased(http, body.model, body.keep_alive) as lease:
        worker = lease.worker
        if body.messages is not None:
            completed = complete_prompt(lease, by_rules(http.services, request))
            tokens = await worker.encode(completed)
        else:
            special = {"add_special": body.special, "parse_special": body.parse_special}
            tokens = await worker.tokenize(str(given[0]), **special)
        answer: TokenizeResponse = {
            "count": len(tokens),
            "max_model_len": lease.context_length,
            "tokens": tokens,
            "token_strs": None,
        }
        if body.return_token_strs or body.with_pieces:
            if len(tokens) > MAX_PIECES:
                raise InvalidRequest(
                    f"{len(tokens)} tokens; the text of at most {MAX_PIECES} is given at once"
                )
            answer["token_strs"] = pieces = await worker.pieces(tokens)
            if body.with_pieces:
                answer["tokens"] = await _with_pieces(tokens, pieces)
        return answer


async def _with_pieces(tokens: Sequence[int], pieces: Sequence[str]) -> list[TokenPiece]:
    both, found = zip(tokens, pieces, strict=True), list[TokenPiece]()
    while step := [TokenPiece(id=token, piece=piece) for token, piece in islice(both, _STEP)]:
        found += step
        await asyncio.sleep(0)
    return found


@route("POST", "/detokenize", scope="inference")
async def detokenize(http: HttpRequest, body: DetokenizeRequest) -> DetokenizeResponse:
    """Detokenize: {"prompt", "content"}, both the same text."""
    async with leased(http, body.model, body.keep_alive) as lease:
        text = await lease.worker.detokenize(body.tokens, special=True)
        return {"prompt": text, "content": text}


@route("GET", "/tokenizer_info", scope="inference")
async def tokenizer_info(http: HttpRequest) -> TokenizerInfo:
    """The special tokens and the template of the model in ?model=, or of the only one."""
    async with leased(http, asked_model(http), None) as lease:
        info = lease.worker.info
        return {
            "tokenizer_class": "GGUF",
            "bos_token": info.bos,
            "eos_token": info.eos,
            "chat_template": lease.template,
        }
