"""constraints.txt pins what pyproject.toml asks for, to versions that satisfy it."""

from __future__ import annotations

import tomllib
from importlib.metadata import Distribution, distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.conftest import REPOSITORY


def _pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def _required() -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    texts = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        texts += extra
    return [Requirement(text) for text in texts + project["build-system"]["requires"]]


def test_every_requirement_has_a_pin_that_satisfies_it() -> None:
    pins = _pins()
    missing = [r.name for r in _required() if canonicalize_name(r.name) not in pins]
    assert not missing
    wrong = [str(r) for r in _required() if pins[canonicalize_name(r.name)] not in r.specifier]
    assert not wrong


def test_what_the_dependencies_need_in_turn_is_pinned() -> None:
    installed: dict[str, Distribution] = {canonicalize_name(d.name): d for d in distributions()}
    reached: set[str] = set()
    waiting: list[str] = [canonicalize_name(r.name) for r in _required()]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in installed:
            continue
        reached.add(name)
        waiting += _needs(installed[name])
    assert len(reached) > 30
    assert reached <= set(_pins()), "pin what is new in constraints.txt"


def _needs(of: Distribution) -> list[str]:
    found = [Requirement(text) for text in of.requires or ()]
    here = {"extra": ""}
    return [canonicalize_name(r.name) for r in found if r.marker is None or r.marker.evaluate(here)]


def test_what_is_installed_is_locked_by_hashes_at_the_pinned_versions() -> None:
    """`make lock` writes both files; the project, its images and its build are in them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["vision"], "hatchling"]
    locked = {}
    for name in ("requirements.txt", "requirements-engine.txt"):
        joined = (REPOSITORY / name).read_text().replace("\\\n", " ")
        for line in joined.splitlines():
            requirement, _, hashes = line.partition("--hash=")
            assert hashes.startswith("sha256:")
            pin = Requirement(requirement.strip())
            locked[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")
    assert {canonicalize_name(Requirement(text).name) for text in texts} <= set(locked)
    pins = _pins()
    assert {name: pins.get(name, version) for name, version in locked.items()} == locked
