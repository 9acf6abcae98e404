from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable

import pytest

from runner.errors import Unsupported
from runner.worker.audio_decoder import decode
from runner.worker.speech.synthesizer import Synthesizer
from runner.worker.speech.transcriber import Transcriber
from runner.worker.speech.turns import Turns


def whisper() -> dict[str, bytes]:
    def variable(key: str, *shape: int) -> bytes:
        size = 4
        for length in shape:
            size *= length
        name = struct.pack("<H", len(key) + 1) + key.encode() + b"\x00"
        head = struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, 0, size)
        return name + head + bytes(size)

    start = struct.pack("<IH", 6, 12) + b"WhisperSpec\x00" + struct.pack("<II", 3, 2)
    weights = variable("decoder/embeddings/weight", 4, 2) + variable(
        "encoder/conv1/weight", 2, 80, 3
    )
    texts = {
        "config.json": b'{"suppress_ids": [], "suppress_ids_begin": []}',
        "tokenizer.json": b'{"model": {}}',
        "vocabulary.txt": b"a\nb\nc\nd\n",
    }
    return {"model.bin": start + weights, **texts}


def voice() -> dict[str, bytes]:
    config = {
        "num_symbols": 2,
        "num_speakers": 1,
        "audio": {"sample_rate": 22_050},
        "espeak": {"voice": "en"},
        "phoneme_id_map": {"_": [0]},
    }
    return {"voice.onnx": b"", "voice.json": json.dumps(config).encode()}


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("faster_whisper", lambda: Transcriber(whisper(), Turns(lambda: None), 1)),
        ("piper", lambda: Synthesizer(voice(), Turns(lambda: None), 1)),
        ("av", lambda: decode(b"", 1)),
    ],
)
def test_without_the_extra_the_way_to_install_it_is_said(
    monkeypatch: pytest.MonkeyPatch, missing: str, use: Callable[[], object]
) -> None:
    for name in (missing, "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Unsupported, match="--with-speech"):
        use()
