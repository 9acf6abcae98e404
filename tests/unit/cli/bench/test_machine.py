"""Facts about the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.bench import machine


def test_the_facts_are_json_and_name_cpu_memory_and_versions() -> None:
    facts = json.loads(json.dumps(machine.machine_facts()))
    assert facts["memory_bytes"] > 0
    assert facts["cores"] >= 1
    assert facts["hearth"]
    assert set(facts) >= {"cpu", "system", "python", "llama_cpp_python", "date"}


def test_the_cpu_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Fast CPU 9000\n")
    monkeypatch.setattr(machine, "CPU_INFO", info)
    assert machine.cpu_name() == "Fast CPU 9000"


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert machine.package_version("no-such-package-anywhere") is None
