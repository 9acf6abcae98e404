"""lm-evaluation-harness, unmodified, against a daemon: three small tasks whose data is beside this
file. Nothing is fetched; the tokenizer is the daemon's, by /tokenizer_info and /tokenize.

python -m tests.conformance.lm_eval LM_EVAL MODEL [--llama-server PATH]: LM_EVAL is the program of
an environment with requirements.txt, MODEL a GGUF file.

What hearth says of the log-likelihoods is compared with what llama.cpp computes of the same tokens
here: llama-server ignores echo. The texts that are generated are compared with those
of llama-server, where one is named.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from llama_cpp import Llama

from tests.benchmarks import servers
from tests.real import models

TASKS = Path(__file__).with_name("tasks")
SCORED, GENERATED = ("hearth_choices", "hearth_texts"), "hearth_sums"
CONTEXT_TOKENS = 2048
PERPLEXITY_TOLERANCE = 0.005
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
Samples = Mapping[str, Sequence[Mapping[str, Any]]]


def main() -> int:
    """Run and compare; 1 where they differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.lm_eval")
    parser.add_argument("lm_eval", type=Path)
    parser.add_argument("model", type=models.given, help="of tests.real.models, or a path")
    parser.add_argument("--llama-server", type=Path)
    given = parser.parse_args()
    program = given.lm_eval.absolute()
    with tempfile.TemporaryDirectory(prefix="hearth-lm-eval-") as scratch:
        folder = Path(scratch)
        with _hearth(given.model, folder) as url:
            found, samples = _run(program, url, (*SCORED, GENERATED), folder / "hearth")
        same = _compare(found, samples, given.model)
        if given.llama_server is not None:
            command = servers.llama_server(given.llama_server, given.model, servers.free_port())
            with servers.running(command, folder):
                url = f"http://127.0.0.1:{command.port}"
                asked = {"prompt": "a", "echo": True, "logprobs": 1, "max_tokens": 1}
                refused = httpx.post(f"{url}/v1/completions", json=asked, trust_env=False)
                print(f"llama-server's answer to echo: {refused.status_code} {refused.text[:120]}")
                other, texts = _run(
                    program, url, (GENERATED,), folder / "control", "tokenizer_backend=None"
                )
            same &= _compare_texts(found, samples, other, texts)
    return 0 if same else 1


@contextmanager
def _hearth(model: Path, folder: Path) -> Iterator[str]:
    """The address of a daemon that has loaded the model, and no other."""
    home, port = folder / "home", servers.free_port()
    home.mkdir()
    url = f"http://127.0.0.1:{port}"
    with servers.running(servers.hearth(home, port), folder):
        servers.install_model(model, home, port)
        body = {"model": servers.MODEL_NAME}
        httpx.post(f"{url}/api/generate", json=body, timeout=600, trust_env=False)
        yield url


