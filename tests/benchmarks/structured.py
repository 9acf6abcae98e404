"""What a grammar costs: python -m tests.benchmarks.structured MODEL --clients 8

Decodes with the engine in this process, without a grammar and with one, in turn, and prints the
median of the ratios, one line of JSON. Then the time to compile ten ordinary schemas for the
model's vocabulary, each for the first time. Targets: a ratio of 0.95 at 8 clients, 20 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from runner.backends.llamacpp import load
from runner.engine.engine import Engine
from runner.engine.grammar import Grammars
from runner.types import GenerateRequest, Grammar, LoadPlan, SamplingParams

PROMPT_TOKENS = 32
TARGET_RATIO, TARGET_COMPILE_MS = 0.95, 20.0

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
ENDLESS: dict[str, Any] = {
    "type": "array",
    "minItems": 10_000,
    "items": {
        "type": "object",
        "properties": {"name": {**TEXT, "maxLength": 24}, "size": NUMBER, "new": FLAG},
        "required": ["name", "size", "new"],
        "additionalProperties": False,
    },
}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


ORDINARY: tuple[dict[str, Any], ...] = (
    {"type": "object"},
    _object(answer=TEXT),
    _object(name={**TEXT, "maxLength": 40}, age={"type": "integer", "minimum": 0, "maximum": 130}),
    _object(**{name: {**TEXT, "format": name} for name in ("date", "uuid", "email")}),
    _object(code={**TEXT, "pattern": "^[A-Z]{3}-[0-9]{4}$"}, kind={"enum": ["a", "b", "c"]}),
    _object(**{f"field_{number}": TEXT for number in range(20)}),
    _object(steps={"type": "array", "items": _object(why=TEXT, result=NUMBER), "maxItems": 8}),
    {"$defs": {"node": {**_object(value=TEXT, next={"$ref": "#/$defs/node"}), "required": []}},
     "$ref": "#/$defs/node"},
    {"anyOf": [_object(kind={"const": word}, size=NUMBER, done=FLAG) for word in ("x", "y", "z")]},
    {"type": "object", "properties": {"a": TEXT, "b": NUMBER}, "additionalProperties": TEXT},
)  # fmt: skip


def main() -> int:
    """0 when both targets were met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.structured", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    began_s = time.perf_counter()
    plan = LoadPlan(given.model, "llamacpp", 2048, 8192, given.clients * 2)
    loaded = load(plan, lambda share: None)
    engine = Engine(loaded.backend, loaded.tokenizer)
    loaded_s = time.perf_counter()
    grammars = Grammars(loaded.tokenizer)
    prepared_s = time.perf_counter()
    compiled_ms = [_compile_ms(grammars, schema) for schema in ORDINARY]
    rates = [_round(engine, grammars, given) for _ in range(given.rounds)]
    ratio = statistics.median(masked / free for free, masked in rates)
    result = {
        "load_s": loaded_s - began_s,
        "vocabulary_s": prepared_s - loaded_s,
        "compile_ms": [round(value, 1) for value in compiled_ms],
        "tokens_per_s": [[round(free, 1), round(masked, 1)] for free, masked in rates],
        "ratio": round(ratio, 3),
    }
    print(json.dumps(result))
    return int(ratio < TARGET_RATIO or max(compiled_ms) > TARGET_COMPILE_MS)


def _compile_ms(grammars: Grammars, schema: dict[str, Any]) -> float:
    began_s = time.perf_counter()
    grammars.matcher(Grammar("json_schema", json.dumps(schema))).bits()
    return (time.perf_counter() - began_s) * 1e3


def _round(engine: Engine, grammars: Grammars, given: argparse.Namespace) -> tuple[float, float]:
    return _rate(engine, None, given), _rate(engine, grammars, given)


def _rate(engine: Engine, grammars: Grammars | None, given: argparse.Namespace) -> float:
    """Tokens a second of all clients together, after the prompts."""
    schema = Grammar("json_schema", json.dumps(ENDLESS))
    for client in range(given.clients):
        sampling = SamplingParams(seed=client)
        request = GenerateRequest(f"{client}", sampling, max_tokens=given.tokens, ignore_eos=True)
        prompt = [1000 + client * 50 + at for at in range(PROMPT_TOKENS)]
        matcher = None if grammars is None else grammars.matcher(schema)
        engine.submit(request, prompt, None, matcher)
    while engine.scheduler.waiting or engine.scheduler.prefilling:
        engine.step()
    tokens, began_s = 0, time.perf_counter()
    while engine.busy:
        outcome = engine.step()
        if outcome.errors:
            raise SystemExit(f"a request failed: {outcome.errors[0][1]}")
        tokens += sum(delta.token_count for _, delta in outcome.deltas)
    return tokens / (time.perf_counter() - began_s)


if __name__ == "__main__":
    raise SystemExit(main())
