from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from runner.backends.llamacpp.vision.projector import check_projector
from runner.errors import ModelLoadFailed
from tests.vision_files import KINDS, write_vision_model

GOOD: dict[str, Any] = {
    "clip.has_vision_encoder": True,
    "clip.projector_type": "mlp",
    "clip.vision.image_size": 32,
    "clip.vision.patch_size": 8,
    "clip.vision.embedding_length": 16,
    "clip.vision.attention.head_count": 2,
    "clip.vision.block_count": 1,
}


def write(path: Path, fields: dict[str, Any], architecture: str = "clip") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in fields.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_tensor("v.one", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


@pytest.mark.parametrize("kind", list(KINDS))
def test_projectors_of_images_pass(tmp_path: Path, kind: str) -> None:
    check_projector(write_vision_model(tmp_path, kind).projector)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (without("clip.has_vision_encoder"), "no vision encoder"),
        ({**without("clip.has_vision_encoder"), "clip.has_audio_encoder": True}, "kind 'mlp'"),
        ({**GOOD, "clip.vision.patch_size": 0}, "patch_size is 0"),
        (without("clip.vision.image_size"), "image_size is None"),
        ({**GOOD, "clip.vision.block_count": 4_000_000}, "block_count is 4000000"),
        ({**GOOD, "clip.projector_type": "hunyuanvl"}, "kind hunyuanvl"),
    ],
)
def test_what_libmtmd_must_not_get_is_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ModelLoadFailed, match=rf"mmproj\.gguf.*{said}"):
        check_projector(write(tmp_path / "mmproj.gguf", fields))


def test_a_file_that_is_no_gguf_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(b"GGUF but not really")
    with pytest.raises(ModelLoadFailed, match="damaged"):
        check_projector(path)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"gone\.gguf"):
        check_projector(tmp_path / "gone.gguf")