def _run(
    program: Path, url: str, tasks: Sequence[str], out: Path, *more: str
) -> tuple[Mapping[str, Any], Samples]:
    """The scores of the tasks, and their samples in the order of the data."""
    model = {"model": servers.MODEL_NAME, "base_url": f"{url}/v1/completions"}
    model |= {"num_concurrent": "8", "max_retries": "1", "max_length": str(CONTEXT_TOKENS)}
    arguments = [*(f"{name}={value}" for name, value in model.items()), *more]
    command = [str(program), "run", "--model", "local-completions", "--model_args"]
    command += [",".join(arguments), "--tasks", ",".join(tasks), "--include_path", "."]
    command += ["--output_path", str(out), "--log_samples"]
    environment = {**os.environ, **OFFLINE, "HF_HOME": str(out / "cache"), "NO_PROXY": "*"}
    subprocess.run(command, cwd=TASKS, env=environment, check=True, stdout=subprocess.DEVNULL)
    (results,) = out.glob("*/results_*.json")
    samples = {}
    for task in tasks:
        (path,) = out.glob(f"*/samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        samples[task] = sorted(lines, key=lambda each: each["doc_id"])
    return json.loads(results.read_text())["results"], samples


def _compare(found: Mapping[str, Any], samples: Samples, model: Path) -> bool:
    """Print hearth's scores beside those of llama.cpp's log-likelihoods, which themselves differ
    with how many tokens are computed at once: whether a question was answered otherwise that both
    ways of llama.cpp decide by more than that."""
    ways = [
        Llama(
            str(model),
            n_ctx=CONTEXT_TOKENS,
            n_batch=size,
            n_threads=1,
            logits_all=True,
            verbose=False,
        )
        for size in (512, 1)
    ]
    choices, texts = (samples[task] for task in SCORED)
    values = np.array([_log_likelihoods(ways, each) for each in choices])  # question, choice, way
    right = values[:, :, 1].argmax(axis=1) == [int(each["target"]) for each in choices]
    apart = np.abs(values - values[:, :, 1:2]).max(axis=(0, 1))
    two = np.sort(values[:, :, 1:], axis=1)[:, -2:]
    decided = (two[:, 1] - two[:, 0]).min(axis=1) > apart[2]
    best = values.argmax(axis=1)
    wrong = int((decided & (best[:, 0] != best[:, 1])).sum())
    own = found[SCORED[0]]
    print(f"{SCORED[0]}: acc {own['acc,none']:.4f}, llama.cpp {right.mean():.4f}; acc_norm"
          f" {own['acc_norm,none']:.4f}. {values[:, :, 0].size} log-likelihoods, at most"
          f" {apart[0]:.3f} apart (llama.cpp's own ways {apart[2]:.3f}); {wrong} of"
          f" {decided.sum()} decided questions answered otherwise")  # fmt: skip
    total = sum(_rolling(ways[0], each["doc"]["text"]) for each in texts)
    own_total = sum(float(each["resps"][0][0]) for each in texts)
    size = sum(len(each["doc"]["text"].encode()) for each in texts)
    own_ppl, direct_ppl = found[SCORED[1]]["byte_perplexity,none"], math.exp(-total / size)
    print(f"{SCORED[1]}: byte perplexity {own_ppl:.5f}, llama.cpp {direct_ppl:.5f};"
          f" log-likelihood {own_total:.2f}, llama.cpp {total:.2f}")  # fmt: skip
    for each in ways:
        each.close()
    return not wrong and abs(own_ppl / direct_ppl - 1) <= PERPLEXITY_TOLERANCE


def _log_likelihoods(ways: Sequence[Llama], sample: Mapping[str, Any]) -> list[list[float]]:
    """Of each choice of a question: hearth's, then those of llama.cpp's ways."""
    asked = [tuple(each.values()) for each in sample["arguments"].values()]
    own = [float(value) for ((value, _),) in sample["resps"]]
    return [
        [value, *(_continued(way, *given) for way in ways)]
        for value, given in zip(own, asked, strict=True)
    ]


def _continued(llama: Llama, context: str, rest: str) -> float:
    """The log-likelihood of rest after context."""
    blank = len(context) - len(context.rstrip())
    if blank:
        context, rest = context[:-blank], context[-blank:] + rest
    tokens, given = _tokens(llama, context + rest), _tokens(llama, context)
    return _log_likelihood(llama, tokens, len(given))


def _rolling(llama: Llama, text: str) -> float:
    """The log-likelihood of a text by itself, after the token that begins texts."""
    return _log_likelihood(llama, [llama.token_bos(), *_tokens(llama, text)], 1)


def _tokens(llama: Llama, text: str) -> list[int]:
    return list(llama.tokenize(text.encode(), add_bos=False, special=True))


def _log_likelihood(llama: Llama, tokens: Sequence[int], given: int) -> float:
    llama.reset()
    llama.eval(tokens)
    logits = np.asarray(llama.scores[given - 1 : len(tokens) - 1], np.float64)
    top = logits.max(axis=1, keepdims=True)
    normal = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
    rest = list(tokens[given:])
    chosen = logits[np.arange(len(rest)), rest]
    return float((chosen - normal).sum())


def _compare_texts(
    found: Mapping[str, Any], samples: Samples, other: Mapping[str, Any], texts: Samples
) -> bool:
    own, control = (each[GENERATED]["exact_match,first"] for each in (found, other))
    pairs = zip(samples[GENERATED], texts[GENERATED], strict=True)
    same = sum(one["resps"] == two["resps"] for one, two in pairs)
    print(f"{GENERATED}: exact_match {own:.4f}, llama-server {control:.4f};"
          f" {same} of {len(samples[GENERATED])} texts are the same")  # fmt: skip
    return bool(own == control)


if __name__ == "__main__":
    sys.exit(main())
