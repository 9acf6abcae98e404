"""Cases of the Berkeley Function Calling Leaderboard, and its own judgement of answers.

Run by the Python that has bfcl-eval, and nothing of ours:

oracle.py cases SEED: all single-turn cases as lines of JSON, in an order that has each category as
often as the others for as long as it lasts, so that the first ones are a fair choice.

oracle.py judge: reads lines {"id": ..., "calls": [[NAME, ARGUMENTS], ...]} and writes
{"valid": ..., "error": ...} for each.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, zip_longest
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

MODEL = "hearth"


def _without_handlers() -> None:
    """Take the place of the table of all models, for which all SDKs are imported. Names of
    functions with dots are offered with underscores, as OpenAI wants them."""
    module = ModuleType("bfcl_eval.constants.model_config")
    known = {MODEL: SimpleNamespace(underscore_to_dot=True)}
    module.MODEL_CONFIG_MAPPING = known  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def cases(seed: str) -> Iterator[dict[str, Any]]:
    """All cases, see the module."""
    from bfcl_eval.constants.category_mapping import SINGLE_TURN_CATEGORY
    from bfcl_eval.constants.enums import ModelStyle
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
    from bfcl_eval.model_handler.utils import convert_to_tool
    from bfcl_eval.utils import load_dataset_entry

    columns = []
    for category in SINGLE_TURN_CATEGORY:
        entries = load_dataset_entry(category)
        Random(f"{category} {seed}").shuffle(entries)
        columns.append([{"category": category, **entry} for entry in entries])
    for entry in filter(None, chain.from_iterable(zip_longest(*columns))):
        (messages,) = entry["question"]
        style = ModelStyle.OPENAI_COMPLETIONS
        tools = convert_to_tool(entry["function"], GORILLA_TO_OPENAPI, style)
        known = {"id": entry["id"], "category": entry["category"]}
        yield {**known, "messages": messages, "tools": tools}


class Judge:
    """The checks that bfcl_eval.eval_checker.eval_runner makes of one answer."""

    def __init__(self) -> None:
        from bfcl_eval.constants.category_mapping import SINGLE_TURN_CATEGORY
        from bfcl_eval.utils import (
            is_relevance_or_irrelevance,
            load_dataset_entry,
            load_ground_truth_entry,
        )

        self._cases: dict[str, tuple[str, dict[str, Any], Any]] = {}
        for category in SINGLE_TURN_CATEGORY:
            entries = load_dataset_entry(category, include_language_specific_hint=False)
            answers: list[Any] = [None] * len(entries)
            if not is_relevance_or_irrelevance(category):
                answers = [each["ground_truth"] for each in load_ground_truth_entry(category)]
            for entry, answer in zip(entries, answers, strict=True):
                self._cases[entry["id"]] = category, entry, answer

    def verdict(self, id_: str, calls: list[Any]) -> dict[str, Any]:
        """Whether an answer with these calls is right."""
        from bfcl_eval.constants.enums import Language
        from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
        from bfcl_eval.utils import is_empty_output, is_function_calling_format_output

        category, entry, answer = self._cases[id_]
        try:
            decoded = [{name: json.loads(arguments)} for name, arguments in calls]
        except ValueError as error:
            decoded, unreadable = [], str(error)
        else:
            unreadable = ""
        if answer is None:
            called = not is_empty_output(decoded)
            wanted = "irrelevance" not in category
            return {"valid": called == wanted, "error": "" if called == wanted else "relevance"}
        if unreadable or not is_function_calling_format_output(decoded):
            return {"valid": False, "error": unreadable or "wrong format"}
        language = {"simple_java": Language.JAVA, "simple_javascript": Language.JAVASCRIPT}
        found = ast_checker(
            entry["function"],
            decoded,
            answer,
            language.get(category, Language.PYTHON),
            category,
            MODEL,
        )
        return {"valid": found["valid"], "error": "" if found["valid"] else found["error_type"]}


def main() -> int:
    """See the module."""
    _without_handlers()
    with tempfile.TemporaryDirectory(prefix="bfcl-") as scratch:
        os.environ["BFCL_PROJECT_ROOT"] = scratch
        if sys.argv[1] == "cases":
            for case in cases(sys.argv[2]):
                print(json.dumps(case))
            return 0
        judge = Judge()
        for line in sys.stdin:
            given = json.loads(line)
            print(json.dumps(judge.verdict(given["id"], given["calls"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
