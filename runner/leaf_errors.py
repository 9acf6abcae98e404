"""The errors of the store, of remote hosts and of Modelfiles, as the daemon's clients see them."""

from __future__ import annotations

import errno
from typing import Any

from modelfile.errors import ModelfileError
from registry import errors as registry
from registry.errors import RegistryError, StoreLocked
from runner import errors as runner

__all__ = ["RegistryError", "StoreLocked", "as_hearth_error"]

_KINDS: dict[type[RegistryError], type[runner.HearthError]] = {
    registry.InvalidName: runner.InvalidRequest,
    registry.InvalidDigest: runner.InvalidRequest,
    registry.InvalidShortNames: runner.InvalidRequest,
    registry.DigestMismatch: runner.InvalidRequest,
    registry.BlobMissing: runner.InvalidRequest,
    registry.ModelMissing: runner.ModelNotFound,
    registry.RemoteMissing: runner.RemoteModelNotFound,
    registry.RemoteDenied: runner.RegistryDenied,
    registry.RemoteUnreachable: runner.RegistryUnreachable,
    registry.Offline: runner.NetworkForbidden,
    registry.StoreReadOnly: runner.Conflict,
    registry.StoreError: runner.StorageFailed,
    registry.RegistryError: runner.ModelInvalid,
}


def as_hearth_error(error: Exception) -> runner.HearthError | None:
    """The error as clients are told it; None for one that nobody foresaw."""
    if isinstance(error, runner.HearthError):
        return error
    if isinstance(error, ModelfileError):
        return runner.InvalidRequest(error.message)
    if not isinstance(error, RegistryError):
        return None
    kind = next(kind for base, kind in _KINDS.items() if isinstance(error, base))
    details: dict[str, Any] = {}
    if isinstance(error, registry.ModelMissing):
        details = {"model": error.name, "suggestions": list(error.suggestions)}
    if isinstance(error, registry.StoreReadOnly):
        details = {"errno": "EROFS"}
    if isinstance(error, registry.StoreFault):
        details = {"errno": errno.errorcode.get(error.errno or 0)}
    return kind(error.message, **details)
