"""Hugging Face: the GGUF files of a repository, or its safetensors, by the Hub's own library.

Owns the questions to the Hub and what its refusals mean. huggingface-hub reads the user's
settings: HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE. The content itself comes like any other,
in ranges. That is so for files in xet storage too: for whoever does not speak xet the Hub keeps a
bridge (hub-docs, xet/legacy-git-lfs), and the address that a file's own one redirects to has its
bytes, in ranges, and is asked for anew with each. The library's own way, hf_xet, is not taken:
huggingface-hub 2.4 has it write a whole file to a new name each time and removes what has arrived
when it fails, so that there is nothing to go on from; it knows no bandwidth limit, and its content
would be hashed in a second pass. So HF_HUB_DISABLE_XET changes nothing here.
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
)
from registry.hosts.host import RemoteFile, RemoteModel, RetryLater
from registry.hosts.http.addresses import origin_of
from registry.hosts.http.client import HttpClient, same_origin
from registry.hosts.http.faults import connection_fault
from registry.hosts.reference import Reference
from registry.hosts.selection.adapters import base_in_tags
from registry.hosts.selection.model_files import SelectedFiles, select_files
from registry.hosts.selection.variants import RepositoryFile
from registry.hosts.web_files import WebFile

_TIMEOUT_S = 20.0
_MAX_FILES = 20_000
_TOKEN_WAY = "set HF_TOKEN for the daemon or run: hf auth login"


@dataclass(frozen=True, slots=True)
class HubAuthority:
    """The user's token, for the Hub only. See registry.hosts.http.client.Authority."""

    endpoint: httpx.URL
    token_headers: Mapping[str, str]

    async def headers(self, url: httpx.URL) -> Mapping[str, str]:
        """See registry.hosts.http.client.Authority."""
        return self.token_headers if same_origin(url, self.endpoint) else {}

    async def challenged(self, response: httpx.Response) -> bool:
        """There is nothing more to show."""
        return False


@dataclass(frozen=True, slots=True)
class HuggingFaceHost:
    """A repository. memory_bytes: what the choice of a file is made for."""

    client: HttpClient
    reference: Reference
    memory_bytes: int

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        repo = self.reference.repo or ""
        info = await asyncio.to_thread(self._ask, repo)
        selected = select_files(repo, _entries(info), self.reference.selector, self.memory_bytes)
        files = await asyncio.to_thread(self._files, repo, info.sha or "main", selected)
        base = base_in_tags(info.tags or [])
        return RemoteModel(self.reference.name, files, notes=selected.notes, base=base)

    def _ask(self, repo: str) -> ModelInfo:
        revision = self.reference.revision
        try:
            return HfApi().model_info(
                repo, revision=revision, files_metadata=True, timeout=_TIMEOUT_S
            )
        except OfflineModeIsEnabled:
            raise RemoteUnreachable(
                f"cannot ask for {repo}: HF_HUB_OFFLINE is set; `hearth import hf` takes what its "
                "cache holds"
            ) from None
        except Exception as error:
            raise _refusal(error, repo, revision) from None

    def _files(self, repo: str, commit: str, selected: SelectedFiles) -> tuple[RemoteFile, ...]:
        endpoint = httpx.URL(constants.ENDPOINT)
        sent = build_hf_headers(library_name="hearth")
        kept = {name: value for name, value in sent.items() if name.lower() == "authorization"}
        authority = HubAuthority(endpoint, kept)
        files = []
        for entry, role in selected.files:
            url = httpx.URL(hf_hub_url(repo, entry.path, revision=commit))
            digest = None if entry.sha256 is None else _digest(entry.sha256)
            key = str(digest) if digest else f"{entry.git_id or commit}/{repo}/{entry.path}"
            source = WebFile(self.client, url, authority, _gated(repo))
            title, cached = selected.title(entry), _cached(repo, entry.path, commit)
            files.append(RemoteFile(title, entry.size_bytes, digest, key, source, cached, role))
        return tuple(files)


def _entries(info: ModelInfo) -> list[RepositoryFile]:
    siblings = info.siblings or []
    if len(siblings) > _MAX_FILES:
        raise RemoteRefused(f"{info.id} has {len(siblings)} files, which is too many")
    return [
        RepositoryFile(
            item.rfilename, item.size, item.lfs.sha256 if item.lfs else None, item.blob_id
        )
        for item in siblings
        if type(item.size) is int and item.size >= 0
    ]


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
    return f"{repo} is gated: accept its terms at {constants.ENDPOINT}/{repo}, then {_TOKEN_WAY}"


def _refusal(error: Exception, repo: str, revision: str | None) -> RemoteError:
    if isinstance(error, GatedRepoError):
        return RemoteDenied(_gated(repo))
    if isinstance(error, RevisionNotFoundError):
        return RemoteMissing(f"{repo} has no revision {revision}; see {constants.ENDPOINT}/{repo}")
    if isinstance(error, RepositoryNotFoundError):
        return RemoteMissing(
            f"Hugging Face has no {repo}; if it is private, {_TOKEN_WAY}. Check the spelling at "
            f"{constants.ENDPOINT}"
        )
    if isinstance(error, HfHubHTTPError):
        return _refused(getattr(error.response, "status_code", None), repo)
    _, host, port = origin_of(httpx.URL(constants.ENDPOINT))
    fault = connection_fault(error, f"{host}:{port}")
    return RemoteUnreachable(fault.reason) if isinstance(fault, RetryLater) else fault


def _refused(status: int | None, repo: str) -> RemoteError:
    if status in (401, 403):
        return RemoteDenied(f"Hugging Face rejects your token for {repo} ({status}): {_TOKEN_WAY}")
    if status == 429:
        return RemoteUnreachable(
            "Hugging Face limits the rate of requests (429): wait a few minutes, or have a higher "
            f"limit with an account: {_TOKEN_WAY}"
        )
    return RemoteUnreachable(
        f"Hugging Face responded with {status or 'an error'} to a request for {repo}; try again "
        "later"
    )
