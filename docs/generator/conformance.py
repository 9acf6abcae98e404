"""What the suites of others came to: docs/data/conformance.json, and the tables that show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.generator.markdown import table

_FILE = Path(__file__).parents[1] / "data" / "conformance.json"
_SCHEMAS = _FILE.with_name("schemas.json")
SUITES = {
    "llama-server": ("llama-server's own tests", "`make llama-server-suite`"),
    "openai": ("the OpenAI SDK's own tests of the APIs that hearth has", "`make sdk-suites`"),
    "anthropic": ("the Anthropic SDK's own tests of the same kind", "`make sdk-suites`"),
    "open-responses": ("Open Responses by llm-comply, against the published schema", ""),
    "open-responses-restated": ("Open Responses' cases, rewritten as hearth's tests", ""),
    "ollama": ("[cases of Ollama's tests and clients](ollama.md)", ""),
    "fields": ("every known field of a request", ""),
    "vectors": ("SDKs, templates, conversion and formats, against others' definitions", ""),
    "clients": ("unmodified programs by others", "`make clients`"),
}


def tables() -> dict[str, str]:
    """The generated parts of conformance.md."""
    kept = json.loads(_FILE.read_text(encoding="utf-8"))
    shown = {suite: kept[suite] for suite in SUITES if suite in kept}
    corpora = json.loads(_SCHEMAS.read_text(encoding="utf-8"))
    return {
        "suites": _suites(kept),
        "exceptions": _exceptions(shown),
        "schemas": _schemas(corpora),
        "schema features": _features(corpora),
    }


def _suites(kept: dict[str, Any]) -> str:
    head = ["suite", "tests", "control", "hearth", "exceptions", "date", "commit"]
    rows = []
    for suite, (title, command) in SUITES.items():
        named = f"{title}, {command}" if command else title
        found = kept.get(suite)
        if found is None:
            rows.append([named, "not run", "", "", "", "", ""])
            continue
        control = "" if found["control"] is None else str(found["control"])
        counts = [str(found["tests"]), control, str(found["hearth"])]
        excepted = str(sum(found["excepted"].values()))
        rows.append([named, *counts, excepted, found["date"], found["commit"]])
    return table(head, rows)


def _exceptions(shown: dict[str, Any]) -> str:
    rows = [
        [suite, reason, str(count)]
        for suite, found in shown.items()
        for reason, count in found["excepted"].items()
        if count
    ]
    return table(["suite", "reason", "tests"], rows)


def _schemas(corpora: dict[str, Any]) -> str:
    head = ["corpus", "schemas", "set aside", "judged", "accepted", "correct", "share",
            "valid refused", "invalid allowed", "mask p50 p99 max, ms", "compile p50 p99, ms",
            "commit"]  # fmt: skip
    rows = []
    for corpus, found in corpora.items():
        masks, compiled = (" ".join(map(str, found[kind])) for kind in ("mask_ms", "compile_ms"))
        counts = [found[key] for key in ("schemas", "aside", "judged", "compiled", "right")]
        share = f"{100 * found['right'] / found['judged']:.1f} %"
        wrong = [f"{found['valid_refused']} of {found['valid']}",
                 f"{found['invalid_allowed']} of {found['invalid']}"]  # fmt: skip
        rows.append([corpus, *map(str, counts), share, *wrong, masks, compiled, found["commit"]])
    return table(head, rows)


def _features(corpora: dict[str, Any]) -> str:
    counts = [
        (corpus, reason, count)
        for corpus, found in corpora.items()
        for reason, count in found["refused"].items()
    ]
    return table(["corpus", "refused for", "schemas"], [[a, b, str(c)] for a, b, c in counts])
