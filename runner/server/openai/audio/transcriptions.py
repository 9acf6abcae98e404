"""POST /v1/audio/transcriptions and /v1/audio/translations: recordings as text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from runner.server.body_pace import MAX_BODY_S
from runner.server.caller import current_caller
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.openai.answers import TranscriptionResponse
from runner.server.openai.audio import transcripts
from runner.server.openai.audio.parts import parts_of
from runner.server.openai.audio.wire import TranscriptionForm, transcription_form
from runner.server.openai.files.form import FormReader
from runner.server.routes import route
from runner.server.sse import EVENT_STREAM, KEEP_ALIVE
from runner.speech import Recording, Segment
from runner.worker.json_codec import from_json

MAX_FILE_BYTES: Final = 25 * 1024 * 1024


@route("POST", "/v1/audio/transcriptions", scope="inference", takes="multipart/form-data")
async def transcriptions(http: HttpRequest) -> TranscriptionResponse | None:
    """Transcribe a recording, sent as a form with the fields file and model. Answers JSON, or
    text, srt, vtt and verbose_json as response_format has it; with stream, events."""
    await _answer(http, translate=False)
    return None


@route("POST", "/v1/audio/translations", scope="inference", takes="multipart/form-data")
async def translations(http: HttpRequest) -> TranscriptionResponse | None:
    """Transcribe a recording into English."""
    await _answer(http, translate=True)
    return None


async def _answer(http: HttpRequest, *, translate: bool) -> None:
    form, audio = await _read(http)
    request = form.request(audio, translate=translate, client=current_caller().share)
    async with parts_of(http, form.model, form.keep_alive, "transcribe", request) as parts:
        if form.stream:
            await _stream(http, parts)
            return
        found = [part async for part in parts if part is not None]
        segments = [from_json(Segment, part) for part in found[:-1]]
        transcript = transcripts.Transcript(segments, from_json(Recording, found[-1]), translate)
        body = transcripts.answer(
            transcript, form.response_format, form.timestamp_granularities or ()
        )
        await http.reply_bytes(body, transcripts.CONTENT_TYPES[form.response_format])


async def _read(http: HttpRequest) -> tuple[TranscriptionForm, bytes]:
    """The fields and the file. Raises InvalidRequest, Unsupported, HttpError 413, 408 and 503."""
    audio = bytearray()

    def take(data: bytes) -> None:
        if len(audio) + len(data) > MAX_FILE_BYTES:
            raise HttpError(
                413,
                "file_too_large",
                f"the recording is longer than {MAX_FILE_BYTES >> 20} MiB; send it in parts, or"
                " compressed",
                connection="close",
            )
        http.hold(len(audio) + len(data))
        audio.extend(data)

    reader = FormReader(http.headers.get("content-type", ""), take)
    async for data in http.chunks(MAX_BODY_S):
        reader.feed(data)
    reader.finish()
    return transcription_form(reader.items), bytes(audio)


async def _stream(http: HttpRequest, parts: AsyncGenerator[Any]) -> None:
    """Each segment as it is heard; the last part is the recording."""
    segments: list[Segment] = []
    async for part in parts:
        if not http.started:
            await http.start(EVENT_STREAM)
        if part is None:
            await http.write(KEEP_ALIVE)
        elif "text" in part:
            segment = from_json(Segment, part)
            text = segment.text if segments else segment.text.lstrip()
            segments.append(segment)
            await http.write(transcripts.delta_event(text))
        else:
            await http.finish(transcripts.done_event(segments, from_json(Recording, part)))
