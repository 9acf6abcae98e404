"""What Anthropic and other servers of its API take and this one does not honour, each with what to
do instead. What says who pays, or who asks, changes nothing here: service_tier, metadata,
cache_control, user_profile_id, workspace_id."""

from __future__ import annotations

from typing import Final

from runner.server.refused_fields import Refusal, Refusals

_REMOTE = "it is only available on Anthropic's servers"
_VLLM = "it belongs to vLLM's own deployment"

COUNT_REFUSED: Final[Refusals] = {
    "speed": Refusal(_REMOTE, ("standard",)),
    "mm_payload": Refusal(_VLLM),
}

MESSAGES_REFUSED: Final[Refusals] = {
    **COUNT_REFUSED,
    "mcp_servers": Refusal(_REMOTE),
    "container": Refusal(_REMOTE),
    "compaction": Refusal("send a shorter conversation"),
    "diagnostics": Refusal(_REMOTE),
    "fallbacks": Refusal("another model is asked by another request", ("default",)),
    "fallback_credit_token": Refusal(_REMOTE),
    "billing_policy": Refusal("nothing is billed"),
    "inference_geo": Refusal("answers are made on this machine"),
    "thread": Refusal("send the whole conversation"),
    "output_format": Refusal("it is output_config.format here"),
    "watermarking": Refusal("PARAMETER watermark true in a Modelfile marks answers"),
    "return_mm_kwargs": Refusal(_VLLM),
    "kv_transfer_params": Refusal(_VLLM),
    "ec_transfer_params": Refusal(_VLLM),
    "vllm_xargs": Refusal(_VLLM),
}
