"""One key reaches for what another one has stored: files, batches, their outputs, responses."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon, running_daemon

DEADLINE_S = 120.0
CHAT = "/v1/chat/completions"
SLOW = "<|slow|>" * 50
ENDLESS = "<|slow|>" + "".join(f"{number} " for number in range(700))  # a minute
UPLOAD = {"bytes": 9, "filename": "f", "mime_type": "text/plain", "purpose": "user_data"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@dataclass
class Office:
    """A daemon with clients of two keys and of an admin's, and what the first one has stored.
    things: by kind; unknown: ids of the same kinds that nobody has."""

    daemon: RunningDaemon
    a: httpx.Client
    b: httpx.Client
    boss: httpx.Client
    things: dict[str, str]

    @property
    def unknown(self) -> dict[str, str]:
        return {kind: ident[:-6] + "000000" for kind, ident in self.things.items()}


def make_key(http: httpx.Client, name: str, *scopes: str) -> str:
    made = http.post("/api/keys", json={"name": name, "scopes": list(scopes) or ["inference"]})
    assert made.status_code == 200, made.text
    return str(made.json()["key"])


def client_of(daemon: RunningDaemon, key: str) -> httpx.Client:
    http = daemon.client()
    http.headers["Authorization"] = f"Bearer {key}"
    return http


def upload(http: httpx.Client, data: bytes, purpose: str = "batch") -> httpx.Response:
    return http.post("/v1/files", files={"file": ("f", data)}, data={"purpose": purpose})


def line(ident: str, text: str, **more: Any) -> bytes:
    body = {"model": "echo", "messages": [{"role": "user", "content": text}], **more}
    made = {"custom_id": ident, "method": "POST", "url": CHAT, "body": body}
    return json.dumps(made).encode() + b"\n"


def begin_batch(http: httpx.Client, data: bytes) -> tuple[str, str]:
    """The ids of a batch and of its input."""
    file = upload(http, data).json()["id"]
    return str(create_batch(http, file).json()["id"]), file


def create_batch(http: httpx.Client, file: str) -> httpx.Response:
    asked = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
    return http.post("/v1/batches", json=asked)


def until_status(http: httpx.Client, path: str, *wanted: str) -> dict[str, Any]:
    limit = time.monotonic() + DEADLINE_S
    while (found := http.get(path).json()).get("status") not in wanted:
        assert time.monotonic() < limit, found
    return dict(found)


def respond(http: httpx.Client, **more: Any) -> httpx.Response:
    return http.post("/v1/responses", json={"model": "echo", "input": "a secret", **more})


def seen(http: httpx.Client) -> set[str]:
    lists = [http.get(f"/v1/{kind}").json()["data"] for kind in ("files", "batches")]
    return {item["id"] for found in lists for item in found}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    home = tmp_path_factory.mktemp("office")
    env = {"HEARTH_OFFLINE": "0", "HEARTH_SLOT_SAVE_PATH": str(home / "slots")}
    with (
        running_daemon(home, env=env) as daemon,
        daemon.client() as first,
        client_of(daemon, make_key(first, "boss", "admin")) as boss,
        client_of(daemon, make_key(boss, "a")) as a,
        client_of(daemon, make_key(boss, "b")) as b,
    ):
        batch, file = begin_batch(a, line("1", "a secret"))
        done = until_status(a, f"/v1/batches/{batch}", "completed")
        running = respond(a, input=ENDLESS, background=True).json()["id"]
        said = {"items": [{"role": "user", "content": "a secret"}]}
        conversation = a.post("/v1/conversations", json=said).json()["id"]
        items = a.get(f"/v1/conversations/{conversation}/items").json()
        things = {
            "conversation": conversation,
            "item": items["first_id"],
            "store": a.post("/v1/vector_stores", json={"file_ids": [file]}).json()["id"],
            "upload": a.post("/v1/uploads", json=UPLOAD).json()["id"],
            "file": file,
            "output": done["output_file_id"],
            "batch": batch,
            "response": respond(a).json()["id"],
            "running": running,
            "image": upload(a, PNG, "vision").json()["id"],
        }
        yield Office(daemon, a, b, boss, things)
        a.post(f"/v1/responses/{running}/cancel")


PATHS: Final[list[tuple[str, str, dict[str, Any] | None]]] = [
    *((method, path, None) for kind in ("file", "output") for method, path in (
        ("GET", f"/v1/files/{{{kind}}}"),
        ("GET", f"/v1/files/{{{kind}}}/content"),
        ("HEAD", f"/v1/files/{{{kind}}}/content"),
        ("DELETE", f"/v1/files/{{{kind}}}"),
        ("GET", f"/v1/files?after={{{kind}}}"),
    )),
    ("GET", "/v1/batches/{batch}", None),
    ("POST", "/v1/batches/{batch}/cancel", None),
    ("GET", "/v1/batches?after={batch}", None),
    *((method, path, None) for kind in ("response", "running") for method, path in (
        ("GET", f"/v1/responses/{{{kind}}}"),
        ("GET", f"/v1/responses/{{{kind}}}?stream=true"),
        ("GET", f"/v1/responses/{{{kind}}}/input_items"),
        ("POST", f"/v1/responses/{{{kind}}}/cancel"),
        ("DELETE", f"/v1/responses/{{{kind}}}"),
    )),
    *((method, path, None) for method, path in (
        ("GET", "/v1/conversations/{conversation}"),
        ("DELETE", "/v1/conversations/{conversation}"),
        ("GET", "/v1/conversations/{conversation}/items"),
        ("GET", "/v1/conversations/{conversation}/items/{item}"),
        ("DELETE", "/v1/conversations/{conversation}/items/{item}"),
    )),
    ("POST", "/v1/uploads/{upload}/complete", {"part_ids": []}),
    ("POST", "/v1/uploads/{upload}/cancel", None),
    ("POST", "/v1/uploads/{upload}/parts", None),
    *((method, path, None) for method, path in (
        ("GET", "/v1/vector_stores/{store}"),
        ("DELETE", "/v1/vector_stores/{store}"),
        ("GET", "/v1/vector_stores?after={store}"),
        ("GET", "/v1/vector_stores/{store}/files"),
        ("GET", "/v1/vector_stores/{store}/files/{file}"),
        ("GET", "/v1/vector_stores/{store}/files/{file}/content"),
        ("DELETE", "/v1/vector_stores/{store}/files/{file}"),
    )),
    ("POST", "/v1/vector_stores/{store}", {"name": "x"}),
    ("POST", "/v1/vector_stores/{store}/search", {"query": "a secret"}),
    ("POST", "/v1/vector_stores/{store}/files", {"file_id": "{file}"}),
    ("POST", "/v1/vector_stores", {"file_ids": ["{file}"]}),
    ("POST", "/v1/responses", {"model": "echo", "input": "x", "tools": [
        {"type": "file_search", "vector_store_ids": ["{store}"]}]}),
    ("POST", "/v1/conversations/{conversation}", {"metadata": {}}),
    ("POST", "/v1/conversations/{conversation}/items",
     {"items": [{"role": "user", "content": "x"}]}),
    ("POST", "/v1/responses", {"model": "echo", "input": "x", "conversation": "{conversation}"}),
    ("POST", "/v1/responses/compact", {"model": "echo", "previous_response_id": "{response}"}),
    ("POST", "/v1/batches",
     {"input_file_id": "{file}", "endpoint": CHAT, "completion_window": "24h"}),
    ("POST", "/v1/responses",
     {"model": "echo", "input": "go on", "previous_response_id": "{response}"}),
    ("POST", "/v1/responses",
     {"model": "echo", "input": [{"role": "user", "content": [
         {"type": "input_image", "file_id": "{image}"}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), PATHS, ids=lambda value: str(value)[:60])
def test_what_another_key_has_stored_is_as_if_it_were_not_there(
    office: Office, method: str, path: str, body: dict[str, Any] | None
) -> None:
    def ask(http: httpx.Client, ids: dict[str, str]) -> tuple[int, str]:
        sent = json.dumps(body)
        for kind, ident in ids.items():
            sent = sent.replace(f"{{{kind}}}", ident)
        asked = http.request(
            method, path.format(**ids), content=None if body is None else sent.encode()
        )
        text = asked.text
        for kind, ident in ids.items():
            text = text.replace(ident, f"<{kind}>")
        return asked.status_code, text

    assert ask(office.b, office.things) == ask(office.b, office.unknown)
    kinds = {office.a.get(f"/v1/{place}/{office.things[kind]}").status_code
             for place, kind in (("files", "file"), ("files", "output"), ("batches", "batch"),
                                 ("responses", "response"), ("responses", "running"),
                                 ("conversations", "conversation"),
                                 ("vector_stores", "store"))}  # fmt: skip
    assert kinds == {200}


def test_a_slot_is_saved_restored_and_erased_by_its_key_alone(office: Office) -> None:
    def change(http: httpx.Client, action: str, name: str = "secret.bin") -> httpx.Response:
        body = {"model": "ember", "filename": name}
        return http.post(f"/slots/0?action={action}", json=body)

    def computed(http: httpx.Client) -> int:
        text = "A long and secret story, told to nobody but the one who asks"
        body = {"model": "ember", "prompt": text, "n_predict": 2, "id_slot": 0}
        return int(http.post("/completion", json=body).json()["timings"]["prompt_n"])

    whole = computed(office.a)
    assert change(office.a, "save").status_code == 200
    for other in (office.b, office.boss):
        assert "holds nothing" in change(other, "save").text
        assert change(other, "erase").json()["n_erased"] == 0
        unknown = change(other, "restore", "unknown").text.replace("unknown", "secret.bin")
        assert change(other, "restore").text == unknown
    (file,) = (office.daemon.home / "slots").rglob("secret.bin")
    assert computed(office.b) == whole
    assert change(office.b, "save", "own").status_code == 200
    (own,) = (office.daemon.home / "slots").rglob("own")
    own.write_bytes(file.read_bytes())  # by someone who has the folder, but not the secret
    assert "another owner" in change(office.b, "restore", "own").text
    assert computed(office.a) == 1
    assert change(office.a, "restore").status_code == 200


def test_only_admins_use_the_owners_mcp_servers_and_private_addresses(office: Office) -> None:
    owners = [{"type": "mcp", "server_label": "files"}]
    at_home = [{**owners[0], "server_url": "http://127.0.0.1:9/mcp"}]
    assert respond(office.a, tools=owners).status_code == 403
    assert "no MCP server" in respond(office.boss, tools=owners).text
    refused = respond(office.a, tools=at_home)
    assert refused.status_code == 400
    assert "127.0.0.1 is not at a public address" in refused.text
    assert "mcp_server_failed" in respond(office.boss, tools=at_home).text


def test_lists_hold_what_is_ones_own_and_admins_see_all(office: Office) -> None:
    stored = {office.things[kind] for kind in ("file", "output", "batch", "image")}
    own = upload(office.b, b"mine").json()["id"]
    assert seen(office.b) == {own}
    assert seen(office.a) == stored
    token = json.loads((office.daemon.home / "state" / "daemon.json").read_text())["token"]
    with client_of(office.daemon, token) as owner:
        for everything in (office.boss, owner):
            assert seen(everything) >= stored | {own}  # and what other keys left
            answer = everything.get(f"/v1/responses/{office.things['response']}")
            assert answer.status_code == 200
    assert office.b.delete(f"/v1/files/{own}").status_code == 200


def test_ones_own_response_goes_on_and_is_streamed_and_deleted(office: Office) -> None:
    first = respond(office.b).json()["id"]
    second = respond(office.b, previous_response_id=first).json()
    assert second["status"] == "completed"
    assert office.b.delete(f"/v1/responses/{first}").status_code == 200


def test_the_stream_of_another_key_is_neither_read_nor_found_nor_ended(office: Office) -> None:
    asked = {"conv_id": "talk"}
    body = {"model": "echo", "stream": True, "messages": [{"role": "user", "content": "a secret"}]}
    said = office.a.post(CHAT, json=body, headers={"X-Conversation-Id": "talk"})
    assert said.text.rstrip().endswith("[DONE]")
    for other in (office.b, office.boss):
        assert other.get("/v1/stream", params=asked).status_code == 404
        found = other.post("/v1/streams/lookup", json={"conversation_ids": ["talk"]})
        assert found.json() == []
        assert other.delete("/v1/stream", params=asked).status_code == 204
    assert office.a.get("/v1/stream", params=asked).text == said.text


def test_the_end_of_a_key_ends_what_it_has_in_the_making(office: Office) -> None:
    c = client_of(office.daemon, make_key(office.boss, "c"))
    with c:
        endless = line("1", SLOW, ignore_eos=True, max_tokens=3000)
        batch, _ = begin_batch(c, endless)
        response = respond(c, input=ENDLESS, background=True).json()["id"]
        until_status(c, f"/v1/batches/{batch}", "in_progress")
        assert office.boss.delete("/api/keys/c").status_code == 200
        assert c.get(f"/v1/batches/{batch}").status_code == 401
        until_status(office.boss, f"/v1/batches/{batch}", "cancelled")
        until_status(office.boss, f"/v1/responses/{response}", "cancelled")
        again = client_of(office.daemon, make_key(office.boss, "c"))
        with again:
            assert again.get(f"/v1/batches/{batch}").status_code == 404


def test_a_batch_of_a_key_that_went_while_no_daemon_ran_is_cancelled(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    with daemon.client() as first:
        boss_key = make_key(first, "boss", "admin")
        with client_of(daemon, boss_key) as boss, client_of(daemon, make_key(boss, "a")) as a:
            batch, _ = begin_batch(a, line("1", SLOW, ignore_eos=True, max_tokens=3000))
            until_status(a, f"/v1/batches/{batch}", "in_progress")
    daemon.stop()
    path = next(daemon.home.rglob("keys.json"))
    keys = json.loads(path.read_text())
    path.write_text(json.dumps([key for key in keys if key["name"] == "boss"]))
    with client_of(start_daemon(home=daemon.home), boss_key) as boss:
        until_status(boss, f"/v1/batches/{batch}", "cancelled")


def test_one_key_cannot_take_all_the_room(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_MAX_FILES_SIZE": "1MB"})
    with daemon.client() as first:
        boss = client_of(daemon, make_key(first, "boss", "admin"))
        with boss, client_of(daemon, make_key(boss, "a")) as a:
            statuses = [upload(a, bytes(200_000), "user_data").status_code for _ in range(4)]
            assert statuses == [200, 200, 413, 413]
            with client_of(daemon, make_key(boss, "b")) as b:
                assert upload(b, bytes(200_000), "user_data").status_code == 200


def test_a_key_that_stores_without_end_takes_from_itself_only(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env={"HEARTH_MAX_FILES_SIZE": "200000"})
    with daemon.client() as first, client_of(daemon, make_key(first, "boss", "admin")) as boss:
        keys = [make_key(boss, name) for name in ("a", "b")]
    with client_of(daemon, keys[0]) as a, client_of(daemon, keys[1]) as b:
        input_file = upload(a, line("1", "x")).json()["id"]
        mine, others = respond(a).json()["id"], respond(b).json()["id"]
        many = [respond(a, input="x" * 3000).json()["id"] for _ in range(40)]
        assert a.get(f"/v1/responses/{mine}").status_code == 404
        assert a.get(f"/v1/responses/{many[-1]}").status_code == 200
        assert b.get(f"/v1/responses/{others}").status_code == 200
        while (last := upload(a, bytes(30_000))).status_code == 200:
            pass
        assert last.status_code == 413
        free = 100_000 - sum(item["bytes"] for item in a.get("/v1/files").json()["data"])
        assert upload(a, bytes(max(0, free))).status_code == 200
        refused = create_batch(a, input_file)
        assert refused.status_code == 413
        assert "HEARTH_MAX_FILES_SIZE" in refused.json()["error"]["message"]
        assert upload(b, bytes(30_000)).status_code == 200
