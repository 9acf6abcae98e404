"""From a reference to the host that has the model. Imported with the first transfer only, for it
brings httpx with it; that of Hugging Face brings huggingface-hub, and waits for a use of its own.
"""

from __future__ import annotations

import logging
from importlib import import_module

import httpx

from registry.auth.credentials import Credential
from registry.auth.ollama_key import OllamaKey
from registry.auth.tokens import RegistryAuthority
from registry.hosts.host import Host, HostAccess, RemoteModel
from registry.hosts.http.client import ClientRequest, HttpClient, raise_for_status
from registry.hosts.kinds.file import FileHost
from registry.hosts.kinds.oci import OciHost, Repository, base_url
from registry.hosts.kinds.url import UrlHost
from registry.hosts.references import Reference
from registry.names import DEFAULT_HOST
from registry.push import Destination, push

__all__ = ["HttpClient", "check_login", "destination", "host_for", "push"]

for _name in ("httpx", "httpx2", "httpcore", "httpcore2"):
    # They log whole URLs, and those of a content network are signed: whoever has one may read.
    logging.getLogger(_name).setLevel(logging.WARNING)

# The HTTP client would import this with its first request, in the event loop: 30 ms of delay.
import_module("anyio._backends._asyncio")

_SIGNED = (DEFAULT_HOST, "ollama.com")


def host_for(web: HttpClient, reference: Reference, access: HostAccess) -> Host:
    """The host of a model."""
    if reference.kind == "huggingface":
        return _LazyHuggingFace(web, reference, access.memory_bytes)
    if reference.kind == "url":
        return UrlHost(web, reference)
    if reference.kind == "file":
        return FileHost(reference, access.memory_bytes)
    wanted = reference.digest or reference.name.tag
    return OciHost(_repository(web, reference, access), reference.name, wanted)


def destination(web: HttpClient, reference: Reference, access: HostAccess) -> Destination:
    """Where a model is pushed to."""
    return Destination(_repository(web, reference, access), reference.name.tag)


async def check_login(web: HttpClient, host: str, credential: Credential) -> None:
    """Raises RemoteDenied when the registry does not accept the credential, RemoteError."""
    base = base_url(host, web.insecure)
    authority = RegistryAuthority(web, base, _OneCredential(credential), lambda _: None)
    response = await web.fetch(ClientRequest("GET", base.join("/v2/"), {}, None, authority))
    raise_for_status(response, "these credentials")


def _repository(web: HttpClient, reference: Reference, access: HostAccess) -> Repository:
    name = reference.name
    base = base_url(name.host, reference.plain or (web.insecure and _is_plain(name.host)))
    authority = RegistryAuthority(web, base, access.credentials, lambda host: _key(host, access))
    return Repository(web, base, f"{name.namespace}/{name.model}", authority)


def _is_plain(host: str) -> bool:
    """With --insecure a registry at a port of its own is asked over http, as Ollama does."""
    return ":" in host and not host.endswith(":443")


def _key(host: str, access: HostAccess) -> OllamaKey | None:
    """The key to sign token requests with: for Ollama's own registry only."""
    if httpx.URL(f"https://{host}").host not in _SIGNED:
        return None
    keys = (OllamaKey.read(path) for path in access.key_files)
    return next((key for key in keys if key is not None), None)


class _OneCredential:
    """One credential, whatever the host."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def find(self, host: str) -> Credential | None:
        """See registry.auth.tokens.CredentialSource."""
        return self._credential


class _LazyHuggingFace:
    """Hugging Face, imported when it is asked."""

    def __init__(self, web: HttpClient, reference: Reference, memory_bytes: int) -> None:
        self._web = web
        self._reference = reference
        self._memory_bytes = memory_bytes

    async def resolve(self) -> RemoteModel:
        """See registry.hosts.host.Host."""
        import asyncio
        from importlib import import_module

        module = await asyncio.to_thread(import_module, "registry.hosts.kinds.huggingface")
        host: Host = module.HuggingFaceHost(self._web, self._reference, self._memory_bytes)
        return await host.resolve()
