"""What a user writes to say which model to pull, and the kind of host that means.

    gemma3, user/model:tag, registry.example.com/ns/model:tag, oci://host/ns/model@sha256:<hex>
    hf.co/user/repo, hf.co/user/repo:Q4_K_M, hf.co/user/repo:file.gguf, hf://user/repo@revision
    https://host/path/file.gguf, https://host/user/repo/resolve/revision/file.gguf
    /path/to/file.gguf, /path/to/folder, file:///path/to/file.gguf

Owns this grammar beyond that of names. Asks nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from registry.digest import Digest
from registry.errors import InvalidName
from registry.names import DEFAULT_HOST, DEFAULT_TAG, Name, is_valid_part

HostKind = Literal["oci", "huggingface", "url", "file"]

HUGGING_FACE = "hf.co"
LOCAL = "local"  # the namespace of models from files of this machine
_MAX_PATH_CHARACTERS = 4096
_HF_HOSTS = ("hf.co", "huggingface.co", "www.huggingface.co")
_FILE_ENDS = (".gguf",)
_PART_END = re.compile(r"-\d{5}-of-\d{5}$", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}", re.ASCII)
_REPO_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reference:
    """A model somewhere. name: what it will be called in the store. plain: http was written.
    digest: of the manifest, where one was written; selector: the quantization or file;
    revision: of a repository; url: of a file, its path where it is one of this machine."""

    kind: HostKind
    name: Name
    plain: bool = False
    digest: str | None = None
    repo: str | None = None
    selector: str | None = None
    revision: str | None = None
    url: str | None = None

    @property
    def key(self) -> str:
        """The same text for the same model."""
        parts = (self.kind, *self.name.folded, self.digest, self.repo, self.selector)
        return "|".join(str(part) for part in (*parts, self.revision, self.url))

    @property
    def text(self) -> str | None:
        """What parse reads as this place again; None for a URL with a query, which may hold a
        secret."""
        if self.kind == "file":
            return self.url
        if self.kind == "url":
            return None if self.url is None or "?" in self.url else self.url
        if self.kind == "huggingface":
            selector = f":{self.selector}" if self.selector else ""
            return f"hf.co/{self.repo}{selector}" + (f"@{self.revision}" if self.revision else "")
        digest = f"@{self.digest}" if self.digest else ""
        return f"{'http://' if self.plain else ''}{self.name}{digest}"


def parse(text: str) -> Reference:
    """What text means. Raises InvalidName, InvalidDigest."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower() if separator else ""
    if not separator:
        rest = text
    if scheme == "file" or text.startswith("/"):
        return _file(text, unquote(rest) if scheme else text)
    if scheme == "hf":
        return _hugging_face(text, rest)
    host, slash, path = rest.partition("/")
    if host.lower() in _HF_HOSTS and slash and scheme in ("", "https"):
        return _hugging_face(text, _resolved_file(path))
    if scheme in ("http", "https") and rest.lower().split("?")[0].endswith(_FILE_ENDS):
        return _url(text)
    if scheme not in ("", "http", "https", "oci"):
        raise InvalidName(text, f"the scheme {scheme[:20]!r} is not known")
    return _oci(text, rest, scheme)


def _oci(text: str, rest: str, scheme: str) -> Reference:
    before, at, digest = rest.partition("@")
    checked = str(Digest.parse(digest)) if at else None
    if scheme and before.count("/") == 1:
        host, _, model = before.partition("/")
        before = f"{host}/library/{model}"
    name = Name.parse(before)
    if checked is not None and ":" not in before.rpartition("/")[2]:
        name = Name(name.host, name.namespace, name.model, f"sha256-{checked[7:19]}")
    return Reference("oci", name, plain=scheme == "http", digest=checked)


def _resolved_file(path: str) -> str:
    """user/repo:file@revision of a path user/repo/resolve/revision/file, as browsers show it."""
    parts = path.split("?")[0].split("/")
    if len(parts) >= 5 and parts[2] in ("resolve", "blob"):
        return f"{parts[0]}/{parts[1]}:{unquote('/'.join(parts[4:]))}@{unquote(parts[3])}"
    return path


def _hugging_face(text: str, rest: str) -> Reference:
    rest, at, revision = rest.partition("@")
    path, colon, selector = rest.partition(":")
    user, _, repo = path.partition("/")
    for part in (user, repo):
        if _REPO_PART.fullmatch(part) is None:
            raise InvalidName(text, "expected hf.co/user/repository[:quantization or file]")
    if at and _REVISION.fullmatch(revision) is None:
        raise InvalidName(text, "the revision may hold letters, digits, '.', '_', '-' and '/'")
    if colon and (not selector or ".." in selector.split("/") or len(selector) > 255):
        raise InvalidName(text, "after ':' a quantization or a file of the repository is expected")
    wanted = None if not selector or selector == DEFAULT_TAG else selector
    tag = "-".join(part for part in (wanted, revision or None) if part)
    name = Name(
        HUGGING_FACE, name_part(user, "namespace"), name_part(repo, "model"), name_part(tag, "tag")
    )
    return Reference(
        "huggingface", name, repo=f"{user}/{repo}", selector=wanted, revision=revision or None
    )


def _file(text: str, path: str) -> Reference:
    if not path.startswith("/") or "\0" in path or len(path) > _MAX_PATH_CHARACTERS:
        raise InvalidName(text, "expected the whole path of a file or folder, as /models/m.gguf")
    last = path.rstrip("/").rpartition("/")[2]
    stem = last[: -len(_FILE_ENDS[0])] if last.lower().endswith(_FILE_ENDS) else last
    model = name_part(_PART_END.sub("", stem), "model")
    return Reference("file", Name(DEFAULT_HOST, LOCAL, model, DEFAULT_TAG), url=path)


def _url(text: str) -> Reference:
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        raise InvalidName(text, "not a URL") from None
    folders = [unquote(part) for part in parts.path.split("/") if part]
    model = _PART_END.sub("", folders[-1].rpartition(".")[0]) if folders else ""
    namespace = folders[-2] if len(folders) > 1 else "files"
    if parts.netloc != host or not is_valid_part("host", host):
        raise InvalidName(text, "the URL has a password or an unusual host")
    if not model:
        raise InvalidName(text, "the URL names no file")
    name = Name(host, name_part(namespace, "namespace"), name_part(model, "model"), DEFAULT_TAG)
    if "resolve" in folders[2:-2]:
        at = folders.index("resolve", 2)
        user, repo = name_part(folders[at - 2], "namespace"), name_part(folders[at - 1], "model")
        name = Name(host, user, repo, name_part(model, "tag"))
    return Reference("url", name, plain=parts.scheme == "http", url=text)


def name_part(text: str, part: Literal["namespace", "model", "tag"]) -> str:
    """text with what that part of a name may not hold replaced; the default tag for none."""
    if not text:
        return DEFAULT_TAG
    allowed = "A-Za-z0-9_-" if part == "namespace" else "A-Za-z0-9_.-"
    fitting = re.sub(f"[^{allowed}]", "-", text)[:80].lstrip("-.")
    return fitting or "_"
