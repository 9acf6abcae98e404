"""The probe tells what the installed library can do."""

from __future__ import annotations

import json

from runner.backends.llamacpp.probe import probe


def test_it_names_the_library_and_a_cpu_device() -> None:
    facts = probe()
    assert facts["version"]
    assert facts["threads"] >= 1
    assert facts["max_sequences"] >= 1
    kinds = {device["kind"] for device in facts["devices"]}
    assert "cpu" in kinds
    assert facts["gpu_offload"] == bool(kinds & {"gpu", "integrated_gpu"})
    for device in facts["devices"]:
        assert 0 < device["memory_free_bytes"] <= device["memory_total_bytes"]


def test_its_facts_are_json() -> None:
    assert json.loads(json.dumps(probe()))["version"] == probe()["version"]
