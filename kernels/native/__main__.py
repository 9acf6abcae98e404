"""`python -m kernels.native`: compile the kernels for this machine and check them.

Says what came of it, a line for each library. The exit status is 0 even without one: hearth works
without them. `--remove` takes them away.
"""

from __future__ import annotations

import sys

from kernels.native import build


def main(arguments: list[str]) -> int:
    """Build, or remove."""
    if arguments == ["--remove"]:
        build.remove_all()
        return 0
    if arguments:
        print("usage: python -m kernels.native [--remove]", file=sys.stderr)
        return 2
    for name in build.RECIPES:
        outcome = _outcome(name)
        if outcome is not None:
            print(f"  {name}: {outcome}")
    return 0


def _outcome(name: str) -> str | None:
    try:
        recipe = build.RECIPES[name]()
        if recipe is None:
            return None
        library = build.build(recipe)
    except (build.CompileError, OSError) as reason:
        return f"no kernels of hearth's own: {reason}"
    return f"kernels for {library.stem.rpartition('-')[2]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
