"""python -m docs.generator [--check]: write all generated pages, or list those that are stale."""

from __future__ import annotations

import sys

from docs.generator.pages import ROOT, stale


def main() -> int:
    """Write what is out of date; with --check only name it, and return 1 if there is any."""
    check = sys.argv[1:] == ["--check"]
    changes = stale()
    for path, content in changes.items():
        print(f"{'out of date' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    return int(check and bool(changes))


if __name__ == "__main__":
    sys.exit(main())
