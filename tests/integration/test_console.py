"""What the page's models, activity and settings views ask: memory plans, pulls in the background,
Modelfiles, the requests in flight, the log and the settings."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon, running_daemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import hearth, of_daemon
from tests.integration.test_pull import CHUNK, keep_up
from tests.registry_server import FakeRegistry, fake_registry

SETTINGS = {
    "HEARTH_OFFLINE": "0",
    "HEARTH_API_KEY": "secret-canary",
    "OLLAMA_KEEP_ALIVE": "7m",
    "HEARTH_MEMORY_LIMIT": "3GiB",
}
CONTENT = echo_gguf(salt="background") + bytes(range(250)) * 12_000
PROMPT = "prompt-canary"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running_daemon(tmp_path_factory.mktemp("console"), env=SETTINGS) as running:
        yield running


@pytest.fixture
def http(daemon: RunningDaemon) -> Iterator[httpx.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def remote() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        registry.add_model("t/m", CONTENT)
        yield registry


def given(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def eventually(ask: Callable[[], Any]) -> Any:
    """What ask gives as soon as that is something."""
    for _ in range(6000):
        if found := ask():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come within a minute")


class Gate:
    """Holds a registry's blobs back after half of CONTENT until it is opened."""

    def __init__(self, daemon: RunningDaemon, remote: FakeRegistry) -> None:
        self._daemon, self._remote = daemon, remote
        self.opened, self.reached = threading.Event(), threading.Event()
        remote.before_part = self._hold

    def _hold(self, served_bytes: int) -> None:
        keep_up(self._daemon, served_bytes - 3 * CHUNK, self.opened)
        if served_bytes > len(CONTENT) // 2:
            self.reached.set()
            self.opened.wait(60)

    def open(self) -> None:
        self._remote.before_part = None
        self.opened.set()


def pull_of(http: httpx.Client, number: int) -> dict[str, Any]:
    pulls = given(http.get("/api/pulls"))["pulls"]
    return next(pull for pull in pulls if pull["number"] == number)


def partials(daemon: RunningDaemon) -> list[str]:
    return [path.name for path in (daemon.home / "models" / "tmp").glob("partial-*")]


def test_a_pull_in_the_background_is_paused_and_goes_on(
    daemon: RunningDaemon, http: httpx.Client, remote: FakeRegistry
) -> None:
    gate, model = Gate(daemon, remote), f"{remote.address}/t/m"
    with daemon.client() as another:  # it leaves at once
        number = given(another.post("/api/pulls", json={"model": model}))["number"]
    assert gate.reached.wait(60)
    assert pull_of(http, number)["phase"] == "running"
    assert given(http.post("/api/pulls", json={"model": model}))["number"] == number
    assert given(http.post(f"/api/pulls/{number}/pause"))["phase"] == "paused"
    assert partials(daemon), "what has arrived stays"
    gate.open()
    remote.await_quiet()
    remote.served_bytes = 0
    given(http.post(f"/api/pulls/{number}/resume"))
    done = eventually(lambda: (pull := pull_of(http, number))["phase"] == "done" and pull)
    assert (done["name"], done["error"]) == (model, None)
    assert 0 < remote.served_bytes < len(CONTENT) * 2 // 3, "the rest only"
    assert given(http.delete(f"/api/pulls/{number}")) == {"status": "success"}
    assert http.delete(f"/api/pulls/{number}").status_code == 404
    names = [each["name"] for each in given(http.get("/api/tags"))["models"]]
    assert f"{model}:latest" in names
    http.request("DELETE", "/api/delete", json={"model": model})


def test_a_cancelled_pull_leaves_nothing(
    daemon: RunningDaemon, http: httpx.Client, remote: FakeRegistry
) -> None:
    gate = Gate(daemon, remote)
    number = given(http.post("/api/pulls", json={"model": f"{remote.address}/t/m"}))["number"]
    assert gate.reached.wait(60)
    given(http.delete(f"/api/pulls/{number}"))
    gate.open()
    assert partials(daemon) == []
    assert all(pull["number"] != number for pull in given(http.get("/api/pulls"))["pulls"])


