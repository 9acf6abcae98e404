"""GET and POST /lora-adapters: the adapters of a model, and how strongly they act."""

from __future__ import annotations

from runner.server.http_request import HttpRequest
from runner.server.llamacpp.answers import AdapterState
from runner.server.llamacpp.props import served_model
from runner.server.routes import route


@route("GET", "/lora-adapters", scope="inference")
async def list_adapters(http: HttpRequest) -> list[AdapterState]:
    """The adapters of the model that ?model= names, or of the only one."""
    served = await served_model(http)
    scale = float(served.bundle.parameters.get("lora_scale", 1.0))
    return [
        AdapterState(id=number, path=file.path.name, scale=scale)
        for number, file in enumerate(served.bundle.adapters)
    ]
