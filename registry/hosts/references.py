"""What a user writes to say which model to pull.

    gemma3, user/model:tag, registry.example.com/ns/model:tag, oci://host/ns/model@sha256:<hex>
    hf.co/user/repo, hf.co/user/repo:Q4_K_M, hf.co/user/repo:file.gguf, hf://user/repo@revision
    https://host/path/file.gguf, https://host/user/repo/resolve/revision/file.gguf
    /path/to/file.gguf, /path/to/folder, file:///path/to/file.gguf

Owns which kind of host is meant: the folder registry/hosts/kinds is the table. Sends no requests.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from registry.errors import InvalidName
from registry.hosts import kinds
from registry.hosts.reference import HostKind, Reference

__all__ = ["Reference", "host_kinds", "parse"]


@cache
def host_kinds() -> tuple[HostKind, ...]:
    """Every kind of host, in the order in which they are asked."""
    names = [module.name for module in iter_modules(kinds.__path__)]
    found: list[HostKind] = [import_module(f"{kinds.__name__}.{name}").KIND for name in names]
    return tuple(sorted(found, key=lambda kind: kind.precedence))


def parse(text: str) -> Reference:
    """What text means. Raises InvalidName, InvalidDigest."""
    scheme, separator, rest = text.partition("://")
    scheme, rest = (scheme.lower(), rest) if separator else ("", text)
    for kind in host_kinds():
        reference = kind.parse(text, scheme, rest)
        if reference is not None:
            return reference
    ways = "hf.co/user/repository, host/namespace/model, https://host/file.gguf or a path"
    raise InvalidName(text, f"unknown scheme {scheme[:20]!r}; write {ways}")
