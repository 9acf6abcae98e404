"""The errors of the runner: one tree, one table of status codes elsewhere.

* HearthError
  * RequestError      the caller can mend it
    + InvalidRequest, ModelNotFound (RemoteModelNotFound), ModelInvalid, ContextOverflow,
      Unsupported, Conflict, RegistryDenied, NetworkForbidden, KeyNotFound, ResponseNotFound,
      PreviousResponseNotFound, McpServerNotFound
  * CapacityError     the same request may work later
    + QueueFull, InsufficientMemory, ShuttingDown, RegistryUnreachable, McpFailed
  * InternalError     a fault of hearth, the model file or the machine
    + WorkerCrashed, WorkerTimeout, ModelLoadFailed, StorageFailed

Every error carries code (a stable snake_case word), a message for people that names the value
and the cure, and details (JSON values) for programs. They cross the worker protocol by code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class HearthError(Exception):
    """The root. message: what happened, with which value, what to do."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def to_wire(self) -> dict[str, Any]:
        """The error as JSON values; from_wire is its inverse."""
        return {"code": self.code, "message": self.message, "details": self.details}


class RequestError(HearthError):
    """The caller can mend it."""

    code = "invalid_request"


class InvalidRequest(RequestError):
    """A field is missing, of the wrong type or out of range. details: param."""

    code = "invalid_value"


class ModelNotFound(RequestError):
    """No such model in the store. details: model, suggestions."""

    code = "model_not_found"


class RemoteModelNotFound(ModelNotFound):
    """No such model where it was to be pulled from."""

    code = "remote_model_not_found"


class RegistryDenied(RequestError):
    """A registry wants credentials, or refuses those it got."""

    code = "registry_denied"


class NetworkForbidden(RequestError):
    """HEARTH_OFFLINE is set."""

    code = "offline"


class ModelInvalid(RequestError):
    """The model's files are not what they must be (truncated, hostile, unknown format)."""

    code = "model_invalid"


class ContextOverflow(RequestError):
    """The prompt does not fit. details: prompt_tokens, context_length."""

    code = "context_length_exceeded"


class KeyNotFound(RequestError):
    """No API key has that name."""

    code = "key_not_found"


class ResponseNotFound(RequestError):
    """No stored response has that id."""

    code = "response_not_found"


class PreviousResponseNotFound(RequestError):
    """The response that a request goes on from is not there. details: param."""

    code = "previous_response_not_found"


class McpServerNotFound(RequestError):
    """No MCP server has that name."""

    code = "mcp_server_not_found"


class Unsupported(RequestError):
    """The model or this version cannot do it."""

    code = "unsupported"


class Conflict(RequestError):
    """The state of the store or the daemon forbids it."""

    code = "conflict"


class CapacityError(HearthError):
    """The same request may work later. details may hold retry_after_s."""

    code = "overloaded"


class QueueFull(CapacityError):
    """More requests wait than HEARTH_MAX_QUEUE allows."""

    code = "queue_full"


class InsufficientMemory(CapacityError):
    """The memory plan does not fit. details: needed_bytes, available_bytes."""

    code = "insufficient_memory"


class ShuttingDown(CapacityError):
    """The daemon is stopping."""

    code = "shutting_down"


class RegistryUnreachable(CapacityError):
    """A registry does not answer, or stopped answering; a pull goes on from where it was."""

    code = "registry_unreachable"


class McpFailed(CapacityError):
    """An MCP server cannot be started, does not answer, or answers what is no answer."""

    code = "mcp_server_failed"


class InternalError(HearthError):
    """A fault of hearth, the model file or the machine."""


class WorkerCrashed(InternalError):
    """The worker process ended by itself. details: signal or exit_code."""

    code = "worker_crashed"


class WorkerTimeout(InternalError):
    """The worker did not answer or did not step in time and was ended."""

    code = "worker_timeout"


class ModelLoadFailed(InternalError):
    """The backend refused the model."""

    code = "model_load_failed"


class StorageFailed(InternalError):
    """A system call on the store failed (full disk, read-only, I/O error)."""

    code = "storage_failed"


def _leaves(root: type[HearthError]) -> dict[str, type[HearthError]]:
    table = {root.code: root}
    for sub in root.__subclasses__():
        table = {**_leaves(sub), **table}
    return table


_BY_CODE = _leaves(HearthError)


def from_wire(value: Mapping[str, Any]) -> HearthError:
    """The error that to_wire described; an unknown code becomes InternalError."""
    kind = _BY_CODE.get(str(value.get("code")), InternalError)
    details = value.get("details")
    return kind(str(value.get("message")), **(details if isinstance(details, dict) else {}))
