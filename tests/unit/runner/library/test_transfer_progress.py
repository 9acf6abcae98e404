from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from registry.digest import Digest
from registry.progress import Progress
from registry.pull import PullState
from registry.transfer.download import BlobProgress
from runner.errors import InvalidRequest
from runner.library.pull import reference_of
from runner.library.transfer_progress import TransferProgress

DIGEST = Digest.of(b"x")


def test_each_step_is_reported_once_and_files_as_they_grow() -> None:
    state = PullState()
    progress = TransferProgress(state, "pulling")
    state.steps.append("pulling manifest")
    assert list(progress.news()) == [Progress("pulling manifest")]
    assert list(progress.news()) == []
    file = BlobProgress(DIGEST.short, DIGEST, 10)
    state.steps.append(file)
    start = Progress(f"pulling {DIGEST.short}", None, 10, digest=str(DIGEST))
    assert list(progress.news()) == [start]
    assert list(progress.news()) == []
    file.completed_bytes = 4
    assert list(progress.news()) == [replace(start, completed=4)]
    file.completed_bytes, file.done = 10, True
    state.steps.append("success")
    assert list(progress.news()) == [replace(start, completed=10)]
    assert list(progress.news()) == []


def test_who_comes_late_sees_what_has_been() -> None:
    done = BlobProgress("a", None, 5, 5, 2, done=True)
    state = PullState(["pulling manifest", done, BlobProgress("b", None, 7)])
    assert list(TransferProgress(state, "pushing").news()) == [
        Progress("pulling manifest"),
        Progress("pushing a", 5, 5, resumed=2),
        Progress("pushing b", None, 7),
    ]


def test_work_is_reported_as_it_goes_on_and_its_end_once() -> None:
    state = PullState(["verifying sha256 digest"])
    progress = TransferProgress(state, "pulling")
    assert list(progress.news()) == [Progress("verifying sha256 digest")]
    state.report(Progress("merging the parts", 1, 9))
    assert list(progress.news()) == [Progress("merging the parts", 1, 9)]
    assert list(progress.news()) == []
    state.report(Progress("merging the parts", 9, 9))
    state.report(Progress("verifying"))
    state.steps.append("writing manifest")
    assert list(progress.news()) == [
        Progress("merging the parts", 9, 9),
        Progress("verifying"),
        Progress("writing manifest"),
    ]
    assert list(progress.news()) == []


def test_a_daemon_that_pulls_nothing_loads_no_http_client() -> None:
    code = (
        "import sys, runner.server.app; "
        "print(sorted({'httpx', 'huggingface_hub', 'h11', 'ssl'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "httpx" not in ran.stdout
    assert "huggingface_hub" not in ran.stdout


def test_a_path_is_for_clients_on_the_daemons_machine() -> None:
    assert reference_of("/models/m.gguf", insecure=False, allow_paths=True).url == "/models/m.gguf"
    with pytest.raises(InvalidRequest, match="is a path"):
        reference_of("/models/m.gguf", insecure=False)
