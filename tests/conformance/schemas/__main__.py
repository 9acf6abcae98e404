"""Structured output on other people's schemas: python -m tests.conformance.schemas [CORPUS...]

For each schema: does it compile, is a text of every valid value allowed, token by token, with the
vocabularies of ember and of the published models that are there, is every invalid one refused, and
how long do the masks take. Writes build/schemas/CORPUS.json, each schema by itself, and the
table of docs/conformance.md. A run of the same commit goes on where it was stopped. Schemas that
refer to documents outside are told apart: nobody can judge by them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import llama_cpp

from runner.backends.backend import Tokenizer
from runner.backends.host_sampling.tokenizer import LlamaCppTokenizer
from runner.errors import CapacityError, InvalidRequest
from runner.types import Grammar
from tests.conformance.results import KEPT_SCHEMAS, head
from tests.conformance.schemas.corpora import CORPORA, Case, cases
from tests.conformance.schemas.instances import instances
from tests.conformance.schemas.judged import Judge, all_allowed, byte_grammars, grammars_of, ways
from tests.conformance.sources import REPOSITORY

MODELS = {
    "ember": REPOSITORY / "registry" / "builtin" / "ember" / "ember.gguf",
    "SmolLM2": Path.home() / ".cache/hearth-models/SmolLM2-135M-Instruct.Q4_1.gguf",
    "Qwen2.5": Path.home() / ".cache/hearth-models/qwen2.5-coder-0.5b-instruct.gguf",
}
FOLDER = REPOSITORY / "build" / "schemas"
_OUTSIDE = (
    "which is not in the schema",
    "there is no ",
    "a schema must be an object",
    "leads to itself",
)


@dataclass
class Result:
    """Of one schema. refused: why it is not taken. wrong: values that were judged wrongly."""

    name: str
    refused: str | None = None
    outside: bool = False
    unknown: bool = False  # jsonschema cannot judge, or no value was found
    valid: int = 0
    invalid: int = 0
    valid_refused: list[Any] = field(default_factory=list)
    invalid_allowed: list[Any] = field(default_factory=list)
    compile_ms: float = 0.0
    mask_ms: list[float] = field(default_factory=list)


class Suite:
    """The vocabularies that a run is judged with."""

    def __init__(self, names: Sequence[str], wanted: str | None, every: int) -> None:
        """wanted: only schemas with this in their names. every: one schema in so many."""
        self._wanted = wanted
        self._every = every
        self._bytes = byte_grammars()
        found = [_tokenizer(MODELS[name]) for name in names if MODELS[name].exists()]
        self._vocabularies = [(each, _end_of(each), grammars_of(each)) for each in found]

    def run(self, corpus: str, kept: Path) -> list[Result]:
        """The results of a corpus. Each is kept as it comes, and not judged again."""
        lines = kept.read_text().splitlines() if kept.exists() else []
        known = {one["number"]: Result(**one["result"]) for one in map(json.loads, lines)}
        results = []
        for number, case in enumerate(cases(corpus)):
            if number % self._every or (self._wanted or "") not in case.name:
                continue
            if number not in known:
                try:
                    known[number] = self._judged(case)
                except CapacityError:  # of a busy machine
                    known[number] = Result(case.name, unknown=True)
                with kept.open("a") as file:
                    one = {"number": number, "result": asdict(known[number])}
                    file.write(json.dumps(one) + "\n")
            results.append(known[number])
        return results

    def _judged(self, case: Case) -> Result:
        result = Result(case.name)
        valid, invalid = case.valid, case.invalid
        if valid is None or invalid is None:
            made = instances(case.schema, case.examples, case.name)
            if made is None or not made[0]:
                result.unknown = True
            valid, invalid = made or ([], [])
        result.valid, result.invalid = len(valid), len(invalid)
        if not valid:  # nothing can match: refusing it is right
            result.unknown = result.unknown or not invalid
        began_s = time.process_time()
        try:
            judge = Judge(case.schema, self._bytes)
        except InvalidRequest as error:
            result.refused = error.message
            result.outside = any(reason in error.message for reason in _OUTSIDE)
            return result
        result.compile_ms = (time.process_time() - began_s) * 1e3
        for value in valid:
            written = judge.allowed(value)
            try:
                allowed = written is not None and self._as_tokens(case, written[0], result)
            except InvalidRequest as error:  # its time limit is near what it takes
                result.refused = error.message
                return result
            if not allowed:
                result.valid_refused.append(value)
        result.invalid_allowed = [value for value in invalid if judge.allowed(value) is not None]
        return result

    def _as_tokens(self, case: Case, written: Any, result: Result) -> bool:
        grammar = Grammar("json_schema", json.dumps(case.schema), "$")
        for tokenizer, end, grammars in self._vocabularies:
            for tokens in ways(written, tokenizer):
                took: list[float] = []
                if not all_allowed(grammars.matcher(grammar), tokens, end, took):
                    return False
                result.mask_ms += [round(one * 1e3, 4) for one in took]
        return True


def _tokenizer(file: Path) -> Tokenizer:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(file).encode(), params)
    return LlamaCppTokenizer(llama_cpp.llama_model_get_vocab(model))


def _end_of(tokenizer: Tokenizer) -> int:
    return next(one for one in range(tokenizer.vocabulary) if tokenizer.is_end(one))


def right(result: Result) -> bool:
    """Whether a schema compiles, and its values are judged as they should be. One that nothing can
    match is refused rightly."""
    if result.refused is not None:
        return result.valid == 0 and "nothing can match" in result.refused
    return not result.valid_refused and not result.invalid_allowed


def feature(reason: str) -> str:
    """A refusal without its place."""
    named = re.search(r"`[^`]+`[^:]*$|: (.*)$", reason)
    return re.sub(r"https?:\S+|\d+", "…", named[0].lstrip(": ") if named else reason)[:100]


def _summary(results: list[Result]) -> dict[str, Any]:
    judged = [one for one in results if not one.outside and not one.unknown]
    masks = sorted(took for one in results for took in one.mask_ms)
    compiled = sorted(one.compile_ms for one in judged if one.refused is None)
    refused = Counter(feature(one.refused) for one in judged if one.refused and not right(one))

    def at(values: list[float], share: float) -> float:
        return round(values[min(int(len(values) * share), len(values) - 1)], 3) if values else 0.0

    return {
        "schemas": len(results),
        "aside": len(results) - len(judged),
        "judged": len(judged),
        "compiled": len(compiled),
        "right": sum(map(right, judged)),
        "valid": sum(one.valid for one in judged if one.refused is None),
        "invalid": sum(one.invalid for one in judged if one.refused is None),
        "valid_refused": sum(len(one.valid_refused) for one in judged),
        "invalid_allowed": sum(len(one.invalid_allowed) for one in judged),
        "mask_ms": [at(masks, share) for share in (0.5, 0.99, 1.0)],
        "compile_ms": [at(compiled, share) for share in (0.5, 0.99)],
        "masks": len(masks),
        "refused": dict(refused.most_common()),
    }


def main() -> int:
    """1 where a valid value was refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.schemas")
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", choices=[*CORPORA, []])
    parser.add_argument("--models", default=",".join(MODELS), help="vocabularies, by commas")
    parser.add_argument("--only", help="schemas with this in their names; nothing is kept")
    parser.add_argument("--every", type=int, default=1, help="take one schema in so many")
    given = parser.parse_args()
    suite = Suite([one for one in given.models.split(",") if one], given.only, given.every)
    summaries = {}
    for corpus in given.corpora or list(CORPORA):
        FOLDER.mkdir(parents=True, exist_ok=True)
        commit = head()
        lines = FOLDER / f"{corpus}-{given.models}-{commit}.jsonl"
        if commit.endswith("-dirty"):
            lines.unlink(missing_ok=True)
        results = suite.run(corpus, lines)
        kept = [{**asdict(one), "mask_ms": max(one.mask_ms, default=0)} for one in results]
        (FOLDER / f"{corpus}.json").write_text(json.dumps(kept, indent=1))
        summaries[corpus] = {**_summary(results), "commit": commit}
        print(corpus, json.dumps(summaries[corpus], indent=1))
        if given.only is None:
            known = json.loads(KEPT_SCHEMAS.read_text()) if KEPT_SCHEMAS.exists() else {}
            KEPT_SCHEMAS.write_text(json.dumps({**known, **summaries}, indent=1) + "\n")
    return int(any(one["valid_refused"] for one in summaries.values()))


if __name__ == "__main__":
    sys.exit(main())
