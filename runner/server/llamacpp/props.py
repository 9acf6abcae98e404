"""GET /props and /slots: the model that is served, and what runs on it.

Neither loads a model. Slots are the requests that a model answers at once: they share one cache
here, and a number is not the place of a prompt.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from runner.library.models import Bundle
from runner.models.capabilities import model_capabilities, template_of
from runner.models.load_request import load_request
from runner.models.memory_plan import DEFAULT_CONTEXT
from runner.models.options import check_options, generation_options
from runner.models.resident import Resident
from runner.server.build_info import build_info
from runner.server.default_model import only_model
from runner.server.errors import HttpError
from runner.server.http_request import HttpRequest
from runner.server.llamacpp.answers import PropsResponse, SlotState
from runner.server.llamacpp.settings import sampling_settings
from runner.server.query import query_params
from runner.server.routes import route


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with the numbers of its slots."""

    name: str
    bundle: Bundle
    resident: Resident | None
    slots: int
    context: int


@route("GET", "/props", scope="inference")
async def props(http: HttpRequest) -> PropsResponse:
    """Properties of the model in ?model=, or of the only one; with several models, what they
    share."""
    services, name = http.services, _asked(http, "model")
    installed = [stored for stored in services.library.models() if stored.fault is None]
    if not name and not services.settings.default_model and len(installed) != 1:
        limit = services.settings.max_loaded_models
        return PropsResponse(
            role="router",
            max_instances=limit or 0,
            models_autoload=services.settings.autoload,
            build_info=build_info(),
            default_generation_settings={"params": {}, "n_ctx": 0},
            total_slots=services.settings.num_parallel,
            is_sleeping=not services.models.residents,
        )
    return _props(await served_model(http))


@route("GET", "/slots", scope="inference")
async def slots(http: HttpRequest) -> list[SlotState]:
    """List the slots of a model; with ?fail_on_no_slot=1 an error if none is free."""
    served = await served_model(http)
    busy = 0
    if served.resident is not None and served.resident.load.loaded:
        stats = await served.resident.load.worker.stats()
        busy = min(stats.running, served.slots)
    if busy == served.slots and _asked(http, "fail_on_no_slot"):
        raise HttpError(503, "no_slot_available", "no slot available")
    return [
        SlotState(
            id=number,
            n_ctx=served.context,
            speculative=served.bundle.draft is not None,
            is_processing=number < busy,
        )
        for number in range(served.slots)
    ]


async def served_model(http: HttpRequest) -> ServedModel:
    """The model that ?model= names, that of the settings, or the only one. Raises as finding a
    model does, InvalidRequest where none is meant."""
    services = http.services
    stored = services.library.find(asked_model(http))
    key = str(stored.digest)
    resident = next((each for each in services.models.residents if each.key == key), None)
    bundle = (
        await asyncio.to_thread(services.library.read, stored)
        if resident is None
        else resident.bundle
    )
    request = load_request(check_options(bundle.parameters), {}, services.settings)
    trained = bundle.header.context_length or DEFAULT_CONTEXT
    context = min(request.num_ctx or DEFAULT_CONTEXT, trained)
    return ServedModel(stored.name.short, bundle, resident, request.num_parallel, context)


def asked_model(http: HttpRequest) -> str:
    """The model that ?model= names, that of the settings, or the only one. Raises InvalidRequest
    where none is meant."""
    services = http.services
    return _asked(http, "model") or services.settings.default_model or only_model(services)


def _props(served: ServedModel) -> PropsResponse:
    options = generation_options(check_options(served.bundle.parameters), {})
    limit = -1 if options.max_tokens is None else options.max_tokens
    params = {**sampling_settings(options.sampling), "n_predict": limit, "max_tokens": limit}
    capabilities = model_capabilities(served.bundle)
    return PropsResponse(
        role="model",
        default_generation_settings={"params": params, "n_ctx": served.context},
        total_slots=served.slots,
        model_alias=served.name,
        model_path=f"{served.name}.gguf",
        modalities={"vision": capabilities.vision, "audio": capabilities.audio, "video": False},
        chat_template=template_of(served.bundle) or "",
        chat_template_caps={
            "supports_tools": capabilities.tools,
            "supports_tool_calls": capabilities.tools,
        },
        build_info=build_info(),
        is_sleeping=served.resident is None,
        endpoint_slots=True,
        endpoint_props=False,
        endpoint_metrics=True,
    )


def _asked(http: HttpRequest, name: str) -> str | None:
    return query_params(http.scope["query_string"], 20).get(name)
