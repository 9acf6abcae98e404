from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.auth.ed25519 import public_key
from registry.auth.ollama_key import OllamaKey, _seed

keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")


def make_key(path: Path, passphrase: str = "") -> str:
    """A key of ssh-keygen; gives the base64 of its public key."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)],
        check=True,
        capture_output=True,
    )
    return path.with_suffix(".pub").read_text().split()[1]


@keygen
def test_a_key_of_ssh_keygen_signs_a_token_request(tmp_path: Path) -> None:
    public = make_key(tmp_path / "id_ed25519")
    key = OllamaKey.read(tmp_path / "id_ed25519")
    assert key is not None
    shown, _, signature = key.authorization("GET", "https://example.com/token").partition(":")
    assert shown == public
    assert base64.b64decode(public).endswith(public_key(key.seed))
    assert len(base64.b64decode(signature)) == 64
    assert key.seed.hex() not in repr(key)


@keygen
def test_a_key_with_a_passphrase_is_passed_over(tmp_path: Path) -> None:
    make_key(tmp_path / "id_ed25519", "secret words")
    assert OllamaKey.read(tmp_path / "id_ed25519") is None


def test_no_key_and_other_files_are_passed_over(tmp_path: Path) -> None:
    assert OllamaKey.read(tmp_path / "none") is None
    (tmp_path / "other").write_bytes(b"\xff\xfe")
    assert OllamaKey.read(tmp_path / "other") is None


@given(st.binary(max_size=300))
def test_any_bytes_in_the_frame_are_refused_in_one_way(content: bytes) -> None:
    body = base64.b64encode(b"openssh-key-v1\0" + content).decode()
    text = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n"
    with pytest.raises(ValueError, match="key"):
        _seed(text)
