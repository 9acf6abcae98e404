"""What README.md and the pages of docs/ say is true of the code, the files and the commands."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cli.commands import VERBS
from runner.settings import describe
from tests.packaging.conftest import REPOSITORY

README = REPOSITORY / "README.md"
DOCUMENTS = (*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md")))
WRITTEN = [path for path in DOCUMENTS if "Written by `make docs-reference`" not in path.read_text()]
PACKAGES = "runner|modelfile|registry|kernels|cli|tests|docs"
MAX_README_WORDS = 900


def _id(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_generated_pages_are_what_the_code_says() -> None:
    script = (
        "import sys; from docs.generator.__main__ import main; status = main();"
        "loaded = {'torch', 'llama_cpp'} & set(sys.modules); sys.exit(status or bool(loaded))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"run make docs-reference\n{done.stdout}{done.stderr}"


def test_readme_is_short() -> None:
    assert len(_text(README).split()) <= MAX_README_WORDS


def test_settings_are_those_of_the_program() -> None:
    page = _text(REPOSITORY / "docs/reference/settings.md")
    assert re.findall(r"^\| `(HEARTH_\w+)`", page, re.MULTILINE) == [row[0] for row in describe()]


def test_commands_are_those_of_the_program() -> None:
    page = _text(REPOSITORY / "docs/reference/cli.md")
    assert re.findall(r"^## hearth ([\w-]+)$", page, re.MULTILINE) == list(VERBS)


def test_manual_pages_are_sound_and_found(tmp_path: Path) -> None:
    """By the judges that are there: mandoc, groff, and what man builds its index with."""
    pages = sorted((REPOSITORY / "docs" / "man").glob("*.1"))
    assert {page.stem for page in pages} == {"hearth", *(f"hearth-{verb}" for verb in VERBS)}
    judges = {
        "mandoc": ["-T", "lint", "-W", "warning"],
        "groff": ["-man", "-ww", "-z", "-T", "utf8"],
        "lexgrog": ["--man"],
    }
    tried = 0
    for name, options in judges.items():
        if shutil.which(name) is None:
            continue
        tried += 1
        ran = subprocess.run([name, *options, *map(str, pages)], capture_output=True, text=True)
        said = ran.stderr + ("" if name == "lexgrog" else ran.stdout)
        faults = [line for line in said.splitlines() if "missing date" not in line]  # none is meant
        assert not faults, faults[:5]
        assert "parse failed" not in ran.stdout
    if shutil.which("man") is not None:
        tried += 1
        folder = tmp_path / "man1"
        folder.mkdir()
        for page in pages:
            shutil.copy(page, folder)
        command = ["man", "-M", str(tmp_path), "hearth", "run"]
        env = {**os.environ, "MANPAGER": "cat"}
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        assert "HEARTH-RUN(1)" in ran.stdout
    if not tried:
        pytest.skip("neither mandoc, groff nor man is installed")


@pytest.mark.parametrize("path", WRITTEN, ids=_id)
def test_commands_that_are_shown_exist(path: Path) -> None:
    shown = set(re.findall(r"(?:`|\$ |^|\| )hearth ([a-z]+)\b(?=[^,.]*`|\s)", _code(path), re.M))
    assert shown <= {*VERBS, "ls", "start", "prune"}


@pytest.mark.parametrize("path", WRITTEN, ids=_id)
def test_options_of_install_sh_exist(path: Path) -> None:
    script = _text(REPOSITORY / "install.sh")
    used = " ".join(re.findall(r"\./install\.sh((?: --[a-z-]+)+)", _text(path))).split()
    assert [option for option in used if f"  {option}" not in script] == []


@pytest.mark.parametrize("path", WRITTEN, ids=_id)
def test_targets_of_make_exist(path: Path) -> None:
    makefile = _text(REPOSITORY / "Makefile")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for listed in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE):
        targets |= set(listed.split())
    targets |= {f"store-{name}" for name in ("faults", "kills", "bitflips", "histories")}
    used = re.findall(r"^make ([a-z0-9-]+)|`make ([a-z0-9 -]+)", _text(path), re.MULTILINE)
    assert {name for pair in used for words in pair for name in words.split()} <= targets


@pytest.mark.parametrize("path", WRITTEN, ids=_id)
def test_folders_and_files_that_are_named_exist(path: Path) -> None:
    named = re.findall(rf"`((?:{PACKAGES})/[A-Za-z0-9_/.*-]*)`", _text(path))
    assert [name for name in named if not list(REPOSITORY.glob(name.rstrip("/")))] == []


@pytest.mark.parametrize("path", WRITTEN, ids=_id)
def test_tests_that_are_named_are_collected(path: Path) -> None:
    """Without a file, a test is one of the file named before it."""
    file, missing = "", []
    for named, test in re.findall(r"(tests/[\w/]+\.py)?::(test_\w+)", _text(path)):
        file = named or file
        if test not in _tests_of(file):
            missing.append(f"{file}::{test}")
    assert missing == []


def test_every_attack_and_every_guarantee_names_its_tests() -> None:
    attacks = _text(REPOSITORY / "docs/security/attacks.md")
    rows = re.findall(r"^\| (?!attack |---)(.*) \|$", attacks, re.MULTILINE)
    assert len(rows) > 100
    policy = _text(REPOSITORY / "SECURITY.md").partition("These are the guarantees.")[2]
    guarantees = re.findall(r"^- (.*(?:\n  .*)*)", policy, re.MULTILINE)
    assert len(guarantees) == policy.count("- **") > 2
    lasts = [row.rsplit(" | ", 1)[-1] for row in rows]
    named = [
        re.findall(r"`(tests/[\w/]*/(?:test_\w+\.py)?)", text) for text in (*lasts, *guarantees)
    ]
    assert [
        text for text, tests in zip((*rows, *guarantees), named, strict=True) if not tests
    ] == []


@pytest.mark.parametrize("path", WRITTEN, ids=_id)
def test_modules_that_are_run_exist(path: Path) -> None:
    for module in re.findall(rf"python -m ((?:{PACKAGES})[\w.]*)", _text(path)):
        place = REPOSITORY / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(_text(path))):
        if not re.match(r"https?:|mailto:", link):
            place, _, anchor = link.partition("#")
            target = (path.parent / place).resolve() if place else path
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                broken.append(link)
    assert broken == []


def test_pictures_exist_for_light_and_for_dark() -> None:
    for path in WRITTEN:
        for picture in re.findall(r'(?:src|srcset)="([^"]+)"', _without_code(_text(path))):
            assert (path.parent / picture).exists(), f"{_id(path)}: {picture}"


def test_pictures_load_nothing() -> None:
    for picture in sorted((REPOSITORY / "docs/images").glob("*.svg")):
        text = _text(picture).replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text, picture.name
        assert "@import" not in text, picture.name


def test_python_examples_compile() -> None:
    examples = [
        (path, example)
        for path in WRITTEN
        for example in re.findall(r"```python\n(.*?)```", _text(path), re.DOTALL)
    ]
    assert len(examples) > 1
    for path, example in examples:
        compile(example, str(path), "exec")


def test_measurements_say_how_to_repeat_them() -> None:
    measured = tomllib.loads(_text(REPOSITORY / "docs/data/measurements.toml"))
    for table in measured["table"]:
        assert re.match(r"make bench|python -m tests\.benchmarks\.", table["command"]), table["id"]


@functools.cache
def _tests_of(file: str) -> set[str]:
    """The tests that pytest collects of a file."""
    if not Path(file).name.startswith("test_"):
        return set()
    found: set[str] = set()
    for node in ast.parse(_text(REPOSITORY / file)).body:
        inner = node.body if isinstance(node, ast.ClassDef) and node.name[:4] == "Test" else [node]
        found |= {
            one.name for one in inner if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return found


def _code(path: Path) -> str:
    """What stands between backticks, one piece a line."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", _text(path), re.DOTALL | re.MULTILINE)
    return "\n".join([*blocks, *re.findall(r"`[^`\n]+`", _text(path))])


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def _anchors(path: Path) -> set[str]:
    """The anchors that GitHub and MyST give to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _text(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        for heading in headings
    }
