"""Small speech models: Whisper that says a fixed text whatever it hears, a voice that hums."""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import wave
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

SAID = " hello world"
_WIDTH, _HEADS, _POSITIONS = 64, 2, 448
_SPECIAL = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>"),
    *("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
_WORDS = ("Ġhello", "Ġworld")


def tone(seconds: float = 1.0, rate: int = 16_000, hertz: float = 220.0) -> bytes:
    """A WAV file, mono, 16 bits."""
    times = np.arange(int(seconds * rate)) / rate
    samples = (8000 * np.sin(2 * math.pi * hertz * times)).astype("<i2")
    output = io.BytesIO()
    with wave.open(output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return output.getvalue()


def write_whisper(folder: Path) -> Path:
    """A folder as CTranslate2 has it, of an English model: of every recording of up to a second it
    says SAID. Needs the extra speech."""
    from ctranslate2.specs import WhisperSpec
    from tokenizers.pre_tokenizers import ByteLevel

    times = [f"<|{step * 0.02:.2f}|>" for step in range(1501)]
    letters = sorted(ByteLevel.alphabet())
    vocabulary = [*letters, *_WORDS, *_SPECIAL, *times]
    ids = {token: number for number, token in enumerate(vocabulary)}
    answer = ["<|0.00|>", "Ġhello", "Ġworld", "<|1.00|>", "<|endoftext|>"]
    spec = WhisperSpec(1, _HEADS, 1, _HEADS)
    _fill(spec, len(vocabulary), [ids[token] for token in answer])
    spec.register_vocabulary(vocabulary)
    spec.config.suppress_ids = []
    spec.config.suppress_ids_begin = []
    spec.config.lang_ids = [ids["<|en|>"]]
    spec.config.alignment_heads = [(0, 0)]
    spec.validate()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(ids)))
    return folder


def _fill(spec: Any, vocabulary: int, answer: Sequence[int]) -> None:
    """No layer changes anything; each position of the decoder looks like the token that it shall
    be followed by."""
    drawn = np.random.default_rng(1).standard_normal((vocabulary, _WIDTH)).astype("float32")
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    positions = np.zeros((_POSITIONS, _WIDTH), "float32")
    for place in range(_POSITIONS):
        positions[place] = 100 * drawn[answer[min(place, len(answer) - 1)]]
    encoder, decoder = spec.encoder, spec.decoder
    encoder.conv1.weight = np.zeros((_WIDTH, 80, 3), "float32")
    encoder.conv2.weight = np.zeros((_WIDTH, _WIDTH, 3), "float32")
    encoder.conv1.bias = encoder.conv2.bias = np.zeros(_WIDTH, "float32")
    encoder.position_encodings.encodings = np.ones((1500, _WIDTH), "float32")
    decoder.embeddings.weight = 20 * drawn
    decoder.projection.weight = 20 * drawn
    decoder.position_encodings.encodings = positions
    for norm in (encoder.layer_norm, decoder.layer_norm):
        _normal(norm)
    for layer in (*encoder.layer, *decoder.layer):
        _silence(layer.self_attention, 3)
        _silence(getattr(layer, "attention", None), 2)
        _normal(layer.ffn.layer_norm)
        _linear(layer.ffn.linear_0, 4 * _WIDTH, _WIDTH)
        _linear(layer.ffn.linear_1, _WIDTH, 4 * _WIDTH)


def _silence(attention: Any, parts: int) -> None:
    if attention is None:
        return
    _normal(attention.layer_norm)
    shapes = [(parts * _WIDTH,)] if parts == 3 else [(_WIDTH,), (2 * _WIDTH,)]
    for linear, (rows,) in zip(attention.linear, [*shapes, (_WIDTH,)], strict=True):
        _linear(linear, rows, _WIDTH)


def _linear(linear: Any, rows: int, columns: int) -> None:
    linear.weight = np.zeros((rows, columns), "float32")
    linear.bias = np.zeros(rows, "float32")


def _normal(norm: Any) -> None:
    norm.gamma, norm.beta = np.ones(_WIDTH, "float32"), np.zeros(_WIDTH, "float32")


def _tokenizer(ids: dict[str, int]) -> dict[str, Any]:
    special = [
        {"id": ids[token], "content": token, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for token in _SPECIAL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": ids, "merges": []},
    }


def write_voice(folder: Path, speakers: int = 1) -> Path:
    """voice.onnx and voice.onnx.json: for each letter 2,000 samples as high as its id."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "_^$ abcdefghijklmnopqrstuvwxyz.,"
    config = {
        "num_symbols": len(letters),
        "num_speakers": speakers,
        "audio": {"sample_rate": 22_050},
        "espeak": {"voice": "en-us"},
        "phoneme_type": "text",
        "phoneme_id_map": {letter: [number] for number, letter in enumerate(letters)},
        "speaker_id_map": {f"speaker{number}": number for number in range(speakers)},
        "inference": {"length_scale": 1.0},
    }
    (folder / "voice.onnx.json").write_text(json.dumps(config))
    path = folder / "voice.onnx"
    path.write_bytes(_graph(speakers > 1))
    return path


_FLOAT, _INT64 = 1, 7  # onnx.TensorProto.DataType


def _graph(has_speakers: bool) -> bytes:
    """An ONNX model: the ids as floats, each repeated 2,000 times. Format: onnx.proto3."""
    nodes = [
        _node("Cast", ["input"], "as_float", [_message((1, "to"), (3, _FLOAT), (20, 2))]),
        _node("Unsqueeze", ["as_float", "last"], "column"),
        _node("Tile", ["column", "repeats"], "rows"),
        _node("Reshape", ["rows", "flat"], "output"),
    ]
    constants = {"last": [2], "repeats": [1, 1, 2000], "flat": [1, 1, -1]}
    inputs = [("input", _INT64, 2), ("input_lengths", _INT64, 1), ("scales", _FLOAT, 1)]
    inputs += [("sid", _INT64, 1)] if has_speakers else []
    graph = _message(
        *((1, node) for node in nodes),
        (2, "voice"),
        *((5, _constant(name, values)) for name, values in constants.items()),
        *((11, _value(*each)) for each in inputs),
        (12, _value("output", _FLOAT, 3)),
    )
    return _message((1, 8), (7, graph), (8, _message((2, 17))))


def _node(kind: str, inputs: Iterable[str], output: str, attributes: Sequence[bytes] = ()) -> bytes:
    names = ((1, name) for name in inputs)
    return _message(*names, (2, output), (4, kind), *((5, each) for each in attributes))


def _constant(name: str, values: Sequence[int]) -> bytes:
    data = struct.pack(f"<{len(values)}q", *values)
    return _message((1, len(values)), (2, _INT64), (8, name), (9, data))


def _value(name: str, kind: int, rank: int) -> bytes:
    free = [(1, _message((2, f"{name}{axis}"))) for axis in range(rank)]
    tensor = _message((1, kind), (2, _message(*free)))
    return _message((1, name), (2, _message((1, tensor))))


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A message of protocol buffers."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(_varint(number << 3 | 2) + _varint(len(data)) + data)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def create(http: httpx.Client, name: str, *paths: Path) -> None:
    """Make a model of files through the daemon."""
    files = {}
    for path in paths:
        data = path.read_bytes()
        files[path.name] = f"sha256:{hashlib.sha256(data).hexdigest()}"
        http.post(f"/api/blobs/{files[path.name]}", content=data).raise_for_status()
    reply = http.post("/api/create", json={"model": name, "files": files, "stream": False})
    assert reply.json().get("status") == "success", reply.text
