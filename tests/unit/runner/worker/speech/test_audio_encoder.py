from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")

import av

from runner.speech import AudioFormat
from runner.worker.speech.audio_encoder import PCM_RATE, AudioEncoder

RATE = 22_050
CODECS = {"wav": "pcm_s16le", "mp3": "mp3float", "flac": "flac", "opus": "opus", "aac": "aac"}


def encoded(format: AudioFormat, seconds: int = 2) -> list[bytes]:
    encoder = AudioEncoder(format, RATE)
    second: Any = (9000 * np.sin(np.arange(RATE) / 20)).astype(np.int16)
    pieces = [encoder.add(second) for _ in range(seconds)]
    return [*pieces, encoder.finish()]


@pytest.mark.parametrize("format", CODECS)
def test_the_file_is_what_it_is_called_and_as_long_as_the_sound(format: Any) -> None:
    with av.open(io.BytesIO(b"".join(encoded(format)))) as file:
        stream = file.streams.audio[0]
        samples = sum(frame.samples for frame in file.decode(stream))
        assert stream.codec_context.name == CODECS[format]
        assert samples / stream.rate == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("format", [*CODECS, "pcm"])
def test_bytes_come_before_the_end(format: Any) -> None:
    assert all(encoded(format)[:2])


def test_pcm_has_the_rate_that_clients_expect() -> None:
    assert len(b"".join(encoded("pcm"))) == pytest.approx(2 * 2 * PCM_RATE, abs=200)
