"""What clients send to /v1/audio: a form with a recording, or JSON with a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from runner.errors import InvalidRequest, Unsupported
from runner.server.request_body import WireModel, validate
from runner.speech import MAX_SAY_CHARACTERS, AudioFormat, SynthesisRequest, TranscriptionRequest

TranscriptFormat = Literal["json", "text", "srt", "vtt", "verbose_json"]
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_REFUSED: Final = {
    "include": "log-probabilities of single tokens are not available; verbose_json has avg_logprob",
    "known_speaker_names": "speakers are not told apart",
    "known_speaker_references": "speakers are not told apart",
}
_USUAL_VOICES: Final = (
    frozenset(  # OpenAI's: whoever asks for one wants a voice, whichever there is
        (
            *(
                "alloy",
                "ash",
                "ballad",
                "coral",
                "echo",
                "fable",
                "onyx",
                "nova",
                "sage",
                "shimmer",
            ),
            *("verse", "marin", "cedar", "default"),
        )
    )
)
_VAD: Final = {  # in OpenAI's words, and faster-whisper's
    "threshold": "threshold",
    "prefix_padding_ms": "speech_pad_ms",
    "silence_duration_ms": "min_silence_duration_ms",
}


class VoiceActivityDetection(WireModel):
    """What is cut out of a recording before it is heard."""

    type: Literal["server_vad"]
    threshold: float | None = Field(None, ge=0, le=1)
    prefix_padding_ms: int | None = Field(None, ge=0, le=10_000)
    silence_duration_ms: int | None = Field(None, ge=0, le=60_000)


class TranscriptionForm(WireModel):
    """The fields of POST /v1/audio/transcriptions and translations beside the file."""

    model: str = Field(min_length=1)
    language: str | None = None
    languages: list[str] | None = None
    prompt: str | None = None
    keywords: list[str] | None = None
    response_format: TranscriptFormat = "json"
    temperature: float = Field(0.0, ge=0, le=1)
    timestamp_granularities: list[Literal["word", "segment"]] | None = None
    stream: bool = False
    chunking_strategy: Literal["auto"] | VoiceActivityDetection | None = None
    keep_alive: Any = None

    def refuse_unsupported(self) -> None:
        if self.timestamp_granularities and self.response_format != "verbose_json":
            raise InvalidRequest(
                "timestamp_granularities requires response_format=verbose_json",
                param="timestamp_granularities",
            )
        if len(self.languages or ()) > 1:
            raise Unsupported(
                "languages: the model can be told one language or none; use language",
                param="languages",
            )

    def request(self, audio: bytes, *, translate: bool, client: str) -> TranscriptionRequest:
        """What a worker is asked for."""
        return TranscriptionRequest(
            audio=audio,
            translate=translate,
            language=self.language or next(iter(self.languages or ()), None),
            prompt=self.prompt,
            keywords=tuple(self.keywords or ()),
            temperature=self.temperature,
            words="word" in (self.timestamp_granularities or ()),
            vad=self._vad(),
            client=client,
        )

    def _vad(self) -> Mapping[str, float] | None:
        given = self.chunking_strategy
        if given is None or isinstance(given, str):
            return None if given is None else {}
        found = {own: getattr(given, name) for name, own in _VAD.items()}
        return {name: value for name, value in found.items() if value is not None}


def transcription_form(items: Sequence[tuple[str, str]]) -> TranscriptionForm:
    """The fields of a form, which are texts all. name[] may be there several times, name[part] is
    a part of an object. Raises InvalidRequest, Unsupported naming the field."""
    value: dict[str, Any] = {}
    for name, text in items:
        stem, bracket, part = name.partition("[")
        if stem in _REFUSED and text:
            raise Unsupported(f"{stem}: {_REFUSED[stem]}", param=stem)
        if name == "response_format" and text == "diarized_json":
            raise Unsupported(
                "response_format=diarized_json: speakers are not told apart", param=name
            )
        if bracket and part == "]":
            value.setdefault(stem, []).append(text)
        elif bracket:
            inner = value.setdefault(stem, {})
            if isinstance(inner, dict):
                inner[part.removesuffix("]")] = _number(text) if part != "type]" else text
        elif stem in ("timestamp_granularities", "keywords", "languages"):
            value.setdefault(stem, []).append(text)
        elif stem == "stream":
            value[stem] = _FLAGS.get(text.lower(), text)
        else:
            value[stem] = _number(text) if stem == "temperature" else text
    return validate(value, TranscriptionForm)


def _number(text: str) -> float | int | str:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


class VoiceId(WireModel):
    """A voice given as an object."""

    id: str


class SpeechRequest(WireModel):
    """POST /v1/audio/speech."""

    model: str = Field(min_length=1)
    input: str = Field(min_length=1, max_length=MAX_SAY_CHARACTERS)
    voice: str | VoiceId | None = None
    instructions: str | None = None
    response_format: AudioFormat = "mp3"
    speed: float = Field(1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = "audio"
    keep_alive: Any = None

    def refuse_unsupported(self) -> None:
        if self.instructions:
            raise Unsupported(
                "instructions: the voice cannot be told how to speak; leave them out",
                param="instructions",
            )

    def request(self, client: str) -> SynthesisRequest:
        """What a worker is asked for."""
        voice = self.voice.id if isinstance(self.voice, VoiceId) else self.voice
        speaker = None if not voice or voice in _USUAL_VOICES else voice
        return SynthesisRequest(self.input, self.response_format, speaker, self.speed, client)
