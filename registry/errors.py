"""The errors of the registry: names, digests, manifests, model files, the store on disk.

A leaf with its own root: knows no HTTP and nothing of the runner. Every message names the value
and what to do; none holds a path of this machine, so that it may be shown to a client.
"""

from __future__ import annotations

import errno as errno_codes
import os
from collections.abc import Sequence

_REASONS = {
    errno_codes.ENOSPC: "not enough space on the disk",
    errno_codes.EDQUOT: "your disk quota is used up",
    errno_codes.EFBIG: "the file would be longer than this system allows",
}
_SHOWN_NAMES = 4
_UNITS = ("B", "KB", "MB", "GB", "TB")


class RegistryError(Exception):
    """The root."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidName(RegistryError):
    """The text is not a model name."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"invalid model name {shown(text)}: {reason}")


class InvalidShortNames(RegistryError):
    """The user's table of short names has a fault; the message names the line or the entry."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"shortnames.toml: {reason}")


class InvalidDigest(RegistryError):
    """The text is not sha256: and 64 lower-case hexadecimal digits."""

    def __init__(self, text: str) -> None:
        super().__init__(f"invalid digest {shown(text)}: expected sha256:<64 hex digits>")


class InvalidManifest(RegistryError):
    """The bytes are not a manifest; the message names the field."""


class InvalidGguf(RegistryError):
    """The file is not a GGUF file that may be loaded; the message names the key or tensor."""

    def __init__(self, message: str) -> None:
        super().__init__(f"invalid GGUF: {message}")


class InvalidSafetensors(RegistryError):
    """The file is not a safetensors file that may be read; the message names the tensor or key."""

    def __init__(self, message: str) -> None:
        super().__init__(f"invalid safetensors: {message}")


class ModelMissing(RegistryError):
    """No such model in the store. suggestions: the short names nearest to it, best first."""

    def __init__(self, name: str, suggestions: tuple[str, ...] = ()) -> None:
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        super().__init__(f"model {shown(name)} not found{hint}")
        self.name = name
        self.hint = hint
        self.suggestions = suggestions


class BlobMissing(RegistryError):
    """A manifest or a request names a blob that the store does not hold."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"blob {digest} is not in the store")


class BlobDamaged(RegistryError):
    """A blob exists but is not what its name promises (size, kind of file)."""


class BlobTooLarge(RegistryError):
    """A small layer (system prompt, parameters, ...) is longer than may be read at once."""


class DigestMismatch(RegistryError):
    """The content does not have the digest that was expected."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f'digest mismatch, expected "{expected}", got "{actual}"')
        self.expected = expected
        self.actual = actual


class StoreError(RegistryError):
    """The store as a whole cannot do it now."""


class StoreLocked(StoreError):
    """Another process owns the store. pid: that process, None when it did not say."""

    def __init__(self, pid: int | None) -> None:
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"the model store is in use by {who}; stop it or set another store")
        self.pid = pid


class StoreReadOnly(StoreError):
    """A write was asked of a store that can only be read."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"cannot {operation}: the model store is read-only")


class StoreFault(StoreError):
    """A system call on the store failed. errno and operation, without a path."""

    def __init__(self, operation: str, errno: int | None, detail: str = "") -> None:
        name = errno_codes.errorcode.get(errno or 0, "error")
        reason = _REASONS.get(errno or 0) or (os.strerror(errno) if errno else "unknown reason")
        super().__init__(f"cannot {operation}: {reason} ({name}){detail}")
        self.errno = errno


class StoreFull(StoreFault):
    """No space is left. needed_bytes: at least what this write takes; free_bytes: what is left."""

    def __init__(self, operation: str, errno: int, needed_bytes: int, free_bytes: int) -> None:
        needs = f"it needs {shown_size(needed_bytes)}, but " if needed_bytes else ""
        detail = f"; {needs}only {shown_size(free_bytes)} is free. Remove models or other files"
        super().__init__(operation, errno, detail)
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class RemoteError(RegistryError):
    """Something between this machine and a registry went wrong."""


class RemoteMissing(RemoteError):
    """The registry has no such model or file."""


class RemoteDenied(RemoteError):
    """The registry wants credentials, or refuses those it got."""


class RemoteUnreachable(RemoteError):
    """The registry does not answer, or stopped responding. The same pull may work later."""


class RemoteRefused(RemoteError):
    """What the registry sent or asked for is not allowed; nothing of it was used."""


class Offline(RemoteError):
    """The network would be needed and may not be used."""

    def __init__(self, what: str) -> None:
        super().__init__(f"cannot {what}: HEARTH_OFFLINE is set")


def shown(text: str, limit: int = 80) -> str:
    """Untrusted text for a message: quoted, control characters escaped, cut to limit."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return repr(cut)


def shown_names(names: Sequence[str]) -> str:
    """The first of them for a message, each as shown shows it, and how many more there are."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(shown, names[:_SHOWN_NAMES])) + more


def shown_size(size_bytes: float) -> str:
    """Bytes in the decimal units of disks and of the lists of models: "4.7 GB"."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 9.95 else f"{value:.1f} {unit}"
