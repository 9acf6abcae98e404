"""What is found in the folders of other programs."""

from __future__ import annotations

import os
from pathlib import Path

from registry.digest import Digest
from registry.foreign import huggingface, lmstudio, ollama
from registry.foreign.models import ForeignModel
from registry.store import Store
from tests.unit.registry.store_models import install, manifest_path

CONTENT = b"GGUF of somebody"


def hub_file(cache: Path, repo: str, revision: str, name: str, content: bytes) -> Path:
    """A file as the Hub's library keeps it: a blob by its digest, and a link to it."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    blob = folder / "blobs" / Digest.of(content).hex
    link = folder / "snapshots" / revision / name
    for path in (blob, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return blob


def described(models: list[ForeignModel]) -> dict[str, str | None]:
    return {model.name.short: model.obstacle for model in models}


def test_an_ollama_store_is_listed_with_its_digests_and_what_is_missing(
    store: Store, tmp_path: Path
) -> None:
    layer = install(store, "user/m:q4", CONTENT).layers[0]
    gone = install(store, "gone", b"gone").layers[0]
    install(store, "torn", b"torn")
    store.blob_path(gone.digest).unlink()
    manifest_path(store, "torn").write_bytes(b"{")
    found = ollama.models(store.root)
    assert [model.name.short for model in found] == ["gone", "torn", "user/m:q4"]
    assert found[0].obstacle == f"blob {gone.digest.short} is missing"
    assert "not JSON" in (found[1].obstacle or "")
    whole = found[2]
    assert (whole.obstacle, whole.size_bytes) == (None, len(CONTENT) + 2)
    assert {file.digest for file in whole.files} >= {layer.digest}
    assert whole.content == manifest_path(store, "user/m:q4").read_bytes()


def test_blobs_named_as_old_versions_of_ollama_did_are_found(store: Store) -> None:
    digest = install(store, "m", CONTENT).layers[0].digest
    path = store.blob_path(digest)
    path.rename(path.with_name(str(digest)))
    (found,) = ollama.models(store.root)
    assert found.obstacle is None


def test_lm_studio_models_are_named_by_publisher_repository_and_quantization(
    tmp_path: Path,
) -> None:
    for name in (
        "pub/Repo-GGUF/repo-Q4_K_M.gguf",
        "pub/Repo-GGUF/deep/repo-Q8_0.gguf",
        "pub/Repo-GGUF/mmproj-repo-f16.gguf",
        "pub/one/something.gguf",
        "pub/.hidden/x.gguf",
        "pub/parts/p-Q4_0-00001-of-00002.gguf",
        "pub/parts/p-Q4_0-00002-of-00002.gguf",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(CONTENT)
    assert described(lmstudio.models(tmp_path)) == {
        "pub/Repo-GGUF:Q4_K_M": None,
        "pub/Repo-GGUF:Q8_0": None,
        "pub/one": None,
        "pub/parts:Q4_0": None,
    }
    seeing = [m for m in lmstudio.models(tmp_path) if m.projector is not None]
    assert [m.name.tag for m in seeing] == ["Q4_K_M", "Q8_0"]
    for model in seeing:
        assert model.projector is not None
        assert model.projector.path.name == "mmproj-repo-f16.gguf"
        assert model.size_bytes == 2 * len(CONTENT)
    (parts,) = (m for m in lmstudio.models(tmp_path) if m.name.model == "parts")
    assert [file.path.name[-19:-5] for file in parts.files] == ["00001-of-00002", "00002-of-00002"]


def test_the_level_of_a_folder_of_lm_studio_is_found_out(tmp_path: Path) -> None:
    root = tmp_path / "models"
    for name in ("pub/Repo-GGUF/repo-Q4_K_M.gguf", "pub/Deep-GGUF/Q8_0/deep-Q8_0.gguf"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(CONTENT)
    (tmp_path / ".internal/bundled/x").mkdir(parents=True)
    (tmp_path / ".internal/bundled/x/y.gguf").write_bytes(CONTENT)
    names = {"pub/Repo-GGUF:Q4_K_M": None, "pub/Deep-GGUF:Q8_0": None}
    for folder in (tmp_path, root, root / "pub"):
        assert described(lmstudio.models(folder)) == names, folder
    for folder in (root / "pub" / "Deep-GGUF", root / "pub" / "Deep-GGUF" / ".." / "Deep-GGUF"):
        assert described(lmstudio.models(folder)) == {"pub/Deep-GGUF:Q8_0": None}
    (root / "pub/Repo-GGUF/repo-Q4_K_M.gguf").unlink()
    assert described(lmstudio.models(root)) == {"pub/Deep-GGUF:Q8_0": None}


def test_content_that_repositories_of_the_hub_share_is_taken(tmp_path: Path) -> None:
    blob = hub_file(tmp_path, "user/repo", "abc", "m-Q4_0.gguf", CONTENT)
    shared = tmp_path / "blobs" / "ab" / ("ab" * 32)  # named by another hash than sha256
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    (model,) = huggingface.models(tmp_path)
    (file,) = model.files
    assert (model.obstacle, file.path, file.digest) == (None, shared, Digest.of(CONTENT))
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    (tmp_path / "blobs").symlink_to(tmp_path / "elsewhere")
    assert set(described(huggingface.models(tmp_path)).values()) == {
        "m-Q4_0.gguf is a link to a file outside the folder"
    }


def test_a_checkpoint_of_the_hub_is_one_model_of_many_files(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json", "x.py", "tf.h5"):
        hub_file(tmp_path, "user/repo", "abc", name, name.encode())
    hub_file(tmp_path, "user/torn", "abc", "model-00001-of-00002.safetensors", b"x")
    (model,) = huggingface.models(tmp_path)
    assert model.name.short == "hf.co/user/repo"
    assert model.titles == ("config.json", "1_Pooling/config.json", "model.safetensors")
    assert len(model.files) == 3


def test_links_of_the_hubs_cache_are_resolved_and_their_digests_known(tmp_path: Path) -> None:
    blob = hub_file(tmp_path, "user/repo", "abc", "m-Q4_K_M.gguf", CONTENT)
    (model,) = huggingface.models(tmp_path)
    assert model.name.short == "hf.co/user/repo:Q4_K_M"
    (file,) = model.files
    assert (file.path, file.digest) == (blob, Digest.of(CONTENT))


def test_the_main_revision_counts_where_several_have_a_file(tmp_path: Path) -> None:
    hub_file(tmp_path, "user/repo", "aaa", "m-Q4_0.gguf", b"old")
    main = hub_file(tmp_path, "user/repo", "bbb", "m-Q4_0.gguf", b"new")
    refs = tmp_path / "models--user--repo" / "refs"
    refs.mkdir()
    (refs / "main").write_text("bbb")
    (model,) = huggingface.models(tmp_path)
    assert model.files[0].path == main


def test_links_that_lead_out_of_the_folder_are_not_taken(tmp_path: Path) -> None:
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(CONTENT)
    cache = tmp_path / "hub"
    hub_file(cache, "user/repo", "abc", "m-Q4_0.gguf", CONTENT)
    link = cache / "models--user--repo/snapshots/abc/m-Q8_0.gguf"
    link.symlink_to(secret)
    (cache / "models--user--repo/snapshots/abc/m-F16.gguf").symlink_to("nowhere")
    (cache / "models--evil--repo").symlink_to(cache / "models--user--repo")
    assert described(huggingface.models(cache)) == {
        "hf.co/user/repo:Q4_0": None,
        "hf.co/user/repo:Q8_0": "m-Q8_0.gguf is a link to a file outside the folder",
        "hf.co/user/repo:F16": "m-F16.gguf is a broken link",
    }


def test_a_projector_that_leads_out_of_the_folder_is_left_where_it_is(tmp_path: Path) -> None:
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(CONTENT)
    hub_file(tmp_path / "hub", "user/repo", "abc", "m-Q4_0.gguf", CONTENT)
    link = tmp_path / "hub/models--user--repo/snapshots/abc/mmproj-m.gguf"
    link.symlink_to(secret)
    (model,) = huggingface.models(tmp_path / "hub")
    assert (model.obstacle, model.projector) == (None, None)


def test_folders_come_from_the_programs_own_variables(tmp_path: Path) -> None:
    home = Path("/home/x")
    assert ollama.folders({"OLLAMA_MODELS": "/m"}, home)[0] == Path("/m")
    assert ollama.folders({}, home)[0] == home / ".ollama/models"
    assert lmstudio.folders({}, home)[0] == home / ".lmstudio/models"
    assert huggingface.folders({"HF_HOME": "/h"}, home) == [Path("/h/hub")]
    both = {"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}
    assert huggingface.folders(both, home) == [Path("/c")]
    assert huggingface.folders({}, home) == [home / ".cache/huggingface/hub"]


def test_a_folder_that_is_not_there_has_no_models(tmp_path: Path) -> None:
    for program in (ollama, lmstudio, huggingface):
        assert program.models(tmp_path / "none") == []
