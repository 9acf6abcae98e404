"""A voice of Piper, from the files that a bundle holds to the bytes of a spoken text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from modelfile.speech.voice import CONFIG, MODEL, check_voice_config
from runner.errors import InvalidRequest, ModelLoadFailed
from runner.speech import AudioPiece, Recording, SynthesisRequest
from runner.worker.json_codec import LARGE
from runner.worker.speech.audio_encoder import AudioEncoder
from runner.worker.speech.transcriber import missing_extra
from runner.worker.speech.turns import Turns

_PHONEMES: Final = 250  # spoken at once, about 15 s: memory grows with their number


class Synthesizer:
    """One loaded voice. synthesize may run in several threads at once."""

    def __init__(self, files: dict[str, bytes], turns: Turns, threads: int) -> None:
        """files: by their names. Raises ConvertError, ModelLoadFailed, Unsupported where Piper is
        missing."""
        if CONFIG not in files or MODEL not in files:
            raise ModelLoadFailed(f"the bundle has no {CONFIG}, or no {MODEL}")
        config = check_voice_config(files[CONFIG])
        try:
            import onnxruntime
            from piper import PiperConfig, PiperVoice
        except ImportError as error:
            raise missing_extra(error) from None
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            files[MODEL], sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._voice: Any = PiperVoice(session=session, config=PiperConfig.from_dict(config))
        self._turns = turns

    def check(self, request: SynthesisRequest) -> None:
        """Raises InvalidRequest for a speaker that the voice does not have."""
        self._speaker(request.speaker)

    def synthesize(
        self, request: SynthesisRequest, send: Callable[[AudioPiece], None]
    ) -> Recording:
        """Send the file piece by piece, as it is spoken. Raises InvalidRequest, Cancelled."""
        from piper import SynthesisConfig

        speaker, config = self._speaker(request.speaker), self._voice.config
        scale = config.length_scale / request.speed
        settings = SynthesisConfig(speaker_id=speaker, length_scale=scale)
        encoder = AudioEncoder(request.format, config.sample_rate)
        samples = 0
        for phonemes in self._phonemes(request.text):
            ids = self._voice.phonemes_to_ids(phonemes)
            spoken = self._turns.run(self._voice.phoneme_ids_to_audio, ids, settings)
            samples += spoken.size
            _send(encoder.add(_as_int16(spoken)), send)
        _send(encoder.finish(), send)
        return Recording(config.espeak_voice, samples / config.sample_rate)

    def _phonemes(self, text: str) -> Iterator[list[str]]:
        """Those of each sentence, long ones in parts, cut at a space where there is one."""
        for rest in self._turns.run(self._voice.phonemize, text):
            while len(rest) > _PHONEMES:
                cut = next((at for at in range(_PHONEMES, 0, -1) if rest[at] == " "), _PHONEMES)
                yield rest[:cut]
                rest = rest[cut:]
            if rest:
                yield rest

    def _speaker(self, wanted: str | None) -> int | None:
        if wanted is None:
            return None
        known: dict[str, int] = self._voice.config.speaker_id_map
        count = self._voice.config.num_speakers
        if wanted in known:
            return known[wanted]
        if wanted.isascii() and wanted.isdigit() and len(wanted) < 6 and int(wanted) < count:
            return int(wanted)
        names = ", ".join(sorted(known)[:20]) or "none with a name"
        raise InvalidRequest(
            f"voice={wanted[:40]!r}: the model has {count} speakers ({names}); give one of them,"
            " its number, or alloy for the usual one",
            param="voice",
        )


def _send(data: bytes, send: Callable[[AudioPiece], None]) -> None:
    for start in range(0, len(data), LARGE):  # what a frame of the worker may hold
        send(AudioPiece(data[start : start + LARGE]))


def _as_int16(spoken: Any) -> Any:
    """As loud as the file allows, as Piper has it: [samples]."""
    import numpy as np

    loudest = np.max(np.abs(spoken), initial=0.0)
    scaled = spoken / loudest if loudest > 1e-8 else np.zeros_like(spoken)
    return np.clip(scaled * 32767.0, -32767.0, 32767.0).astype(np.int16).reshape(-1)
