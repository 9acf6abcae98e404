"""Repositories of Hugging Face, by their names or as a browser shows the address of a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from registry.errors import InvalidName
from registry.hosts.host import Host, HostAccess
from registry.hosts.reference import HostKind, Reference, name_part
from registry.names import DEFAULT_TAG, Name

if TYPE_CHECKING:
    from registry.hosts.http.client import HttpClient

HUGGING_FACE = "hf.co"
_HOSTS = ("hf.co", "huggingface.co", "www.huggingface.co")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}", re.ASCII)
_REPO_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", re.ASCII)


def _parse(text: str, scheme: str, rest: str) -> Reference | None:
    if scheme == "hf":
        return _repository(text, rest)
    host, slash, path = rest.partition("/")
    if host.lower() in _HOSTS and slash and scheme in ("", "https"):
        return _repository(text, _resolved_file(path))
    return None


def _resolved_file(path: str) -> str:
    """user/repo:file@revision of a path user/repo/resolve/revision/file, as browsers show it."""
    parts = path.split("?")[0].split("/")
    if len(parts) >= 5 and parts[2] in ("resolve", "blob"):
        return f"{parts[0]}/{parts[1]}:{unquote('/'.join(parts[4:]))}@{unquote(parts[3])}"
    return path


def _repository(text: str, rest: str) -> Reference:
    rest, at, revision = rest.partition("@")
    path, colon, selector = rest.partition(":")
    user, _, repo = path.partition("/")
    for part in (user, repo):
        if _REPO_PART.fullmatch(part) is None:
            raise InvalidName(text, "expected hf.co/user/repository[:quantization or file]")
    if at and _REVISION.fullmatch(revision) is None:
        raise InvalidName(text, "the revision may contain letters, digits, '.', '_', '-' and '/'")
    if colon and (not selector or ".." in selector.split("/") or len(selector) > 255):
        raise InvalidName(text, "expected a quantization or a file of the repository after ':'")
    wanted = None if not selector or selector == DEFAULT_TAG else selector
    tag = "-".join(part for part in (wanted, revision or None) if part)
    name = Name(
        HUGGING_FACE, name_part(user, "namespace"), name_part(repo, "model"), name_part(tag, "tag")
    )
    return Reference(KIND, name, repo=f"{user}/{repo}", selector=wanted, revision=revision or None)


def _text(reference: Reference) -> str:
    selector = f":{reference.selector}" if reference.selector else ""
    revision = f"@{reference.revision}" if reference.revision else ""
    return f"hf.co/{reference.repo}{selector}{revision}"


def _open(reference: Reference, client: HttpClient, access: HostAccess) -> Host:
    from registry.hosts.hub import HuggingFaceHost

    return HuggingFaceHost(client, reference, access.memory_bytes)


KIND = HostKind("huggingface", _parse, _text, _open)
