"""Hugging Face: the GGUF files of a repository, or its safetensors, by the Hub's own library.

Owns the questions to the Hub and what its refusals mean. huggingface-hub reads the user's
settings: HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE. The content itself comes like any other,
in ranges: files that the Hub keeps in xet storage are asked for at the address that it redirects
to, where each has one. The library's own way (hf_xet) writes whole files where it wants, with
neither ranges nor a bandwidth limit, so that such a transfer could not be gone on with here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from huggingface_hub import HfApi, constants, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils._headers import build_hf_headers

from registry.digest import Digest
from registry.errors import (
    InvalidDigest,
    RemoteDenied,
    RemoteError,
    RemoteMissing,
    RemoteRefused,
    RemoteUnreachable,
    shown,
)
from registry.hosts.checkpoint import CHECKPOINT, checkpoint_of
from registry.hosts.choosing import Choice, Entry, Variant, choose, projectors_of, variants_of
from registry.hosts.host import RemoteFile, RemoteModel
from registry.hosts.oci import WebFile
from registry.hosts.references import Reference
from registry.hosts.web import Web, same_origin

_TIMEOUT_S = 20.0
_MAX_FILES = 20_000


@dataclass(frozen=True, slots=True)
class HubAuthority:
    """The user's token, for the Hub only. See registry.hosts.web.Authority."""

    endpoint: httpx.URL
    token_headers: Mapping[str, str]

    async def headers(self, url: httpx.URL) -> Mapping[str, str]:
        """See registry.hosts.web.Authority."""
        return self.token_headers if same_origin(url, self.endpoint) else {}

    async def challenged(self, response: httpx.Response) -> bool:
        """There is nothing more to show."""
        return False


@dataclass(frozen=True, slots=True)
class HuggingFaceHost:
    """A repository. memory_bytes: what the choice of a file is made for."""

    web: Web
    reference: Reference
    memory_bytes: int

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        repo = self.reference.repo or ""
        info = await asyncio.to_thread(self._ask, repo)
        entries = _entries(info)
        choice = self._choose(repo, entries)
        files = await asyncio.to_thread(self._files, repo, info.sha or "main", choice.variant)
        return RemoteModel(self.reference.name, files, notes=_notes(choice, entries))

    def _choose(self, repo: str, entries: list[Entry]) -> Choice:
        """The GGUF that is meant, or the safetensors where there is none."""
        found, selector = variants_of(entries), self.reference.selector
        if found:
            return choose(repo, found, selector, self.memory_bytes)
        variant = checkpoint_of(repo, entries)
        if selector is not None:
            raise RemoteMissing(
                f"{repo} has no {shown(selector)}: it holds safetensors and no GGUF. Pull "
                f"hf.co/{repo} and quantize it with: hearth create --quantize"
            )
        return Choice(variant, "no GGUF here: the safetensors are fetched and then converted")

    def _ask(self, repo: str) -> ModelInfo:
        revision = self.reference.revision
        try:
            return HfApi().model_info(
                repo, revision=revision, files_metadata=True, timeout=_TIMEOUT_S
            )
        except OfflineModeIsEnabled:
            raise RemoteUnreachable(f"cannot ask for {repo}: HF_HUB_OFFLINE is set") from None
        except Exception as error:
            raise _refusal(error, repo, revision) from None

    def _files(self, repo: str, commit: str, variant: Variant) -> tuple[RemoteFile, ...]:
        endpoint = httpx.URL(constants.ENDPOINT)
        sent = build_hf_headers(library_name="hearth")
        kept = {name: value for name, value in sent.items() if name.lower() == "authorization"}
        authority = HubAuthority(endpoint, kept)
        files, is_gguf = [], variant.label != CHECKPOINT
        for entry in variant.entries:
            url = httpx.URL(hf_hub_url(repo, entry.path, revision=commit))
            digest = None if entry.sha256 is None else _digest(entry.sha256)
            key = str(digest) if digest else f"{entry.git_id or commit}/{repo}/{entry.path}"
            source = WebFile(self.web, url, authority, _gated(repo))
            title = entry.path.rpartition("/")[2] if is_gguf else entry.path
            cached = _cached(repo, entry.path, commit)
            files.append(RemoteFile(title, entry.size_bytes, digest, key, source, cached))
        return tuple(files)


def _entries(info: ModelInfo) -> list[Entry]:
    siblings = info.siblings or []
    if len(siblings) > _MAX_FILES:
        raise RemoteRefused(f"{info.id} has {len(siblings)} files, too many to choose from")
    return [
        Entry(item.rfilename, item.size, item.lfs.sha256 if item.lfs else None, item.blob_id)
        for item in siblings
        if type(item.size) is int and item.size >= 0
    ]


def _notes(choice: Choice, entries: list[Entry]) -> tuple[str, ...]:
    """What the user should hear: why this file, and what does not come with it."""
    notes = [] if choice.note is None else [choice.note]
    if count := len(projectors_of(entries)):
        what = "the projector for images is" if count == 1 else "the projectors for images are"
        notes.append(f"{what} left out: images cannot be read yet")
    return tuple(notes)


def _digest(sha256: str) -> Digest:
    try:
        return Digest.parse(f"sha256:{sha256}")
    except InvalidDigest as error:
        raise RemoteRefused(f"the Hub: {error.message}") from None


def _cached(repo: str, path: str, commit: str) -> Path | None:
    """The file in the user's cache of the Hub, where it is there."""
    found = try_to_load_from_cache(repo, path, revision=commit)
    return Path(found) if isinstance(found, str) else None


def _gated(repo: str) -> str:
    return (
        f"{repo} is for those who have accepted its terms: accept them at "
        f"{constants.ENDPOINT}/{repo}, then set HF_TOKEN for the daemon or run: hf auth login"
    )


def _refusal(error: Exception, repo: str, revision: str | None) -> RemoteError:
    if isinstance(error, GatedRepoError):
        return RemoteDenied(_gated(repo))
    if isinstance(error, RevisionNotFoundError):
        return RemoteMissing(f"{repo} has no revision {revision}")
    if isinstance(error, RepositoryNotFoundError):
        return RemoteMissing(
            f"Hugging Face has no {repo}, or it is private and HF_TOKEN is not set"
        )
    if isinstance(error, HfHubHTTPError):
        status = getattr(error.response, "status_code", "an error")
        return RemoteUnreachable(f"Hugging Face answers {status} to a question for {repo}")
    kind = type(error).__name__
    return RemoteUnreachable(f"{httpx.URL(constants.ENDPOINT).host} cannot be asked: {kind}")
