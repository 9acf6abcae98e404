"""The benchmark of the GPU's targets: honest without a GPU, and running with tiny shapes."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

from tests.benchmarks.gpu import __main__ as command
from tests.benchmarks.gpu import single_stream, throughput
from tests.benchmarks.gpu.machine import Machine, Target

TINY = Machine("cpu", True, copy=1e9, matrix=1e9)


def test_without_a_gpu_every_target_is_listed_as_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert command.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(single_stream.TARGETS) + len(throughput.TARGETS)
    assert all("not measured" in line and "no GPU here" in line for line in lines)


def test_a_name_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "everything"])
    with pytest.raises(SystemExit):
        command.main()
    assert "'everything' is none of decode, prefill" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["decodes", "prefill", "kernels"])
def test_what_one_stream_does_is_measured_with_tiny_shapes(name: str) -> None:
    lines = list(getattr(single_stream, name)(TINY))
    assert lines
    assert not any("not measured" in line for line in lines)


def test_many_requests_are_measured_with_tiny_shapes() -> None:
    lines = list(throughput.nano(TINY))
    assert len(lines) == len(throughput.NANO)
    assert all("tokens/s of output" in line for line in lines)


def test_without_an_environment_transformers_is_not_measured() -> None:
    assert all("name an environment" in line for line in throughput.beside(TINY, None))


def test_a_share_stands_beside_what_is_wanted() -> None:
    line = Target("decode", 0.8, "copy").line(0.834, "3 ms")
    assert "0.83 of copy" in line
    assert line.endswith("wanted 0.8  3 ms")
