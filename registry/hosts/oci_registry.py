"""Registries that speak Docker's Registry HTTP API v2 / OCI distribution, Ollama's among them.

Owns manifests, blobs and tags of one repository. Knows nothing of the store.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import httpx

from registry.auth.credentials import Credential
from registry.auth.ollama_key import OllamaKey
from registry.auth.tokens import RegistryAuthority
from registry.digest import Digest
from registry.errors import (
    InvalidManifest,
    RemoteDenied,
    RemoteError,
    RemoteMissing,
    RemoteRefused,
    shown,
)
from registry.hosts.host import HostAccess, RemoteFile, RemoteModel
from registry.hosts.http.addresses import is_loopback
from registry.hosts.http.client import Authority, ClientRequest, HttpClient, raise_for_status
from registry.hosts.oci_artifacts import Artifact, read_artifact
from registry.hosts.reference import Reference
from registry.hosts.web_files import WebFile
from registry.manifest import CONFIG_TYPE, MANIFEST_TYPE, Descriptor, Manifest
from registry.names import DEFAULT_HOST, Name

OCI_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPES = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_CONFIG_TYPES = (
    CONFIG_TYPE,
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.ollama.image.config",
)
_LAYER_PREFIX = "application/vnd.ollama.image."
_REGISTRIES = dict.fromkeys(("docker.io", "index.docker.io"), "registry-1.docker.io")
_MAX_TAG_PAGES = 100
_SHOWN_TAGS = 12
_SIGNED = (DEFAULT_HOST, "ollama.com")


def base_url(host: str, plain: bool) -> httpx.URL:
    """The registry at host (its name and port). plain: over http, as is the rule for loopback.
    What people call docker.io is a web site; its registry has another name."""
    host = _REGISTRIES.get(host.lower(), host)
    name = host.rpartition(":")[0] if ":" in host else host
    return httpx.URL(f"{'http' if plain or is_loopback(name) else 'https'}://{host}")


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository of a registry."""

    client: HttpClient
    base: httpx.URL
    path: str
    authority: Authority

    def url(self, rest: str) -> httpx.URL:
        """The URL of something in the repository."""
        return self.base.join(f"/v2/{self.path}/{rest}")

    def request(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str] = MappingProxyType({}),
        content: Any = None,
    ) -> ClientRequest:
        """A request with the credentials for the repository. content: see ClientRequest."""
        return ClientRequest(method, url, headers, content, self.authority)

    async def fetch(
        self, method: str, url: httpx.URL, headers: Mapping[str, str] = MappingProxyType({})
    ) -> httpx.Response:
        """The whole answer to such a request. Raises RemoteError."""
        return await self.client.fetch(self.request(method, url, headers))

    def blob(self, layer: Descriptor) -> RemoteFile:
        """A blob, to be fetched."""
        url = self.url(f"blobs/{layer.digest}")
        source = WebFile(self.client, url, self.authority)
        return RemoteFile(
            layer.digest.short, layer.size_bytes, layer.digest, str(layer.digest), source
        )

    async def tags(self) -> list[str]:
        """All tags, in the registry's order. Raises RemoteError."""
        url: httpx.URL | None = self.url("tags/list").copy_merge_params({"n": "1000"})
        tags: list[str] = []
        for _ in range(_MAX_TAG_PAGES):
            if url is None:
                break
            response = await self.fetch("GET", url)
            raise_for_status(response, f"repository {self.path}")
            tags += _tags_in(response.content)
            url = _next_page(response, self.base)
        return tags


def open_repository(client: HttpClient, reference: Reference, access: HostAccess) -> Repository:
    """The repository that a reference names."""
    name = reference.name
    base = base_url(name.host, reference.plain or (client.insecure and _has_port(name.host)))
    authority = RegistryAuthority(
        client, base, access.credentials.find, lambda host: _signing_key(host, access)
    )
    return Repository(client, base, f"{name.namespace}/{name.model}", authority)


async def check_login(client: HttpClient, host: str, credential: Credential) -> None:
    """Raises RemoteDenied when the registry does not accept the credential, RemoteError."""
    base = base_url(host, client.insecure)
    authority = RegistryAuthority(client, base, lambda _: credential, lambda _: None)
    response = await client.fetch(ClientRequest("GET", base.join("/v2/"), {}, None, authority))
    if response.status_code == 404:
        raise RemoteRefused(f"{host} is not a registry: it has no /v2/")
    if response.status_code in (401, 403):
        raise RemoteDenied(f"{host} rejected the password of {shown(credential.username)}")
    raise_for_status(response, "registry")


