"""What llama.cpp makes of GGUF files: run as a process of its own, jobs as JSON on stdin.

A job: path, ids, positions, whether it embeds, adapters, and "kernels", whether hearth's compute
too. The answer: rows of numbers.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import llama_cpp as llama
import numpy as np

from runner.backends.llamacpp.loader import apply_adapters, with_kernels
from runner.types import LoadPlan

CONTEXT = 64


def main() -> None:
    """Answer all jobs, in order."""
    jobs = json.load(sys.stdin)
    llama.llama_backend_init()
    print(json.dumps([rows(job) for job in jobs]))


def rows(job: dict[str, Any]) -> list[list[float]]:
    """The logits, or the hidden states, at the positions of the job."""
    with contextlib.ExitStack() as cleanup:
        model = llama.llama_model_load_from_file(job["path"].encode(), _model_parameters())
        assert model, job["path"]
        cleanup.callback(llama.llama_model_free, model)
        plan = _plan(job)
        context = llama.llama_init_from_model(model, _context_parameters(job["embeds"]))
        assert context, job["path"]
        cleanup.callback(llama.llama_free, context)
        cleanup.enter_context(contextlib.closing(apply_adapters(plan, model, context, ())))
        _decode(context, job)
        if job["embeds"]:
            width = llama.llama_model_n_embd(model)
            read = llama.llama_get_embeddings_ith
        else:
            width = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
            read = llama.llama_get_logits_ith
        return [
            np.ctypeslib.as_array(read(context, position), (width,)).tolist()
            for position in job["positions"]
        ]


def _plan(job: dict[str, Any]) -> LoadPlan:
    adapters = tuple((path, 1.0) for path in job.get("adapters", ()))
    kernels = job.get("kernels", False)
    plan = LoadPlan(
        *(job["path"], "llamacpp", CONTEXT, CONTEXT, 1), adapters=adapters, native_kernels=kernels
    )
    return with_kernels(plan)


def _decode(context: Any, job: dict[str, Any]) -> None:
    ids = job["ids"]
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token in enumerate(ids):
        batch.token[place], batch.pos[place] = token, place
        batch.n_seq_id[place], batch.logits[place] = 1, 1
        batch.seq_id[place][0] = 0
    run = llama.llama_encode if job["embeds"] else llama.llama_decode
    assert run(context, batch) == 0
    llama.llama_batch_free(batch)


def _model_parameters() -> Any:
    parameters = llama.llama_model_default_params()
    parameters.n_gpu_layers = 0
    return parameters


def _context_parameters(embeds: bool) -> Any:
    parameters = llama.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = CONTEXT
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.embeddings = embeds
    parameters.pooling_type = 0
    parameters.type_k = parameters.type_v = 0  # F32
    parameters.flash_attn_type = 0
    return parameters


if __name__ == "__main__":
    main()
