"""The values of speech: what a worker is asked to hear or say, and what it answers.

Knows nothing of HTTP, of frames or of a library. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
MAX_SAY_CHARACTERS: Final = 4096
MAX_AUDIO_S: Final = 3600  # of one recording


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """A recording as the client sent it. language None: found out. keywords:
    words to be looked for. temperature 0: raised step by
    step where the text makes no sense. vad: leave out what is not speech, with these numbers of
    faster-whisper's VadOptions; None: nothing is left out."""

    audio: bytes
    translate: bool = False
    language: str | None = None
    prompt: str | None = None
    keywords: tuple[str, ...] = ()
    temperature: float = 0.0
    words: bool = False
    vad: Mapping[str, float] | None = None
    client: str = ""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word and when it is heard."""

    start: float
    end: float
    word: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of what was said; the numbers are Whisper's."""

    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: tuple[SpokenWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """What is known of a recording once it is heard to its end. language: its code."""

    language: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """A text to be spoken. speaker: one of the voice's, None: its usual one."""

    text: str
    format: AudioFormat = "mp3"
    speaker: str | None = None
    speed: float = 1.0
    client: str = ""


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """The next bytes of the file that is spoken."""

    audio: bytes = field(repr=False)
