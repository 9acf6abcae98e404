"""Model files behind URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from registry.errors import InvalidName
from registry.hosts.host import Host, HostAccess
from registry.hosts.reference import FILE_ENDS, PART_END, HostKind, Reference, name_part
from registry.names import DEFAULT_TAG, Name, is_valid_part

if TYPE_CHECKING:
    from registry.hosts.http.client import HttpClient


def _parse(text: str, scheme: str, rest: str) -> Reference | None:
    if scheme not in ("http", "https") or not rest.lower().split("?")[0].endswith(FILE_ENDS):
        return None
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        raise InvalidName(text, "not a URL") from None
    folders = [unquote(part) for part in parts.path.split("/") if part]
    model = PART_END.sub("", folders[-1].rpartition(".")[0]) if folders else ""
    namespace = folders[-2] if len(folders) > 1 else "files"
    if parts.netloc != host or not is_valid_part("host", host):
        raise InvalidName(text, "the URL has a password or an invalid host")
    if not model:
        raise InvalidName(text, "the URL does not name a file")
    name = Name(host, name_part(namespace, "namespace"), name_part(model, "model"), DEFAULT_TAG)
    if "resolve" in folders[2:-2]:
        at = folders.index("resolve", 2)
        user, repo = name_part(folders[at - 2], "namespace"), name_part(folders[at - 1], "model")
        name = Name(host, user, repo, name_part(model, "tag"))
    return Reference(KIND, name, plain=parts.scheme == "http", url=text)


def _text(reference: Reference) -> str | None:
    return None if reference.url is None or "?" in reference.url else reference.url


def _open(reference: Reference, client: HttpClient, _access: HostAccess) -> Host:
    from registry.hosts.web_files import UrlHost

    return UrlHost(client, reference)


KIND = HostKind("url", _parse, _text, _open, precedence=10)
