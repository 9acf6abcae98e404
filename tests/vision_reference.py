"""What llama.cpp itself makes of a prompt with pictures: mtmd_tokenize and mtmd_helper_eval_chunks
in a context of their own, one sequence, no cache. The tests of hearth's batching compare with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from llama_cpp import mtmd_cpp as mtmd
from numpy.typing import NDArray

from runner.backends.backend import DecodedAudio, DecodedImage
from runner.backends.host_sampling.library import start_library
from runner.backends.llamacpp.loader import load_model
from runner.backends.llamacpp.parameters import generation_parameters
from runner.types import LoadPlan

MARK = "<__media__>"
Step = tuple[int, NDArray[np.float64]]  # the likeliest token and log-probabilities of all


def greedy(
    plan: LoadPlan, text: str, pictures: Sequence[DecodedImage | DecodedAudio], count: int
) -> list[Step]:
    """The first count tokens after text, in which MARK stands for each picture or recording."""
    start_library()
    with ExitStack() as resources:
        model = load_model(plan, lambda share: None)
        resources.callback(native.llama_model_free, model)
        params = generation_parameters(plan, model)
        params.n_batch = params.n_ubatch = 512
        context = native.llama_init_from_model(model, params)
        resources.callback(native.llama_free, context)
        projector = _projector(plan, model)
        resources.callback(mtmd.mtmd_free, projector)
        chunks = _chunks(resources, projector, text, pictures)
        end = native.llama_pos(0)
        code = mtmd.mtmd_helper_eval_chunks(
            projector, context, chunks, 0, 0, 512, True, ctypes.byref(end)
        )
        assert code == 0, code
        return _generate(context, model, end.value, count)


def _projector(plan: LoadPlan, model: Any) -> Any:
    params = mtmd.mtmd_context_params_default()
    params.use_gpu = params.warmup = params.print_timings = False
    params.n_threads = 1
    assert plan.projector is not None
    return mtmd.mtmd_init_from_file(plan.projector.encode(), model, params)


def _chunks(
    resources: ExitStack,
    projector: Any,
    text: str,
    pictures: Sequence[DecodedImage | DecodedAudio],
) -> Any:
    bitmaps = (ctypes.c_void_p * len(pictures))()
    for at, picture in enumerate(pictures):
        if isinstance(picture, DecodedImage):
            pixels = (ctypes.c_uint8 * len(picture.rgb)).from_buffer_copy(picture.rgb)
            bitmaps[at] = mtmd.mtmd_bitmap_init(picture.width, picture.height, pixels)
        else:
            floats = [sample / 32768 for sample in picture.samples.tolist()]
            samples = (ctypes.c_float * len(floats))(*floats)
            bitmaps[at] = mtmd.mtmd_bitmap_init_from_audio(len(floats), samples)
        resources.callback(mtmd.mtmd_bitmap_free, bitmaps[at])
    chunks = mtmd.mtmd_input_chunks_init()
    resources.callback(mtmd.mtmd_input_chunks_free, chunks)
    data = text.encode()
    given = mtmd.mtmd_input_text(data, len(data), True, True)
    assert mtmd.mtmd_tokenize(projector, chunks, ctypes.byref(given), bitmaps, len(pictures)) == 0
    return chunks


def _generate(context: Any, model: Any, position: int, count: int) -> list[Step]:
    size = native.llama_vocab_n_tokens(native.llama_model_get_vocab(model))
    steps: list[Step] = []
    while True:
        logits = np.ctypeslib.as_array(native.llama_get_logits_ith(context, -1), (size,))
        values = logits.astype(np.float64)
        values -= values.max() + np.log(np.exp(values - values.max()).sum())
        steps.append((int(values.argmax()), values))
        if len(steps) == count:
            return steps
        batch = native.llama_batch_init(1, 0, 1)
        batch.n_tokens = 1
        batch.token[0], batch.pos[0], batch.logits[0] = steps[-1][0], position, 1
        batch.n_seq_id[0], batch.seq_id[0][0] = 1, 0
        assert native.llama_decode(context, batch) == 0
        native.llama_batch_free(batch)
        position += 1
