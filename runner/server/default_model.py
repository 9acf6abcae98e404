"""Which model a request is for that names none, as clients of a server of one model do.

Ollama's own paths are left alone: their clients look for the error of a missing model.
"""

from __future__ import annotations

from typing import Any

from runner.errors import InvalidRequest, ModelNotFound
from runner.library.adapters import parents
from runner.server.query import query_params
from runner.server.services import Services

_SHOWN = 10


def complete_model(
    services: Services, path: str, query_string: bytes, body: dict[str, Any]
) -> None:
    """Name the model in a body that leaves it out: the one of the settings, the only one that is
    installed, or the only one that is loaded. With one in the settings a model that is not
    installed stands for it too. Raises InvalidRequest where none can be meant, and for one that is
    not loaded where ?autoload= or the settings want no model to be."""
    if not may_leave_model_out(path):
        return
    default, asked = services.settings.default_model, body.get("model")
    if asked is None or asked == "":
        body["model"] = default or only_model(services)
    elif default and isinstance(asked, str) and not _is_installed(services, asked):
        body["model"] = default
    if not path.startswith("/models/") and not _autoloads(services, query_string):
        _require_loaded(services, body["model"])


def _autoloads(services: Services, query_string: bytes) -> bool:
    asked = query_params(query_string).get("autoload") if query_string else None
    return services.settings.autoload if asked is None else asked in ("1", "true")


def _require_loaded(services: Services, name: object) -> None:
    if isinstance(name, str):
        digest = str(services.library.find(name).digest)
        if all(resident.key != digest for resident in services.models.residents):
            raise InvalidRequest(
                f"model is not loaded: {name[:100]!r} is loaded by POST /models/load", param="model"
            )


def may_leave_model_out(path: str) -> bool:
    """Whether requests to this path may name no model."""
    return not path.startswith("/api/")


def only_model(services: Services) -> str:
    """The one that is installed, or loaded. Raises InvalidRequest where there are several."""
    models = services.library.models()
    adapted = parents(models)  # a model is the only one, however many add adapters to it
    installed = [
        stored.name.short
        for stored in models
        if stored.fault is None and stored.name not in adapted
    ]
    if len(installed) == 1:
        return installed[0]
    residents = (resident.bundle.name for resident in services.models.residents)
    loaded = [name.short for name in residents if name not in adapted]
    if len(loaded) == 1:
        return loaded[0]
    known = ", ".join(sorted(installed)[:_SHOWN]) or "none"
    raise InvalidRequest(
        f"model is missing: name one of those installed ({known}), or set HEARTH_DEFAULT_MODEL",
        param="model",
    )


def _is_installed(services: Services, name: str) -> bool:
    try:
        services.library.find(name)
    except (InvalidRequest, ModelNotFound):
        return False
    return True
