"""Hugging Face: the GGUF files of a repository, or its safetensors.

Owns the questions to the Hub and what its refusals mean. huggingface-hub reads the user's settings:
HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE. It sends no requests itself, because it reads
answers of any length and trusts their content. The content is fetched like any other, in ranges.
This also holds for files in xet storage: for clients without xet the Hub has a bridge (hub-docs,
xet/legacy-git-lfs), and the address that a file's own one redirects to serves its bytes in ranges;
it is requested again for each. The library's hf_xet is not used: huggingface-hub 2.4 has it write a
whole file to a new name each time and removes what has arrived when it fails, so nothing can be
resumed; it has no bandwidth limit, and its content would be hashed in a second pass. So
HF_HUB_DISABLE_XET has no effect here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
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
from registry.hosts.http.client import ClientRequest, HttpClient, read_body, same_origin
from registry.hosts.hub_listing import RepositoryListing, read_listing
from registry.hosts.reference import Reference
from registry.hosts.selection.adapters import base_in_tags
from registry.hosts.selection.model_files import SelectedFiles, select_files
from registry.hosts.web_files import WebFile

_MAX_LISTING_BYTES = 16 << 20  # of 20,000 files
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
        listing = await self._ask(repo)
        selected = select_files(repo, listing.files, self.reference.selector, self.memory_bytes)
        files = await asyncio.to_thread(self._files, repo, listing.commit, selected)
        base = base_in_tags(listing.tags)
        return RemoteModel(self.reference.name, files, notes=selected.notes, base=base)

    async def _ask(self, repo: str) -> RepositoryListing:
        if constants.HF_HUB_OFFLINE:
            raise RemoteUnreachable(
                f"cannot ask for {repo}: HF_HUB_OFFLINE is set; `hearth import hf` takes what its "
                "cache holds"
            )
        revision = self.reference.revision
        path = f"{constants.ENDPOINT}/api/models/{repo}"
        if revision is not None:
            path += f"/revision/{quote(revision, safe='')}"
        authority = await asyncio.to_thread(_authority)
        request = ClientRequest("GET", httpx.URL(f"{path}?blobs=true"), {}, None, authority)
        try:
            async with self.client.open(request) as response:
                content = await read_body(response, _MAX_LISTING_BYTES)
        except RetryLater as error:
            raise RemoteUnreachable(error.reason) from None
        if response.status_code >= 400:
            raise _refusal(response, repo, revision)
        return await asyncio.to_thread(read_listing, repo, content)

    def _files(self, repo: str, commit: str, selected: SelectedFiles) -> tuple[RemoteFile, ...]:
        authority, files = _authority(), []
        for entry, role in selected.files:
            url = httpx.URL(hf_hub_url(repo, entry.path, revision=commit))
            digest = None if entry.sha256 is None else _digest(entry.sha256)
            key = str(digest) if digest else f"{entry.git_id or commit}/{repo}/{entry.path}"
            source = WebFile(self.client, url, authority, _gated(repo))
            title, cached = selected.title(entry), _cached(repo, entry.path, commit)
            files.append(RemoteFile(title, entry.size_bytes, digest, key, source, cached, role))
        return tuple(files)


def _authority() -> HubAuthority:
    sent = build_hf_headers(library_name="hearth")
    kept = {name: value for name, value in sent.items() if name.lower() == "authorization"}
    return HubAuthority(httpx.URL(constants.ENDPOINT), kept)


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


def _refusal(response: httpx.Response, repo: str, revision: str | None) -> RemoteError:
    """What a refusal of the Hub means: it says why in a header. To whoever shows no token it does
    not say whether a repository is private or not there."""
    status, reason = response.status_code, response.headers.get("x-error-code")
    if reason == "GatedRepo":
        return RemoteDenied(_gated(repo))
    if reason == "RevisionNotFound":
        return RemoteMissing(f"{repo} has no revision {revision}; see {constants.ENDPOINT}/{repo}")
    if reason == "RepoNotFound" or status == 404:
        return RemoteMissing(
            f"Hugging Face has no {repo}; if it is private, {_TOKEN_WAY}. Check the spelling at "
            f"{constants.ENDPOINT}"
        )
    if status in (401, 403):
        return RemoteDenied(f"Hugging Face rejects your token for {repo} ({status}): {_TOKEN_WAY}")
    if status == 429:
        return RemoteUnreachable(
            "Hugging Face limits the rate of requests (429): wait a few minutes, or get a higher "
            f"limit with an account: {_TOKEN_WAY}"
        )
    return RemoteUnreachable(
        f"Hugging Face responded with {status} to a request for {repo}; try again later"
    )
