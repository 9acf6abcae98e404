"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them.

An adapter is an installed model, which the first request for it brings into memory too; these do
so before, and let it leave. One that lies in the folder HEARTH_ADAPTER_PATH is installed first.
"""

from __future__ import annotations

from pydantic import Field

from modelfile.description import Description
from runner.errors import Conflict, InvalidRequest
from runner.library.adapters import parents, take_adapter
from runner.library.create import CreateSources, create_model
from runner.library.lookup import parse_name
from runner.library.progress import Progress
from runner.library.transfers import Reach
from runner.server.answers import StatusResponse
from runner.server.caller import current_caller
from runner.server.default_model import only_model
from runner.server.http_request import HttpRequest
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.server.services import Services


class LoadAdapterRequest(WireModel):
    """An adapter. lora_path: where it lies below HEARTH_ADAPTER_PATH, a GGUF file or the folder
    that PEFT has written; without it lora_name is installed. load_inplace: it takes the place of
    the one that has its name. base_model_name: the model that it is for, by default the only
    one."""

    lora_name: str = Field(min_length=1)
    lora_path: str | None = None
    base_model_name: str | None = None
    load_inplace: bool = False


class UnloadAdapterRequest(WireModel):
    """The name of an adapter; lora_int_id has no effect."""

    lora_name: str = Field(min_length=1)
    lora_int_id: int | None = None


@route("POST", "/v1/load_lora_adapter")
async def load_lora_adapter(http: HttpRequest, body: LoadAdapterRequest) -> StatusResponse:
    """Load a LoRA adapter into the worker of its model."""
    services, name = http.services, parse_name(body.lora_name, "lora_name")
    async with http.cancelled_on_disconnect():
        if body.lora_path:
            await _install(services, body)
        _check_adapter(services, body.lora_name)
        async with services.models.lease(body.lora_name):
            pass
    return {"status": f"Success: LoRA adapter '{name.short}' added successfully."}


@route("POST", "/v1/unload_lora_adapter")
async def unload_lora_adapter(http: HttpRequest, body: UnloadAdapterRequest) -> StatusResponse:
    """Unload a LoRA adapter as soon as no request uses it. It stays installed."""
    services, name = http.services, parse_name(body.lora_name, "lora_name")
    _check_adapter(services, body.lora_name)
    if not await services.models.unload(body.lora_name):
        raise Conflict(f"the adapter {name.short} is not loaded", model=name.short)
    return {"status": f"Success: LoRA adapter '{name.short}' removed successfully."}


def _check_adapter(services: Services, name: str) -> None:
    """Raises ModelNotFound, InvalidRequest for a model without adapters."""
    if not services.library.find(name).manifest.has_adapters:
        raise InvalidRequest(f"{name} is a model without LoRA adapters", param="lora_name")


async def _install(services: Services, body: LoadAdapterRequest) -> None:
    """Make a model of the adapter. Raises Conflict where there is one of its name."""
    library, name = services.library, parse_name(body.lora_name, "lora_name")
    base = body.base_model_name or services.settings.default_model or only_model(services)
    found = library.find(base)
    models = library.models()
    taken = next((each for each in models if each.name.folded == name.folded), None)
    if taken is not None:
        whose = parents(models).get(taken.name)
        if whose is None or whose.digest != found.digest:
            raise Conflict(f"{name.short} is another model, not an adapter of {base}")
        if not body.load_inplace:
            raise Conflict(
                f"the LoRA adapter {name.short} is installed; set load_inplace to replace it, or"
                " leave lora_path out"
            )
    folder = services.settings.adapter_path
    files = await take_adapter(library.store, folder, body.lora_path or "")
    sources = CreateSources(
        from_model=base, adapters={file: str(digest) for file, digest in files.items()}
    )
    reach = Reach(private=current_caller().trusted)
    await create_model(library, Description(name), sources, reach, _untold)


async def _untold(_progress: Progress) -> None:
    """The answer comes when all is done."""
