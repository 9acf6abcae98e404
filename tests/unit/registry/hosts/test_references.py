from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidDigest, InvalidName
from registry.hosts import kinds
from registry.hosts.references import Reference, host_kinds, parse
from registry.names import Name

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("gemma3", "oci", "registry.ollama.ai/library/gemma3:latest"),
        ("user/m:q4", "oci", "registry.ollama.ai/user/m:q4"),
        ("oci://reg.example:5000/ns/m:v1", "oci", "reg.example:5000/ns/m:v1"),
        ("oci://reg.example/m", "oci", "reg.example/library/m:latest"),
        (f"reg.example/ns/m@{DIGEST}", "oci", "reg.example/ns/m:sha256-abababababab"),
        (f"reg.example/ns/m:v1@{DIGEST}", "oci", "reg.example/ns/m:v1"),
        ("hf.co/u/r", "huggingface", "hf.co/u/r:latest"),
        ("hf.co/u/r:Q4_K_M", "huggingface", "hf.co/u/r:Q4_K_M"),
        ("hf://u/r:sub/file.gguf", "huggingface", "hf.co/u/r:sub-file.gguf"),
        ("huggingface.co/u.v/r@refs/pr/1", "huggingface", "hf.co/u-v/r:refs-pr-1"),
        (
            "https://huggingface.co/u/r/resolve/main/a-Q8_0.gguf?download=true",
            "huggingface",
            "hf.co/u/r:a-Q8_0.gguf-main",
        ),
        ("https://example.com/a/b/model-Q4.gguf?x=1", "url", "example.com/b/model-Q4:latest"),
        ("https://example.com/m.gguf", "url", "example.com/files/m:latest"),
        ("https://example.com/a/m-00002-of-00003.gguf", "url", "example.com/a/m:latest"),
        (
            "https://hub.example/models/u/r/resolve/v1/sub/a-Q8_0.gguf",
            "url",
            "hub.example/u/r:a-Q8_0",
        ),
        ("https://hub.example/u/resolve/v1/m.gguf", "url", "hub.example/v1/m:latest"),
        ("/models/Tiny Q8_0.gguf", "file", "registry.ollama.ai/local/Tiny-Q8_0:latest"),
        ("/models/m-00002-of-00003.gguf", "file", "registry.ollama.ai/local/m:latest"),
        ("file:///models/a%20b/", "file", "registry.ollama.ai/local/a-b:latest"),
    ],
)
def test_what_is_written_has_a_kind_and_a_name(text: str, kind: str, name: str) -> None:
    found = parse(text)
    assert (found.kind.name, str(found.name)) == (kind, name)
    assert Name.parse(str(found.name)) == found.name


def test_parts_of_a_repository_are_told_apart() -> None:
    found = parse("hf.co/User/Repo:sub/F.gguf@v1.0")
    assert (found.repo, found.selector, found.revision) == ("User/Repo", "sub/F.gguf", "v1.0")
    assert parse("hf.co/u/r:latest").selector is None
    assert parse(f"a@{DIGEST}").digest == DIGEST
    assert parse("http://example.com/ns/m").plain
    assert not parse("https://example.com/ns/m").plain


def test_the_key_is_the_same_for_the_same_model_whatever_the_case() -> None:
    assert parse("Gemma3").key == parse("gemma3:LATEST").key
    assert parse("hf.co/u/r:Q4_K_M").key != parse("hf.co/u/r:Q8_0").key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "../../etc/passwd",
        "file://host/m.gguf",
        "ftp://example.com/m.gguf",
        "hf.co/u",
        "hf.co/u/r:../x.gguf",
        "hf.co/u/r:",
        "hf.co/../r",
        "hf.co/u/r@",
        "https://user:pass@example.com/m.gguf",
        "https://example.com/.gguf",
        "gemma3@latest",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises((InvalidName, InvalidDigest)):
        parse(text)


@given(st.text(max_size=60) | st.from_regex(r"(hf|https?|oci)://[a-z@:/.%\[\]?#-]{0,40}\.gguf"))
def test_any_text_is_a_reference_or_a_refusal(text: str) -> None:
    try:
        found = parse(text)
    except (InvalidName, InvalidDigest):
        return
    assert isinstance(found, Reference)
    assert Name.from_path("/".join(found.name.path)) == found.name


@pytest.mark.parametrize(
    "text",
    [
        "gemma3",
        "user/model:q4",
        "http://127.0.0.1:5000/a/b:c",
        f"registry.example.com/ns/m@sha256:{'0' * 64}",
        "hf.co/user/repo",
        "hf.co/user/repo:Q4_K_M@v1",
        "https://example.com/a/b.gguf",
    ],
)
def test_a_place_can_be_written_down_and_read_again(text: str) -> None:
    place = parse(text)
    assert place.text is not None
    assert parse(place.text) == place


def test_a_url_that_may_hold_a_secret_is_not_written_down() -> None:
    assert parse("https://example.com/a/b.gguf?token=secret").text is None


def test_a_kind_of_host_is_a_file_in_the_folder_of_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shelf.py").write_text(
        "from registry.hosts.kinds.file import FileHost\n"
        "from registry.hosts.reference import HostKind, Reference\n"
        "from registry.names import Name\n\n"
        "def _parse(text, scheme, rest):\n"
        "    return Reference(KIND, Name.parse(rest), url=rest) if scheme == 'shelf' else None\n\n"
        "def _open(reference, client, access):\n"
        "    return FileHost(reference, access.memory_bytes)\n\n"
        "KIND = HostKind('shelf', _parse, lambda reference: f'shelf://{reference.url}', _open)\n"
    )
    with pytest.raises(InvalidName, match="unknown scheme"):
        parse("shelf://a/b")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    host_kinds.cache_clear()
    try:
        found = parse("shelf://a/b")
        assert (found.kind.name, found.name.short) == ("shelf", "a/b")
        assert parse(found.text or "") == found
    finally:
        host_kinds.cache_clear()
        sys.modules.pop("registry.hosts.kinds.shelf", None)
