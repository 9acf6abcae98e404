from __future__ import annotations

import subprocess
import sys

import pytest

from registry.digest import Digest
from registry.names import Name
from registry.pull import PullState
from registry.transfer.download import BlobProgress
from runner.errors import InvalidRequest
from runner.server.ollama.transfers import TransferLines, reference_of

DIGEST = Digest.of(b"x")


def test_each_step_is_told_once_and_files_as_they_grow() -> None:
    state = PullState()
    lines = TransferLines(state, "pulling")
    state.steps.append("pulling manifest")
    assert list(lines.news()) == [{"status": "pulling manifest"}]
    assert list(lines.news()) == []
    file = BlobProgress(DIGEST.short, DIGEST, 10)
    state.steps.append(file)
    start = {"status": f"pulling {DIGEST.short}", "digest": str(DIGEST), "total": 10}
    assert list(lines.news()) == [start]
    assert list(lines.news()) == []
    file.completed_bytes = 4
    assert list(lines.news()) == [{**start, "completed": 4}]
    file.completed_bytes, file.done = 10, True
    state.steps.append("success")
    state.name = Name.parse("user/m")
    assert list(lines.news()) == [
        {**start, "completed": 10},
        {"status": "success", "model": "user/m"},
    ]
    assert list(lines.news()) == []


def test_who_comes_late_sees_what_has_been() -> None:
    done = BlobProgress("a", None, 5, 5, 2, done=True)
    state = PullState(["pulling manifest", done, BlobProgress("b", None, 7)])
    assert list(TransferLines(state, "pushing").news()) == [
        {"status": "pulling manifest"},
        {"status": "pushing a", "total": 5, "completed": 5, "resumed": 2},
        {"status": "pushing b", "total": 7},
    ]


def test_work_is_told_as_it_goes_on_and_its_end_once() -> None:
    state = PullState(["verifying sha256 digest"])
    lines = TransferLines(state, "pulling")
    assert list(lines.news()) == [{"status": "verifying sha256 digest"}]
    state.tell({"status": "merging the parts", "completed": 1, "total": 9})
    assert list(lines.news()) == [{"status": "merging the parts", "completed": 1, "total": 9}]
    assert list(lines.news()) == []
    state.tell({"status": "merging the parts", "completed": 9, "total": 9})
    state.tell({"status": "verifying"})
    state.steps.append("writing manifest")
    assert list(lines.news()) == [
        {"status": "merging the parts", "completed": 9, "total": 9},
        {"status": "verifying"},
        {"status": "writing manifest"},
    ]
    assert list(lines.news()) == []


def test_a_daemon_that_pulls_nothing_loads_no_http_client() -> None:
    code = (
        "import sys, runner.server.app; "
        "print(sorted({'httpx', 'huggingface_hub', 'h11', 'ssl'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "httpx" not in ran.stdout
    assert "huggingface_hub" not in ran.stdout


def test_a_path_is_for_clients_on_the_daemons_machine() -> None:
    assert reference_of("/models/m.gguf", insecure=False, local=True).url == "/models/m.gguf"
    with pytest.raises(InvalidRequest, match="is a path"):
        reference_of("/models/m.gguf", insecure=False)
