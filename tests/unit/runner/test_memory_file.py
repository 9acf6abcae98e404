"""Files in memory that others of the process open by a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import RegistryError
from registry.formats.gguf import read_header
from runner.memory_file import memory_file, path_of
from tests.gguf_files import llama_file


def test_what_is_written_is_read_by_its_path_and_as_a_model_file() -> None:
    content = llama_file()
    with memory_file("model") as file:
        file.write(content[:100])
        file.write(content[100:])
        with path_of(file) as path:
            assert path.read_bytes() == content
            assert read_header(path).architecture == "llama"


def test_a_link_elsewhere_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(llama_file())
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(RegistryError, match="link is a link, not a file"):
        read_header(tmp_path / "link")
