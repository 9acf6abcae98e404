"""A worker that takes the devices of fake_gpus.cpp for GPUs.

python fake_gpus.py LIBRARY GPUS --load PLAN prints what llama.cpp put where and what the model
says, as JSON; other arguments are those of runner.worker. Run in a process of its own: what is
registered in llama.cpp stays.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import sys
from collections import Counter
from typing import Any

_BUFFER = re.compile(r"(\S+) +(model|KV|compute) buffer size = +([\d.]+) MiB")
_LAYER = re.compile(r"layer +\d+ assigned to device (\w+)")


def register(library: str, gpus: str) -> None:
    """The devices of gpus, as fake_gpus.cpp reads them, are there from here on."""
    os.environ["FAKE_GPUS"] = gpus
    from llama_cpp import llama_cpp as native

    load = native._lib.ggml_backend_load
    load.restype, load.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    assert load(os.fsencode(library))


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


def loaded(plan: str) -> dict[str, Any]:
    """layers: how many each device has; buffers: MiB of each by what they are for; text: greedily
    generated."""
    from runner.types import GenerateRequest, LoadPlan, Message, SamplingParams
    from runner.worker.json_codec import from_json
    from runner.worker.loader import load

    lines, logger = _Lines(), logging.getLogger("runner.backends.llamacpp.native")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(lines)
    model = load(from_json(LoadPlan, json.loads(plan)), lambda _share: None)
    request = GenerateRequest(
        "x",
        SamplingParams(temperature=0.0),
        messages=(Message("user", "What can you do?"),),
        max_tokens=12,
        ignore_eos=True,
    )
    model.engine.submit(request, model.prompts.encode(request))
    text = ""
    while model.engine.busy:
        outcome = model.engine.step()
        assert not outcome.errors
        text += "".join(delta.text for _, delta in outcome.deltas)
    layers = Counter(found[1] for found in map(_LAYER.search, lines.found) if found)
    buffers = [found.groups() for found in map(_BUFFER.search, lines.found) if found]
    sizes = [(device, kind, float(size)) for device, kind, size in buffers]
    return {"layers": layers, "buffers": sizes, "text": text}


if __name__ == "__main__":
    register(*sys.argv[1:3])
    arguments = sys.argv[3:]
    if arguments[0] == "--load":
        print(json.dumps(loaded(arguments[1])))
    else:
        from runner.worker.__main__ import main

        sys.argv[1:] = arguments
        sys.exit(main())
