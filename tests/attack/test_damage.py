"""Any one file of the daemon's home torn, replaced, deleted or stray: everything else goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from runner.errors import HearthError
from runner.leaf_errors import RegistryError
from runner.library.library import Library
from runner.server.app import build_services, create_app, opened
from runner.server.keys import FILE_NAME, KeyRing
from runner.setting_values import Address
from runner.settings import Settings, load
from tests.attack.test_owners import begin_batch, line, until_status, upload
from tests.conftest import StartDaemon, running_daemon
from tests.integration.cli_process import hearth, of_daemon

MODELS = ("one", "two", "ember")
HUGE_BYTES = 6 << 30
_LINKED_BYTES = 65536  # files of that size are not copied for each case


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 1] = b"\xff"
    path.write_bytes(data)


def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> object:
        path.unlink()
        return make(path)

    return damage


def beside(name: bytes) -> Callable[[Path], object]:
    """A copy under another name, in the same folder."""

    def damage(path: Path) -> object:
        stray = os.fsencode(path.parent) + b"/" + name.replace(b"*", os.fsencode(path.name))
        return shutil.copy(os.fsencode(path), stray)

    return damage


KINDS: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "zeroed": lambda path: path.write_bytes(bytes(min(path.stat().st_size, 1 << 20))),
    "flipped": flip,
    "text": lambda path: path.write_text("this is not what was here\n"),
    "not UTF-8": lambda path: path.write_bytes(b'{"a": "\xff\xfe"}'),
    "JSON list": lambda path: path.write_text("[1, 2]"),
    "JSON of other types": lambda path: path.write_text(
        '{"schemaVersion": 2, "config": 7, "layers": "x", "model_family": [1], "ember": 7}'
    ),
    "deep JSON": lambda path: path.write_text("[" * 100_000),
    "huge": lambda path: os.truncate(path, HUGE_BYTES),
    "unreadable": lambda path: path.chmod(0),
    "folder": replaced(lambda path: (path / "inside").mkdir(parents=True)),
    "link in a circle": replaced(lambda path: path.symlink_to(path.name)),
    "link to nothing": replaced(lambda path: path.symlink_to("/no/such/file")),
    "link elsewhere": replaced(lambda path: path.symlink_to("/etc/passwd")),
    "link to a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "pipe": replaced(lambda path: os.mkfifo(path)),
    "stray copy": beside(b"*.bak"),
    "stray name": beside(b"\xff\xfe*\n"),
    "stray hidden name": beside(b".*.swp"),
}


class Home:
    """A home with three models, and the ids of what is stored in it."""

    def __init__(self, folder: Path, response: str, file: str, batch: str) -> None:
        self.folder = folder
        self.stored = (f"/v1/responses/{response}", f"/v1/files/{file}", f"/v1/batches/{batch}")

    @property
    def files(self) -> list[str]:
        """All files below, by their paths."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [str(path.relative_to(self.folder)) for path in paths]

    def copy(self, target: Path, damaged: str) -> Path:
        """A home like it whose file damaged may be changed."""

        def copied(source: str, place: str) -> None:
            is_large = os.stat(source).st_size >= _LINKED_BYTES and not source.endswith("sqlite3")
            if is_large and source != str(self.folder / damaged):
                os.link(source, place)
            else:
                shutil.copy2(source, place)

        shutil.copytree(self.folder, target, copy_function=copied)
        return target


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("whole") / "home"
    with running_daemon(folder, ("one", "two")) as daemon, daemon.client() as http:
        asked = {"model": "one", "input": "hi"}
        response = http.post("/v1/responses", json=asked).json()["id"]
        file = upload(http, b"x", "user_data").json()["id"]
        batch, _ = begin_batch(http, line("1", "hi").replace(b"echo", b"one"))
        until_status(http, f"/v1/batches/{batch}", "completed")
        assert http.post("/api/fsck", json={"quick": True}).status_code == 200
    shutil.rmtree(folder / "models" / "tmp")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "auth.json").write_text('{"auths": {}}')
    (folder / "data" / "shortnames.toml").write_text('[aliases]\n"short" = "one"\n')
    return Home(folder, response, file, batch)


def settings_of(home: Path) -> Settings:
    return load({"HEARTH_HOME": str(home), "HEARTH_OFFLINE": "1"})