def test_a_pull_that_fails_says_why_and_can_be_tried_again(
    http: httpx.Client, remote: FakeRegistry
) -> None:
    model = f"{remote.address}/t/missing"
    number = given(http.post("/api/pulls", json={"model": model}))["number"]
    failed = eventually(lambda: (pull := pull_of(http, number))["phase"] == "failed" and pull)
    assert "t/missing" in failed["error"]
    remote.add_model("t/missing", CONTENT)
    given(http.post(f"/api/pulls/{number}/resume"))
    eventually(lambda: pull_of(http, number)["phase"] == "done")
    http.request("DELETE", "/api/delete", json={"model": model})


def test_the_memory_of_a_model_is_told_before_it_is_loaded(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(env=SETTINGS)  # where nothing is loaded, and nothing ends yet
    with daemon.client() as http:
        before = given(http.post("/api/plan", json={"model": "echo"}))
        assert before["fits"] == "now"
        assert 0 < before["needed"] < before["free"] <= 3 << 30, "of HEARTH_MEMORY_LIMIT"
        parts = before["weights"] + before["cache"] + before["compute"]
        assert before["needed"] == parts - before["gpu"]
        given(http.post("/api/generate", json={"model": "echo", "prompt": "x", "stream": False}))
        loaded = given(http.post("/api/plan", json={"model": "echo"}))
        assert loaded["fits"] == "loaded"
        assert loaded["free"] < before["free"], "by what the loaded one takes"
        assert http.post("/api/plan", json={"model": "no-such"}).status_code == 404
        wrong = http.post("/api/plan", json={"model": "echo", "options": {"num_ctx": "many"}})
        assert wrong.status_code == 400


def test_a_modelfile_is_checked_in_place(http: httpx.Client) -> None:
    faulty = "FROM ./missing.gguf\nPARAMETER temprature 1\n  PARAMETER top_k many\nBANANA 1\n"
    answer = given(http.post("/api/check", json={"modelfile": faulty}))
    assert [each["line"] for each in answer["errors"]] == [1, 2, 3, 4]
    assert "temperature" in answer["errors"][1]["message"], "what was meant"
    assert answer["errors"][2]["column"] == 3
    assert answer["request"] is None
    unknown = given(http.post("/api/check", json={"modelfile": "FROM not-here\n"}))
    assert (unknown["errors"], unknown["notes"][0]["line"]) == ([], 1)
    assert "not installed" in unknown["notes"][0]["message"]


def test_an_uploaded_file_becomes_a_model_by_a_checked_modelfile(http: httpx.Client) -> None:
    stored = given(http.post("/api/blobs/upload", content=echo_gguf(salt="dropped")))
    assert stored["size"] == len(echo_gguf(salt="dropped"))
    answer = given(
        http.post(
            "/api/check",
            json={
                "modelfile": 'FROM ./m.gguf\nSYSTEM """Be kind."""\nPARAMETER stop a\n',
                "files": {"m.gguf": stored["digest"]},
            },
        )
    )
    assert (answer["errors"], answer["notes"]) == ([], [])
    made = http.post("/api/create", json={"model": "dropped", **answer["request"]})
    assert json.loads(made.text.splitlines()[-1]) == {"status": "success"}
    shown = given(http.post("/api/show", json={"model": "dropped"}))
    assert (shown["system"], shown["parameters"].split()) == ("Be kind.", ["stop", "a"])


def test_a_request_in_flight_is_listed_and_cancelled(http: httpx.Client) -> None:
    answers: list[httpx.Response] = []
    body = {
        "model": "ember",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 100_000,
        "min_tokens": 90_000,
        "stream": True,
    }

    def ask(client: httpx.Client, **headers: str) -> None:
        answers.append(client.post("/v1/chat/completions", json=body, headers=headers))

    def running() -> list[dict[str, Any]]:
        requests = given(http.get("/api/requests"))["requests"]
        return [each for each in requests if each["model"] == "ember"]

    for headers in ({}, {"x-conversation-id": "resumable"}):
        with httpx.Client(base_url=http.base_url, timeout=120.0) as client:
            asking = threading.Thread(target=ask, args=(client,), kwargs=headers)
            asking.start()
            [entry] = eventually(running)
            assert (entry["method"], entry["path"]) == ("POST", "/v1/chat/completions")
            assert entry["client"].startswith("uid ")
            assert PROMPT not in json.dumps(entry)
            given(http.delete(f"/api/requests/{entry['number']}"))
            asking.join(60)
        last = answers[-1].text.strip().splitlines()[-1] if answers[-1].text else ""
        assert "request_cancelled" in last, last[-300:]
        assert running() == []
        assert http.delete(f"/api/requests/{entry['number']}").status_code == 404
    assert http.delete("/api/requests/many").status_code == 400


def test_the_log_is_told_by_level_and_from_a_number_on(http: httpx.Client) -> None:
    http.post("/models/load", json={"model": "echo"})
    whole = given(http.get("/api/log"))
    numbers = [entry["number"] for entry in whole["entries"]]
    assert numbers == sorted(numbers)
    assert any("listens on" in entry["message"] for entry in whole["entries"])
    assert PROMPT not in json.dumps(whole)
    newest = given(http.get("/api/log", params={"after": numbers[-1] - 1, "limit": 1}))["entries"]
    assert len(newest) == 1
    assert newest[0]["number"] >= numbers[-1]
    warnings = given(http.get("/api/log", params={"level": "warning"}))["entries"]
    assert {entry["level"] for entry in warnings} <= {"warning", "error"}
    assert http.get("/api/log", params={"level": "loud"}).status_code == 400
    assert http.get("/api/log", params={"after": "-1"}).status_code == 400


def test_settings_are_told_with_their_sources_and_without_secrets(http: httpx.Client) -> None:
    answer = given(http.get("/api/settings"))
    entries = {entry["name"]: entry for entry in answer["settings"]}
    kept = entries["keep_alive"]
    assert (kept["value"], kept["source"]) == ("7m", "OLLAMA_KEEP_ALIVE")
    assert entries["num_parallel"]["source"] is None
    assert entries["num_parallel"]["value"] == "16"
    assert entries["api_key"]["source"] == "HEARTH_API_KEY"
    assert "secret-canary" not in json.dumps(answer)
    assert answer["public"] is False


def test_what_belongs_to_the_owner_needs_an_admin_key(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    keys = {}
    for name, scope in (("reader", "inference"), ("puller", "pull"), ("boss", "admin")):
        made = hearth(of_daemon(daemon), "key", "add", name, "--scope", scope)
        keys[name] = {"authorization": f"Bearer {made.stdout.strip()}"}
    with daemon.client() as http:
        for method, path in (
            ("GET", "/api/requests"),
            ("DELETE", "/api/requests/1"),
            ("GET", "/api/log"),
            ("GET", "/api/settings"),
            ("POST", "/api/check"),
        ):
            for name in ("reader", "puller"):
                assert http.request(method, path, headers=keys[name]).status_code == 403, path
        assert http.get("/api/pulls", headers=keys["reader"]).status_code == 403
        mine = http.post("/api/pulls", json={"model": "t/m"}, headers=keys["puller"]).json()
        started = http.post("/api/pulls", json={"model": "t/m"}, headers=keys["boss"]).json()
        assert mine["number"] != started["number"]
        seen = http.get("/api/pulls", headers=keys["puller"]).json()["pulls"]
        assert [pull["number"] for pull in seen] == [mine["number"]]
        other = f"/api/pulls/{started['number']}"
        assert http.delete(other, headers=keys["puller"]).status_code == 404
        assert len(http.get("/api/pulls", headers=keys["boss"]).json()["pulls"]) == 2
        requests = http.get("/api/requests", headers=keys["boss"])
        assert requests.status_code == 200
