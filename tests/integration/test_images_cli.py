"""hearth create with a projector, and hearth run with pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("PIL")

from tests.conftest import RunningDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon
from tests.vision_files import VisionFiles, png, write_vision_model


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp("hearth")) as running:
        yield running


@pytest.fixture
def files(tmp_path: Path) -> VisionFiles:
    return write_vision_model(tmp_path, "idefics3")


def test_a_model_of_two_files_is_made_shown_and_given_pictures(
    daemon: RunningDaemon, files: VisionFiles, tmp_path: Path
) -> None:
    environment = of_daemon(daemon)
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM ./{files.projector.name}\nFROM ./{files.model.name}\n")
    made = hearth(environment, "create", "seer", "-f", str(modelfile))
    assert made.returncode == 0, made.stderr
    shown = hearth(environment, "show", "seer").stdout
    assert "vision" in shown
    assert "Projector" in shown
    picture = tmp_path / "my cat.png"
    picture.write_bytes(png(40, 30))
    asked = hearth(environment, "run", "seer", "-p", "num_predict=2", f"what is '{picture}'?")
    assert asked.returncode == 0, asked.stderr
    assert f"Added image '{picture}'" in asked.stderr
    assert asked.stdout


def test_another_model_is_asked_in_words_which_is_said(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(png(8, 8))
    asked = hearth(of_daemon(daemon), "run", "echo", f"see {picture}")
    assert asked.stdout == f"see {picture}\n"
    assert "echo cannot process images" in asked.stderr
    assert "Added image" not in asked.stderr
