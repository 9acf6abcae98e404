from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from registry.errors import RemoteMissing, RemoteRefused
from registry.hosts.host import RemoteModel
from registry.hosts.kinds.file import FileHost
from registry.hosts.references import parse

GIB = 2**30


def resolved(path: Path) -> RemoteModel:
    return asyncio.run(FileHost(parse(str(path)), GIB).resolve())


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


def roles(remote: RemoteModel) -> dict[str, str]:
    return {file.title: file.role for file in remote.files}


def test_a_file_comes_with_its_projector_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, "m-Q8_0.gguf", "m-Q4_0.gguf", "mmproj-m-F16.gguf", "mmproj-m-F32.gguf", "x")
    remote = resolved(tmp_path / "m-Q8_0.gguf")
    assert roles(remote) == {"m-Q8_0.gguf": "weights", "mmproj-m-F16.gguf": "projector"}
    assert remote.name.short == "local/m-Q8_0"


def test_any_part_brings_all_of_them(tmp_path: Path) -> None:
    parts = [f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    written(tmp_path, *parts, "m.gguf")
    assert list(roles(resolved(tmp_path / parts[1]))) == parts


def test_a_folder_is_read_as_a_repository_is(tmp_path: Path) -> None:
    written(
        tmp_path / "a", "config.json", "model.safetensors", "1_Pooling/config.json", "b/c/d.gguf"
    )
    assert list(roles(resolved(tmp_path / "a"))) == [
        "config.json",
        "1_Pooling/config.json",
        "model.safetensors",
    ]
    written(tmp_path / "lora", "adapter_config.json", "adapter_model.safetensors")
    assert set(roles(resolved(tmp_path / "lora")).values()) == {"adapter"}


def test_ranges_are_read_as_asked_and_another_file_has_another_key(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(range(200)))

    async def read() -> bytes:
        (file,) = (await FileHost(parse(str(path)), GIB).resolve()).files
        async with file.source.read(10, 150) as parts:
            return b"".join([bytes(part) async for part in parts])

    assert asyncio.run(read()) == bytes(range(10, 150))
    (before,) = resolved(path).files
    (tmp_path / "new").write_bytes(b"x")
    os.replace(tmp_path / "new", path)
    (after,) = resolved(path).files
    assert before.key != after.key


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    written(tmp_path, "notes.txt", "mmproj.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(RemoteMissing, match="No such file"):
        resolved(tmp_path / "none.gguf")
    with pytest.raises(RemoteRefused, match=r"not a \.gguf file"):
        resolved(tmp_path / "notes.txt")
    for name in ("mmproj.gguf", "pipe.gguf", "."):
        with pytest.raises(RemoteMissing, match="no complete GGUF"):
            resolved(tmp_path / name)
