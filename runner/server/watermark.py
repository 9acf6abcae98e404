"""POST /v1/watermark/detect, hearth's own: whether a text was sampled with a watermark."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field
from typing_extensions import TypedDict

from modelfile.parameters import PARAMETERS
from runner.errors import InvalidRequest
from runner.models.options import check_options
from runner.server.http_request import HttpRequest
from runner.server.leases import leased
from runner.server.llamacpp.tokenize import check_size
from runner.server.request_body import WireModel
from runner.server.routes import route
from runner.turns import in_steps, mark_large
from runner.watermark import detect

MAX_TOKENS: Final = 1 << 16  # 0.3 s and 10 MiB
_GAMMA = "watermark_gamma"


class DetectRequest(WireModel):
    """POST /v1/watermark/detect: text, or tokens as an answer had them. model: the one that wrote
    it, or one of the same vocabulary. watermark_gamma: as it was written with; the model's own if
    it is left out."""

    model: str = Field(min_length=1)
    text: str | None = None
    tokens: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(None, max_length=MAX_TOKENS)
    watermark_gamma: float | None = None
    keep_alive: Any = None


class WatermarkDetection(TypedDict):
    """scored: pairs of tokens, each once; green: of them, of which chance has a share of
    watermark_gamma. z_score: standard deviations above that. p_value: how often a text without a
    watermark reaches it. is_watermarked: z_score is greater than 4."""

    object: str
    model: str
    tokens: int
    scored: int
    green: int
    watermark_gamma: float
    z_score: float
    p_value: float
    is_watermarked: bool


@route("POST", "/v1/watermark/detect", scope="inference")
async def detect_watermark(http: HttpRequest, body: DetectRequest) -> WatermarkDetection:
    """Look for a watermark: tokenize the text and count its green tokens. The model is loaded;
    nothing is generated."""
    if (body.text is None) == (body.tokens is None):
        raise InvalidRequest("send exactly one of text and tokens", param="text")
    check_size([body.text or ""], "text")
    asked = check_options({_GAMMA: body.watermark_gamma})
    async with leased(http, body.model, body.keep_alive) as lease:
        tokens = body.tokens or []
        if body.text is not None:
            tokens = await lease.worker.tokenize(body.text, add_special=False, parse_special=False)
            if len(tokens) > MAX_TOKENS:
                raise InvalidRequest(
                    f"the text has {len(tokens)} tokens; at most {MAX_TOKENS} are looked at at"
                    " once: send a part of it",
                    param="text",
                )
        gamma = {_GAMMA: PARAMETERS[_GAMMA].default, **lease.parameters, **asked}[_GAMMA]
        mark_large()  # however short: several in threads of their own would hold up the loop
        found = await in_steps(detect, tokens, gamma)
        return {
            "object": "watermark.detection",
            "model": lease.bundle.name.short,
            "tokens": len(tokens),
            "scored": found.scored,
            "green": found.green,
            "watermark_gamma": gamma,
            "z_score": found.z_score,
            "p_value": found.p_value,
            "is_watermarked": found.is_marked,
        }
