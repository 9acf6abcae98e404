"""POST /v1/audio/speech: a text as sound, sent while it is spoken."""

from __future__ import annotations

import base64
from typing import Any, Final

from pydantic_core import to_json

from runner.server.caller import current_caller
from runner.server.http_request import HttpRequest
from runner.server.openai.audio.parts import parts_of
from runner.server.openai.audio.wire import SpeechRequest
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE, event

_CONTENT_TYPES: Final = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


@route("POST", "/v1/audio/speech", scope="inference", streams="application/octet-stream")
async def speech(http: HttpRequest, body: SpeechRequest) -> None:
    """Synthesize speech: the bytes of an audio file, or events with stream_format sse. pcm
    is mono at 24 kHz, 16 bits a sample."""
    events = body.stream_format == "sse"
    content_type = EVENT_STREAM if events else _CONTENT_TYPES[body.response_format]
    request = body.request(current_caller().share)
    async with parts_of(http, body.model, body.keep_alive, "synthesize", request) as parts:
        async for part in parts:
            if part is None and not events:
                continue
            if not http.started:
                await http.start(content_type)
            if part is None:
                await http.write(KEEP_ALIVE)
            elif "audio" in part:
                await http.write(_delta(part) if events else base64.b64decode(part["audio"]))
            else:
                await http.finish(_done(len(body.input)) if events else b"")


def _delta(part: dict[str, Any]) -> bytes:
    return event(to_json({"type": "speech.audio.delta", "audio": part["audio"]}))


def _done(characters: int) -> bytes:
    usage = {"input_tokens": characters, "output_tokens": 0, "total_tokens": characters}
    return event(to_json({"type": "speech.audio.done", "usage": usage}))
