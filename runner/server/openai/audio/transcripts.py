"""A transcript in the words of OpenAI: JSON, plain text, subtitles, and the events of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from runner.server.openai.audio.wire import TranscriptFormat
from runner.server.sse import event
from runner.speech import Recording, Segment

CONTENT_TYPES: Final[dict[TranscriptFormat, str]] = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Transcript:
    """A recording that was heard to its end."""

    segments: Sequence[Segment]
    recording: Recording
    translated: bool


def text_of(segments: Sequence[Segment]) -> str:
    """All that was said."""
    return "".join(segment.text for segment in segments).strip()


def usage_of(recording: Recording) -> dict[str, Any]:
    """What the request cost: the time heard."""
    return {"type": "duration", "seconds": recording.duration_s}


def srt(segments: Sequence[Segment]) -> str:
    """Subtitles in the format of SubRip."""
    blocks = (
        f"{number}\n{_clock(each.start, ',')} --> {_clock(each.end, ',')}\n{_line(each)}\n\n"
        for number, each in enumerate(segments, 1)
    )
    return "".join(blocks)


def vtt(segments: Sequence[Segment]) -> str:
    """Subtitles in the format of WebVTT."""
    blocks = (
        f"{_clock(each.start, '.')} --> {_clock(each.end, '.')}\n{_line(each)}\n\n"
        for each in segments
    )
    return "WEBVTT\n\n" + "".join(blocks)


def verbose(transcript: Transcript, granularities: Sequence[str]) -> dict[str, Any]:
    """All that is known. granularities: of word and segment; segments where there is none."""
    segments, recording = transcript.segments, transcript.recording
    found: dict[str, Any] = {
        "task": "translate" if transcript.translated else "transcribe",
        "language": recording.language,
        "duration": recording.duration_s,
        "text": text_of(segments),
        "usage": usage_of(recording),
    }
    if "word" in granularities:
        found["words"] = [
            {"word": word.word.strip(), "start": word.start, "end": word.end}
            for segment in segments
            for word in segment.words
        ]
    if "segment" in granularities or not granularities:
        found["segments"] = [_segment(number, each) for number, each in enumerate(segments)]
    return found


def answer(transcript: Transcript, format: TranscriptFormat, granularities: Sequence[str]) -> bytes:
    """The body of a whole answer."""
    segments = transcript.segments
    if format == "json":
        return to_json({"text": text_of(segments), "usage": usage_of(transcript.recording)})
    if format == "verbose_json":
        return to_json(verbose(transcript, granularities))
    if format == "text":
        return f"{text_of(segments)}\n".encode()
    return (srt if format == "srt" else vtt)(segments).encode()


def delta_event(text: str) -> bytes:
    """What was heard since the last one."""
    return event(to_json({"type": "transcript.text.delta", "delta": text}))


def done_event(segments: Sequence[Segment], recording: Recording) -> bytes:
    """The last event."""
    done = {
        "type": "transcript.text.done",
        "text": text_of(segments),
        "usage": usage_of(recording),
    }
    return event(to_json(done))


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _line(segment: Segment) -> str:
    """Its text, in which nothing looks like the time of the next one."""
    return " ".join(segment.text.split()).replace("-->", "->")


def _clock(seconds: float, point: str) -> str:
    thousandths = max(0, round(seconds * 1000))
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
