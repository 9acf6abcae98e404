"""The other side of the comparison: run by the Python of an environment that has transformers.

Reads a job as JSON from stdin and prints tokens a second of generate and of continuous batching.
Imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import transformers


def wait(device: str) -> None:
    """Until all that was launched is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def model_of(job: dict[str, Any]) -> Any:
    """A model of the job's config with random weights."""
    values = {key: value for key, value in job["config"].items() if key != "dtype"}
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(job["device"]):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return model.eval()


def generate(model: Any, job: dict[str, Any]) -> float:
    """All requests as one batch, by model.generate."""
    count, size = job["requests"], job["prompt"]
    tokens = torch.arange(3, 3 + count)[:, None].repeat(1, size).to(job["device"])
    settings = {"max_new_tokens": job["tokens"], "min_new_tokens": job["tokens"], "do_sample": True}
    mask = torch.ones_like(tokens)
    model.generate(tokens[:, :4], attention_mask=mask[:, :4], max_new_tokens=2, pad_token_id=0)
    wait(job["device"])
    start_s = time.perf_counter()
    with torch.inference_mode():
        model.generate(tokens, attention_mask=mask, pad_token_id=0, **settings)
    wait(job["device"])
    return float(count * job["tokens"] / (time.perf_counter() - start_s))


def batching(model: Any, job: dict[str, Any]) -> float:
    """All requests at once, by transformers' continuous batching."""
    inputs = [[3 + at] * job["prompt"] for at in range(job["requests"])]
    settings = transformers.GenerationConfig(
        max_new_tokens=job["tokens"], do_sample=True, eos_token_id=-1, pad_token_id=0
    )
    start_s = time.perf_counter()
    found = model.generate_batch(inputs=inputs, generation_config=settings, progress_bar=False)
    taken_s = time.perf_counter() - start_s
    tokens = sum(len(each.generated_tokens) for each in found.values())
    if not tokens:
        raise RuntimeError("it generated nothing")
    return float(tokens / taken_s)


def main() -> None:
    """The job on stdin, the rates on stdout."""
    job = json.load(sys.stdin)
    model = model_of(job)
    found: dict[str, Any] = {}
    for name, measured in (("generate", generate), ("batching", batching)):
        try:
            found[name] = measured(model, job)
        except Exception as error:
            found[f"{name}_error"] = f"failed: {type(error).__name__}: {error}"[:200]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
