"""One GGUF file of a speech model's files, so that it is stored, copied and pushed as others are.

The file is a container: each file is a tensor of bytes under its name, and the metadata say what
the daemon wants to know without reading them. See registry.formats.gguf.header.CHECKPOINT.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from modelfile.convert.layout import lay_out
from modelfile.convert.metadata import MetadataValue
from modelfile.convert.writer import Report, write
from modelfile.errors import ConvertError
from modelfile.speech import voice, whisper
from registry.atomic import open_regular, read_regular
from registry.formats.gguf.header import CHECKPOINT
from registry.formats.safetensors import TensorEntry

_FLOAT_BYTES: Final = 4  # of a weight of a voice: all published ones are in float32
_TEXT_TOKENS: Final = 448  # that Whisper writes at most for one window


def write_speech(files: Mapping[str, Path], target: Path, report: Report) -> Mapping[str, Any]:
    """Write the container to target. files: by their names in their folder. Gives architecture,
    type and parameters. Raises ConvertError before anything is written, OSError."""
    described = _whisper(files) if whisper.MODEL in files else _voice(files, target.parent)
    metadata, contents = described
    entries = [
        TensorEntry(name, "I8", (size,), path, 0, size)
        for name, path in contents.items()
        if (size := path.stat().st_size)
    ]
    layout = lay_out(metadata, [(entry.name, entry.shape, "I8") for entry in entries])
    write(target, layout, entries, report)
    return {value.key: value.value for value in metadata}


def _whisper(files: Mapping[str, Path]) -> tuple[list[MetadataValue], dict[str, Path]]:
    contents = {name: files[name] for name in whisper.FILES if name in files}
    with contextlib.ExitStack() as stack:
        figures = whisper.check_whisper(
            {name: stack.enter_context(_opened(path)) for name, path in contents.items()}
        )
    variables = figures.variables
    metadata = [
        *_general("whisper", variables.parameter_count, variables.quantization),
        MetadataValue("whisper.context_length", "u32", _TEXT_TOKENS),
        MetadataValue("whisper.embedding_length", "u32", figures.embedding_length),
        MetadataValue("whisper.vocab_size", "u32", figures.vocabulary),
        MetadataValue("whisper.mel_channels", "u32", figures.mel_channels),
        MetadataValue("whisper.multilingual", "bool", figures.multilingual),
    ]
    return metadata, contents


def _voice(files: Mapping[str, Path], folder: Path) -> tuple[list[MetadataValue], dict[str, Path]]:
    models = [name for name in files if name.endswith(".onnx")]
    if len(models) != 1:
        raise ConvertError(f"{len(models)} ONNX files; a voice has one")
    name = models[0]
    beside = f"{name}.json"
    if beside not in files:
        raise ConvertError(f"{PurePosixPath(beside).name} is missing: it belongs to the voice")
    config = voice.check_voice_config(read_regular(files[beside], voice.MAX_CONFIG_BYTES))
    with _opened(files[name]) as model:
        size = model.seek(0, 2)
    kept = folder / voice.CONFIG
    kept.write_text(json.dumps(config, ensure_ascii=False))
    metadata = [
        *_general("piper", size // _FLOAT_BYTES, "F32"),
        MetadataValue("piper.sample_rate", "u32", config["audio"]["sample_rate"]),
        MetadataValue("piper.speaker_count", "u32", config["num_speakers"]),
        MetadataValue("piper.espeak_voice", "string", config["espeak"]["voice"]),
    ]
    return metadata, {voice.MODEL: files[name], voice.CONFIG: kept}


def _general(architecture: str, parameters: int, quantization: str) -> list[MetadataValue]:
    return [
        MetadataValue("general.architecture", "string", architecture),
        MetadataValue("general.type", "string", "model"),
        MetadataValue(CHECKPOINT.parameters, "u64", parameters),
        MetadataValue(CHECKPOINT.quantization, "string", quantization),
    ]


def _opened(path: Path) -> BinaryIO:
    return open(open_regular(path), "rb")
