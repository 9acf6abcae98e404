"""Whisper by faster-whisper, from the files that a bundle holds to the segments of a recording."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from modelfile.speech.whisper import MODEL, WhisperFigures, check_whisper
from runner.errors import InvalidRequest, Unsupported
from runner.speech import MAX_AUDIO_S, Recording, Segment, SpokenWord, TranscriptionRequest
from runner.worker.decoder_process import DecoderProcess
from runner.worker.speech.turns import Turns

_CALLS: Final = ("encode", "generate", "align", "detect_language")


class Transcriber:
    """One loaded model. transcribe may run in several threads at once."""

    def __init__(self, files: dict[str, bytes], turns: Turns, threads: int) -> None:
        """files: by their names; taken apart. Raises ConvertError, Unsupported where faster-whisper
        is missing, RuntimeError."""
        self._figures: WhisperFigures = check_whisper(
            {name: io.BytesIO(content) for name, content in files.items()}
        )
        try:
            import onnxruntime
            from faster_whisper import WhisperModel

            from runner.worker.speech.features import BlockFeatures
        except ImportError as error:
            raise missing_extra(error) from None
        onnxruntime.disable_telemetry_events()  # which finds the speech in a recording
        self._model: Any = WhisperModel("whisper", device="cpu", cpu_threads=threads, files=files)
        files.pop(MODEL)
        self._model.model = _InTurns(self._model.model, turns)
        self._model.feature_extractor = BlockFeatures(**self._model.feat_kwargs)
        self._decoder = DecoderProcess("audio", max_audio_s=MAX_AUDIO_S)
        self._decoding = ThreadPoolExecutor(1, "decode")  # its process ends with its thread

    def check(self, request: TranscriptionRequest) -> None:
        """Raises InvalidRequest, Unsupported for what this model cannot do."""
        if request.translate and not self._figures.multilingual:
            raise Unsupported(
                "the model knows English only and cannot translate; use a multilingual one",
                param="model",
            )
        known = self._model.supported_languages
        if request.language is not None and request.language not in known:
            raise InvalidRequest(
                f"language={request.language[:40]!r}: the model knows {', '.join(sorted(known))}",
                param="language",
            )

    def transcribe(
        self, request: TranscriptionRequest, send: Callable[[Segment], None]
    ) -> Recording:
        """Send each segment as it is heard. Raises InvalidRequest for what is no recording, or too
        long a one, and Cancelled."""
        self.check(request)
        samples = self._decoding.submit(self._decoder.audio, request.audio).result()
        request = replace(request, audio=b"")
        if request.vad is not None:
            samples = samples.astype("float32") / 32768.0
        segments, info = self._segments(request, samples)
        del samples
        for segment in segments:
            send(_segment(segment))
        return Recording(info.language, info.duration)

    def _segments(self, request: TranscriptionRequest, samples: Any) -> tuple[Iterator[Any], Any]:
        options: dict[str, Any] = {}
        if request.temperature:
            options["temperature"] = [request.temperature]
        if request.vad is not None:
            options |= {"vad_filter": True, "vad_parameters": dict(request.vad)}
        found: tuple[Iterator[Any], Any] = self._model.transcribe(
            samples,
            language=request.language,
            task="translate" if request.translate else "transcribe",
            initial_prompt=request.prompt or None,
            hotwords=", ".join(request.keywords) or None,
            word_timestamps=request.words,
            **options,
        )
        return found


def missing_extra(error: ImportError) -> Unsupported:
    """The refusal of a model that needs what is not installed."""
    return Unsupported(
        f"speech needs {error.name}, which is not installed: run ./install.sh --with-speech, or pip"
        " install 'hearth[speech]'",
        param="model",
    )


class _InTurns:
    """CTranslate2's model, its calls one at a time."""

    def __init__(self, model: Any, turns: Turns) -> None:
        self._model = model
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._model, name)
        if name not in _CALLS:
            return value
        return lambda *arguments, **named: self._turns.run(value, *arguments, **named)


def _segment(found: Any) -> Segment:
    words = (SpokenWord(float(w.start), float(w.end), w.word) for w in found.words or ())
    return Segment(
        seek=int(found.seek),
        start=float(found.start),
        end=float(found.end),
        text=found.text,
        tokens=tuple(map(int, found.tokens)),
        temperature=float(found.temperature),
        avg_logprob=float(found.avg_logprob),
        compression_ratio=float(found.compression_ratio),
        no_speech_prob=float(found.no_speech_prob),
        words=tuple(words),
    )