def _has_port(host: str) -> bool:
    """With --insecure a registry at a port of its own is asked over http, as Ollama does."""
    return ":" in host and not host.endswith(":443")


def _signing_key(host: str, access: HostAccess) -> OllamaKey | None:
    """The key to sign token requests with: for Ollama's own registry only."""
    if httpx.URL(f"https://{host}").host not in _SIGNED:
        return None
    keys = (OllamaKey.read(path) for path in access.key_files)
    return next((key for key in keys if key is not None), None)


@dataclass(frozen=True, slots=True)
class OciHost:
    """A model in a registry. reference: its tag, or the digest of its manifest."""

    repository: Repository
    name: Name
    reference: str

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        url = self.repository.url(f"manifests/{self.reference}")
        accept = {"Accept": f"{MANIFEST_TYPE}, {OCI_MANIFEST_TYPE}"}
        response = await self.repository.fetch("GET", url, accept)
        if response.status_code == 404:
            raise await self._missing()
        raise_for_status(response, f"model {self.repository.path}:{self.reference}")
        content = response.content
        self._check_digest(response, content)
        _check_kind(response, content)
        manifest = Manifest.from_bytes(content)
        artifact = read_artifact(content, manifest)
        if artifact is not None:
            return self._of_artifact(artifact)
        check_layers(manifest)
        files = tuple(self.repository.blob(layer) for layer in manifest.blobs)
        return RemoteModel(self.name, files, manifest, content)

    async def _missing(self) -> RemoteMissing:
        """What to say of a model that is not there: the tags that are, where they are told."""
        path, tags = self.repository.path, list[str]()
        with contextlib.suppress(RemoteError):
            tags = await self.repository.tags()
        near = difflib.get_close_matches(self.reference, tags, _SHOWN_TAGS, 0.0)
        hint = f"it has {', '.join(near)}" if near else "check the name and the tag"
        return RemoteMissing(f"{self.name.host} has no model {path}:{self.reference}; {hint}")

    def _of_artifact(self, artifact: Artifact) -> RemoteModel:
        """The model of which another tool made the artifact, to be built of its files."""
        files = tuple(
            replace(self.repository.blob(piece.layer), title=piece.title, role=piece.role)
            for piece in artifact.pieces
        )
        return RemoteModel(self.name, files, notes=artifact.notes)

    def _check_digest(self, response: httpx.Response, content: bytes) -> None:
        """The manifest must be what the reference, and the registry itself, say that it is."""
        actual = str(Digest.of(content))
        promised = response.headers.get("docker-content-digest", actual)
        wanted = self.reference if self.reference.startswith("sha256:") else promised
        for expected in (wanted, promised):
            if expected.startswith("sha256:") and expected != actual:
                raise RemoteRefused(
                    f"the manifest has the digest {actual}, not {shown(expected)} as expected"
                )


def _check_kind(response: httpx.Response, content: bytes) -> None:
    try:
        value = json.loads(content)
        kind = value.get("mediaType") or response.headers.get("content-type", "")
    except (ValueError, AttributeError, RecursionError):
        return
    if str(kind) in _INDEX_TYPES:
        raise InvalidManifest("manifest: an image index for several platforms, not a model")


def check_layers(manifest: Manifest) -> None:
    """Raises InvalidManifest for layers that are no parts of a model: a container's image."""
    if manifest.config.media_type not in _CONFIG_TYPES:
        raise InvalidManifest(
            f"manifest: the config has the type {shown(manifest.config.media_type)}, so this is "
            "not a model that hearth can run"
        )
    for layer in manifest.layers:
        if not layer.media_type.startswith(_LAYER_PREFIX):
            raise InvalidManifest(
                f"manifest: a layer has the type {shown(layer.media_type)}, which is not part "
                "of a model"
            )


def _tags_in(content: bytes) -> list[str]:
    try:
        tags = json.loads(content).get("tags") or []
    except (ValueError, AttributeError, RecursionError):
        raise RemoteRefused("the registry's list of tags is not JSON") from None
    return [tag for tag in tags if isinstance(tag, str)]


def _next_page(response: httpx.Response, base: httpx.URL) -> httpx.URL | None:
    link = response.links.get("next", {}).get("url")
    if link is None:
        return None
    url = response.request.url.join(link)
    return url if url.host == base.host and url.port == base.port else None