async def look(home: Path, stored: tuple[str, ...]) -> list[str]:
    """What goes wrong at a daemon over home: with the models, and twice with what is stored."""
    settings, faults = settings_of(home), []
    services = build_services(
        settings,
        Address("127.0.0.1", 4327),
        KeyRing(settings.data_dir / FILE_NAME),
        Library.open(settings, "test"),
    )
    transport = httpx.ASGITransport(create_app(services), raise_app_exceptions=False)
    async with (
        opened(services),
        httpx.AsyncClient(
            transport=transport,
            base_url="http://127.0.0.1:4327",
            headers={"Authorization": f"Bearer {services.owner_token}"},
        ) as http,
    ):
        tags = (await http.get("/api/tags")).json()
        if "models" not in tags:
            return [f"no list of models: {tags}"]
        whole = {model["name"].partition(":")[0] for model in tags["models"]}
        readable = {name for name in MODELS if _reads(services.library, name)}
        faults += [f"{name} is gone" for name in MODELS if name not in whole]
        faults += [f"{name} does not load" for name in MODELS if name not in readable]
        checked = await http.post("/api/fsck", json={"repair": True})
        if '"status":"success"' not in checked.text:
            faults.append(f"fsck: {checked.text[-300:]}")
        paths = ("/v1/models", "/api/ps", "/api/du", "/v1/files", "/v1/batches", *stored)
        for repeated in (False, True):
            for path in (*paths, "/v1/files", "/api/gc"):
                method = "POST" if path == "/api/gc" else "GET"
                answer = await http.request(method, path, json={} if method == "POST" else None)
                if answer.status_code >= 500 and repeated:
                    faults.append(f"{path}: {answer.status_code} {answer.text}")
    return faults


def _reads(library: Library, name: str) -> bool:
    with suppress(HearthError, RegistryError):
        library.read(library.find(name))
        return True
    return False


def allowed(path: str, fault: str, home: Home) -> bool:
    """One model may suffer from its own file; those of a blob that several have all of them."""
    if not path.startswith("models/"):
        return False
    if path.startswith("models/manifests/"):
        return fault.startswith(path.split("/")[-2] + " ")
    users = set()
    for manifest in (home.folder / "models" / "manifests").rglob("latest"):
        if Path(path).name.replace("sha256-", "sha256:") in manifest.read_text():
            users.add(manifest.parent.name)
    return fault.split(" ")[0] in users and len(users) < len(MODELS) + 1


def damage(home: Home, tmp_path: Path, path: str, kind: str) -> Path:
    copy = home.copy(tmp_path / "copy", path)
    KINDS[kind](copy / path)
    return copy


def sweep(home: Home, folder: Path, kind: str, paths: list[str]) -> None:
    wrong = {}
    for number, path in enumerate(paths):
        place = folder / str(number)
        place.mkdir()
        try:
            found = asyncio.run(look(damage(home, place, path, kind), home.stored))
        except (HearthError, RegistryError) as error:
            found = [f"no start: {error}"]
        bad = [fault for fault in found if not allowed(path, fault, home)]
        if bad:
            wrong[path] = bad
        shutil.rmtree(place, ignore_errors=True)
    assert wrong == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_manifest_hides_no_other_model(home: Home, tmp_path: Path, kind: str) -> None:
    (manifest,) = (path for path in home.files if path.endswith("/library/one/latest")
                   and path.startswith("models/manifests/"))  # fmt: skip
    sweep(home, tmp_path, kind, [manifest])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_file_of_the_home_leaves_everything_else(
    home: Home, tmp_path: Path, kind: str
) -> None:
    sweep(home, tmp_path, kind, home.files)


def test_the_list_names_a_damaged_model_and_others_answer(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(names=("one", "two"))
    manifests = daemon.home / "models" / "manifests" / "registry.ollama.ai" / "library"
    os.truncate(manifests / "one" / "latest", 20)
    shutil.copy(manifests / "two" / "latest", manifests / "two" / "latest.bak")
    listed = hearth(of_daemon(daemon), "list")
    assert listed.returncode == 0, listed.stderr
    assert "two:latest" in listed.stdout
    assert "one" in listed.stdout
    assert "manifest: not JSON" in listed.stdout + listed.stderr
    with daemon.client() as http:
        asked = {"model": "two", "prompt": "hi", "stream": False}
        assert http.post("/api/generate", json=asked).json()["response"] == "hi"
        refused = http.post("/api/generate", json={**asked, "model": "one"})
        assert refused.status_code == 400
        assert "one" in refused.json()["error"]
    mended = hearth(of_daemon(daemon), "fsck", "--repair")
    assert "one" in mended.stdout
    assert daemon.stop() == 0
