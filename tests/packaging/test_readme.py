"""README.md says what is true of the settings, the commands and the files."""

from __future__ import annotations

import re

from cli.commands import VERBS
from runner.settings import describe
from tests.packaging.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def _written(default: str) -> str:
    """A default as one would write it into the environment."""
    return {"False": "0", "True": "1", "()": ""}.get(default, default.removesuffix(".0"))


def _rows(first_cell: str) -> list[list[str]]:
    found = re.findall(rf"^\| `({first_cell}[^`]*)` \|(.*)\|$", README, re.MULTILINE)
    return [[name, *(cell.strip().strip("`") for cell in rest.split("|"))] for name, rest in found]


def test_settings_are_those_of_the_program() -> None:
    expected = [[name, doc, _written(default)] for name, doc, default in describe()]
    assert _rows("HEARTH_") == expected


def test_commands_are_those_of_the_program() -> None:
    rows = {name.split()[1]: text for name, text in _rows("hearth ")}
    assert rows == VERBS


def test_options_of_install_sh_exist() -> None:
    script = (REPOSITORY / "install.sh").read_text()
    used = " ".join(re.findall(r"\./install\.sh((?: --[a-z-]+)+)", README)).split()
    assert "--uninstall" in used
    assert [option for option in used if f"  {option}" not in script] == []


def test_targets_of_make_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)`", README)) <= targets
    assert {"dev", "check", "test", "bench", "run"} <= targets


def test_folders_and_files_that_are_named_exist() -> None:
    named = set(
        re.findall(r"`((?:runner|modelfile|registry|kernels|cli|tests)/[a-z_/.]*)`", README)
    )
    named |= set(re.findall(r"\]\(([A-Za-z.]+)\)", README))
    assert len(named) > 10
    assert [path for path in sorted(named) if not (REPOSITORY / path).exists()] == []


def test_python_example_compiles() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    compile(example, "README.md", "exec")
