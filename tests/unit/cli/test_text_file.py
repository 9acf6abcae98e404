"""Text files that verbs are given."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.errors import USAGE, CliError
from cli.text_file import read_text


def test_a_text_is_read_from_a_file_or_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text"
    file.write_bytes("\ufeffé\r\n".encode())
    assert read_text(file, 7) == "é\r\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"piped")))
    assert read_text(Path("-"), 5) == "piped"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"12345678", "has more than 7 bytes"),
        (b"ab\xff", "is not UTF-8: invalid byte at position 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    file = tmp_path / "text"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CliError) as raised:
        read_text(file, 7)
    assert raised.value.message.startswith(f"{file} {told}")
    assert raised.value.exit_code == USAGE
