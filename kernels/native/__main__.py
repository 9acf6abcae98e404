"""`python -m kernels.native`: compile the kernels for this machine and check them.

Prints the outcome, a line for each library. The exit status is 0 even without one: hearth works
without them. `--remove` removes them. `--strict` compiles nothing but tells what the compiler warns
of, for every level of this kind of processor; its exit status is 1 then. `--levels FOLDER` compiles
them for each of these levels, for a wheel. `--facts` says in JSON which kernels this processor can
have, what it lacks for better ones, and what was compiled.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kernels import native
from kernels.native import build


def main(arguments: list[str]) -> int:
    """Build, check for warnings, or remove."""
    if arguments == ["--remove"]:
        build.remove_all()
        return 0
    if arguments == ["--strict"]:
        return _check_warnings()
    if arguments == ["--facts"]:
        print(json.dumps(_facts()))
        return 0
    if arguments[:1] == ["--levels"] and len(arguments) == 2:
        for recipe in build.for_wheel():
            build.build_levels(recipe, Path(arguments[1]))
        return 0
    if arguments:
        options = "--remove | --strict | --levels FOLDER | --facts"
        print(f"usage: python -m kernels.native [{options}]", file=sys.stderr)
        return 2
    for name in build.RECIPES:
        outcome = _build(name)
        if outcome is not None:
            print(f"  {name}: {outcome}")
    return 0


def _build(name: str) -> str | None:
    try:
        recipe = build.RECIPES[name]()
        if recipe is None:
            return None
        library = build.build(recipe)
    except (build.CompileError, OSError) as reason:
        return f"not built: {reason}"
    origin = ", of the wheel" if library.parent == native.SHIPPED else ""
    return f"kernels for {library.stem.rpartition('-')[2]}{origin}"


def _facts() -> dict[str, object]:
    return {
        "level": native.level(),
        "better": native.better_levels(),
        "libraries": [name for name in build.RECIPES if native.library_path(name) is not None],
        "compiler": build.find_compiler() is not None,
    }


def _check_warnings() -> int:
    if build.find_compiler() is None:
        print("native kernels not checked: GCC was not found")
        return 0
    try:
        for create in build.RECIPES.values():
            recipe = create()
            if recipe is not None:
                build.check_warnings(recipe)
    except build.CompileError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
