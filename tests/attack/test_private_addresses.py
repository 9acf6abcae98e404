"""Pulls with a key of the scope pull reach public addresses and named registries, and nothing
else: not by a spelling, a redirect or a realm."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from registry.digest import Digest
from tests.attack.test_access import add_key
from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.other_user import Asked, ask, needs_two_users
from tests.registry_server import Handler, fake_registry

ONLINE = {"HEARTH_OFFLINE": "0"}
FORMS = (
    "127.0.0.1:{port}/a/b", "http://127.0.0.1:{port}/a/b", "https://127.0.0.1:{port}/a/b",
    "oci://127.0.0.1:{port}/a/b", "localhost:{port}/a/b", "http://localhost:{port}/a/b",
    "LOCALHOST:{port}/a/b", "a.localhost:{port}/a/b", "localhost.:{port}/a/b",
    "0.0.0.0:{port}/a/b", "0:{port}/a/b", "127.1:{port}/a/b", "2130706433:{port}/a/b",
    "0x7f000001:{port}/a/b", "0x7f.1:{port}/a/b", "0177.0.0.1:{port}/a/b", "127.0.0.2:{port}/a/b",
    "http://[::1]:{port}/a/b", "http://[::ffff:127.0.0.1]:{port}/a/b", "[::1]:{port}/a/b",
    "http://127.0.0.1:{port}/a/m.gguf", "https://127.0.0.1:{port}/a/m.gguf",
    "http://localhost:{port}/a/m.gguf", "http://0x7f000001:{port}/a/m.gguf",
    "http://x@127.0.0.1:{port}/a/m.gguf", "http://{host}:{port}/a/m.gguf", "{host}:{port}/a/b",
)  # fmt: skip


@contextmanager
def canary() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A service on every address of the machine: its port, and whether it was connected to since
    the last time. The system keeps connections until somebody looks."""
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
        socket.create_server(("0.0.0.0", six.getsockname()[1])) as four,
    ):

        def was_reached() -> bool:
            ready, _, _ = select.select([four, six], [], [], 0)
            for each in ready:
                each.accept()[0].close()
            return bool(ready)

        yield six.getsockname()[1], was_reached


def answer_with(status: int, headers: dict[str, str]) -> Any:
    """An answer of the registry without a body."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


def pull(daemon: RunningDaemon, model: str, key: dict[str, str]) -> httpx.Response:
    body = {"model": model, "insecure": True, "stream": False}
    with daemon.client() as http:
        return http.post("/api/pull", json=body, headers=key)


def test_no_spelling_of_loopback_leads_a_pull_there(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    puller, admin = add_key(tmp_path, "puller", "pull"), add_key(tmp_path, "boss", "admin")
    daemon = start_daemon(home=tmp_path, env=ONLINE)
    with canary() as (port, was_reached), fake_registry() as remote:
        for form in FORMS:
            text = form.format(port=port, host=socket.gethostname())
            assert pull(daemon, text, puller).status_code >= 400, text
            assert not was_reached(), text
        remote.add_model("t/m", echo_gguf())
        refused = pull(daemon, f"{remote.address}/t/m", puller)
        assert "HEARTH_PRIVATE_REGISTRIES" in refused.text
        assert not remote.seen
        assert pull(daemon, f"{remote.address}/t/m", admin).status_code == 200


@needs_two_users
def test_a_repair_goes_where_a_pull_of_who_asks_for_it_may(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={**ONLINE, "HEARTH_INSECURE_LOCAL": "1"})
    repair: Asked = ("POST", "/api/fsck", {}, {"repair": True})
    with fake_registry() as remote, daemon.client() as owner:
        remote.add_model("t/m", (content := echo_gguf()))
        model = f"{remote.address}/t/m"
        assert pull(daemon, model, {}).status_code == 200
        name = Digest.of(content).file_name
        damaged = daemon.home / "models" / "blobs" / name
        damaged.unlink()
        remote.seen.clear()
        ((status, told),) = ask(daemon.port, [repair])
        assert status == 200
        assert '"mended":false' in told.replace(" ", "")
        assert "HEARTH_PRIVATE_REGISTRIES" in told
        assert not remote.seen
        assert '"mended":true' in owner.post("/api/fsck", json={"repair": True}).text
        assert damaged.read_bytes() == content


def test_a_named_registry_is_pulled_from_and_leads_nowhere_else(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    puller = add_key(tmp_path, "puller", "pull")
    with canary() as (port, was_reached), fake_registry() as remote:
        target = f"http://127.0.0.1:{port}/secret"
        redirect = answer_with(307, {"Location": target})
        realm = {"WWW-Authenticate": f'Bearer realm="{target}",service="s"'}
        for number, name in enumerate(("manifest", "blob", "realm", "well")):
            remote.add_model(f"t/{name}", echo_gguf(salt=str(number)))
        blob = json.loads(remote.manifests["t/blob:latest"][1])["layers"][0]["digest"]
        remote.special = {
            "/v2/t/manifest/manifests/latest": redirect,
            f"/v2/t/blob/blobs/{blob}": redirect,
            "/v2/t/realm/manifests/latest": answer_with(401, realm),
        }
        env = {**ONLINE, "HEARTH_PRIVATE_REGISTRIES": remote.address}
        daemon = start_daemon(home=tmp_path, env=env)
        for name in ("manifest", "blob", "realm"):
            assert pull(daemon, f"{remote.address}/t/{name}", puller).status_code >= 400, name
            assert remote.requests(f"/t/{name}/"), name
            assert not was_reached(), name
        assert pull(daemon, f"{remote.address}/t/well", puller).status_code == 200
