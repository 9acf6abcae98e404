from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.auth.ollama_key import OllamaKey

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
    empty = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()
    signed = f"GET,https://example.com/token,{empty}".encode()
    key.private.public_key().verify(base64.b64decode(signature), signed)
    assert repr(key) == "OllamaKey()"


@keygen
def test_a_key_with_a_passphrase_is_passed_over(tmp_path: Path) -> None:
    make_key(tmp_path / "id_ed25519", "secret words")
    assert OllamaKey.read(tmp_path / "id_ed25519") is None


def test_no_key_and_other_files_are_passed_over(tmp_path: Path) -> None:
    assert OllamaKey.read(tmp_path / "none") is None
    (tmp_path / "other").write_bytes(b"\xff\xfe")
    assert OllamaKey.read(tmp_path / "other") is None


@given(st.binary(max_size=300))
def test_any_bytes_in_the_frame_are_passed_over(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    body = base64.b64encode(b"openssh-key-v1\0" + content).decode()
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    path.write_text(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    assert OllamaKey.read(path) is None
