from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")

from runner.errors import InvalidRequest
from runner.worker.audio_decoder import SAMPLE_RATE, decode
from runner.worker.decoder_process import DecoderProcess
from tests.speech_models import tone


@pytest.fixture
def decoder() -> Iterator[DecoderProcess]:
    decoder = DecoderProcess("audio", max_audio_s=5)
    yield decoder
    decoder.close()


def test_a_recording_becomes_samples_at_16_khz(decoder: DecoderProcess) -> None:
    samples = decoder.audio(tone(0.5, rate=44_100))
    assert samples.dtype == np.int16
    assert len(samples) == pytest.approx(SAMPLE_RATE / 2, abs=50)


def test_it_is_what_faster_whisper_decodes() -> None:
    audio = pytest.importorskip("faster_whisper.audio")
    data = tone(1.5, rate=22_050)
    expected = audio.decode_audio(io.BytesIO(data))
    found = np.frombuffer(decode(data, 5), np.int16).astype(np.float32) / 32768.0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("data", [b"", b"no sound", tone(0.1)[:20], b"RIFF" + bytes(100)])
def test_what_is_no_recording_is_refused(decoder: DecoderProcess, data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="cannot be decoded") as refusal:
        decoder.audio(data)
    assert refusal.value.details["param"] == "file"


def test_a_playlist_opens_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret.wav").write_bytes(tone(0.1))
    lists = (
        f"ffconcat version 1.0\nfile '{tmp_path}/secret.wav'\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{tmp_path}/secret.wav\n",
    )
    for text in lists:
        with pytest.raises(InvalidRequest, match="cannot be decoded"):
            decode(text.encode(), 5)


def test_a_recording_that_is_too_long_is_refused(decoder: DecoderProcess) -> None:
    with pytest.raises(InvalidRequest, match="longer than 5 s"):
        decoder.audio(tone(40))


def test_a_rate_that_makes_a_small_file_endless_is_refused(decoder: DecoderProcess) -> None:
    data = bytearray(tone(1))
    struct.pack_into("<I", data, 24, 1)
    with pytest.raises(InvalidRequest, match="1 Hz"):
        decoder.audio(bytes(data))


def test_one_that_takes_too_long_costs_the_limit_and_no_more() -> None:
    decoder = DecoderProcess("audio", limit_s=0.01, max_audio_s=5)
    began_s = time.monotonic()
    with pytest.raises(InvalidRequest, match=r"more than 0\.01 s"):
        decoder.audio(tone(3))
    decoder.close()
    assert time.monotonic() - began_s < 30
