"""GET and POST /lora-adapters: the adapters of a model, and how strongly they act in the requests
that say nothing of them."""

from __future__ import annotations

from pydantic_core import from_json

from runner.errors import InvalidRequest
from runner.server.http_request import HttpRequest
from runner.server.leases import check_adapters
from runner.server.llamacpp.answers import AdapterState, Success
from runner.server.llamacpp.props import served_model
from runner.server.openai.wire import AdapterScales, scales_of
from runner.server.request_body import WireModel, validate
from runner.server.routes import route

MAX_LIST_BYTES = 16 * 1024


class _Scales(WireModel):
    """The body, a list, as what a request has."""

    lora: AdapterScales


@route("GET", "/lora-adapters", scope="inference")
async def list_adapters(http: HttpRequest) -> list[AdapterState]:
    """List the adapters of the model in ?model=, or of the only one."""
    served = await served_model(http)
    loaded = float(served.bundle.parameters.get("lora_scale", 1.0))
    given = http.services.models.adapter_scales.get(str(served.bundle.digest))
    return [
        AdapterState(
            id=number,
            path=file.path.name,
            scale=loaded if given is None else given.get(number, 0.0),
        )
        for number, file in enumerate(served.bundle.adapters)
    ]


@route("POST", "/lora-adapters", takes="application/json")
async def scale_adapters(http: HttpRequest) -> Success:
    """Set the scales of a model's adapters for all requests without lora; those not in the list get
    0; [] restores PARAMETER lora_scale. Until the daemon stops."""
    served = await served_model(http)
    body = await http.body(MAX_LIST_BYTES)
    try:
        given = scales_of(
            validate({"lora": from_json(bytes(body), cache_strings="keys")}, _Scales).lora
        )
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    check_adapters(served.name, len(served.bundle.adapters), given or {})
    if given is None:
        http.services.models.adapter_scales.pop(str(served.bundle.digest), None)
    else:
        http.services.models.adapter_scales[str(served.bundle.digest)] = given
    return Success(success=True)
