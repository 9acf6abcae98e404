"""A health check of the installed backend: a few tokens from a real model file."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from runner.backends.llamacpp.kernels import register_kernels
from runner.errors import HearthError
from runner.types import GenerateRequest, LoadPlan, Message, SamplingParams
from runner.worker.loader import load

_CONTEXT = 512


def smoke(path: str, tokens: int) -> int:
    """Generate greedily from the GGUF file at path and print {"text", "tokens", "tokens_per_s",
    "kernels" (whether hearth's take part)} as JSON. Returns the exit code; a broken native build
    ends the process by a signal."""
    try:
        print(json.dumps(_generate(path, tokens)))
    except HearthError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


def _generate(path: str, tokens: int) -> dict[str, Any]:
    plan = LoadPlan(path, "llamacpp", _CONTEXT, _CONTEXT, max_sequences=2)
    loaded = load(plan, lambda _share: None)
    request = GenerateRequest(
        "smoke",
        SamplingParams(temperature=0.0),
        messages=(Message("user", "What can you do?"),),
        max_tokens=tokens,
        ignore_eos=True,
    )
    engine = loaded.engine
    engine.submit(request, loaded.prompts.encode(request))
    text, count, began_s = "", 0, time.perf_counter()
    while engine.busy:
        outcome = engine.step()
        for _, error in outcome.errors:
            raise error
        text += "".join(delta.text for _, delta in outcome.deltas)
        count += sum(delta.token_count for _, delta in outcome.deltas)
    duration_s = time.perf_counter() - began_s
    speed = round(count / duration_s, 1)
    return {"text": text, "tokens": count, "tokens_per_s": speed, "kernels": register_kernels()}
