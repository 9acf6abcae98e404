"""Models in registries: every reference that is of no other kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from registry.digest import Digest
from registry.hosts.host import Host, HostAccess
from registry.hosts.reference import HostKind, Reference
from registry.names import Name

if TYPE_CHECKING:
    from registry.hosts.http.client import HttpClient

_SCHEMES = ("", "http", "https", "oci")


def _parse(_text: str, scheme: str, rest: str) -> Reference | None:
    if scheme not in _SCHEMES:
        return None
    before, at, digest = rest.partition("@")
    checked = str(Digest.parse(digest)) if at else None
    if scheme and before.count("/") == 1:
        host, _, model = before.partition("/")
        before = f"{host}/library/{model}"
    name = Name.parse(before)
    if checked is not None and ":" not in before.rpartition("/")[2]:
        name = Name(name.host, name.namespace, name.model, f"sha256-{checked[7:19]}")
    return Reference(KIND, name, plain=scheme == "http", digest=checked)


def _text(reference: Reference) -> str:
    digest = f"@{reference.digest}" if reference.digest else ""
    return f"{'http://' if reference.plain else ''}{reference.name}{digest}"


def _open(reference: Reference, client: HttpClient, access: HostAccess) -> Host:
    from registry.hosts.oci_registry import OciHost, open_repository

    wanted = reference.digest or reference.name.tag
    return OciHost(open_repository(client, reference, access), reference.name, wanted)


KIND = HostKind("oci", _parse, _text, _open, precedence=100, is_registry=True)
