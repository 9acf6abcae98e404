"""The place of a model as a user writes it, and the description of each kind of place.

Owns the shared types, and what names in the store are made of. Imports no HTTP client.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from registry.hosts.host import Host, HostAccess
from registry.names import DEFAULT_TAG, Name

if TYPE_CHECKING:
    from registry.hosts.http.client import HttpClient

FILE_ENDS = (".gguf",)
PART_END = re.compile(r"-\d{5}-of-\d{5}$", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostKind:
    """One kind of host. The modules in registry/hosts/kinds each have one, called KIND.

    parse: what a text, its scheme in lower case and the rest mean; None: another kind is meant.
    Raises InvalidName, InvalidDigest. text: what parse reads as this place again; None where that
    may hold a secret. open: the host; what speaks HTTP is imported by it only, so call it in a
    thread. precedence: kinds with a smaller one are asked first. is_local: files of this machine,
    which need no network.
    """

    name: str
    parse: Callable[[str, str, str], Reference | None]
    text: Callable[[Reference], str | None]
    open: Callable[[Reference, HttpClient, HostAccess], Host]
    precedence: int = 0
    is_local: bool = False
    is_registry: bool = False


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
        parts = (self.kind.name, *self.name.folded, self.digest, self.repo, self.selector)
        return "|".join(str(part) for part in (*parts, self.revision, self.url))

    @property
    def text(self) -> str | None:
        """See HostKind.text."""
        return self.kind.text(self)


def name_part(text: str, part: Literal["namespace", "model", "tag"]) -> str:
    """text with what that part of a name may not hold replaced; the default tag for none."""
    if not text:
        return DEFAULT_TAG
    allowed = "A-Za-z0-9_-" if part == "namespace" else "A-Za-z0-9_.-"
    fitting = re.sub(f"[^{allowed}]", "-", text)[:80].lstrip("-.")
    return fitting or "_"
