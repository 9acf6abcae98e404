"""python -m registry.fsck STORE: the quick check of a store as one JSON object: findings, and how
many models, blobs and bytes there are. Changes nothing, and takes no lock."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from registry.fsck.check import check
from registry.fsck.findings import CheckTotals, Finding
from registry.store import Store


def main(root: Path) -> None:
    """Print the findings in the store at root."""
    findings, totals = [], CheckTotals(0, 0, 0)
    for event in check(Store.open(root, read_only=True), quick=True):
        if isinstance(event, Finding):
            findings.append({"kind": event.kind, "message": event.message,
                             "models": event.models, "damage": event.is_damage})  # fmt: skip
        elif isinstance(event, CheckTotals):
            totals = event
    told = asdict(totals)
    print(json.dumps({"findings": findings, **told, "size": told.pop("size_bytes")}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
