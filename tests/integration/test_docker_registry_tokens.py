"""Push and pull against Debian's docker-registry that wants tokens of a token service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.integration import token_service
from tests.integration.cli_process import hearth, of_daemon
from tests.integration.docker_registry import PASSWORD, USER, docker_registry, needs_registry
from tests.integration.registry_front import front
from tests.integration.token_service import READER, TokenService, needs_openssl

pytestmark = [needs_registry, needs_openssl]


@dataclass(slots=True)
class Guarded:
    """A registry behind a token service. address: of both; registry: where it can be reached
    without the service, which is then at another origin."""

    address: str
    registry: str
    service: TokenService
    daemon: RunningDaemon
    env: dict[str, str]

    def login(self, user: str, password: str) -> tuple[int, str]:
        """Try to log in; gives the exit code and what was said of an error."""
        args = ("login", self.address, "-u", user, "--password-stdin")
        ran = hearth(self.env, *args, stdin=password.encode())
        return ran.returncode, ran.stderr

    def do(self, verb: str, name: str) -> str:
        """Push or pull a model; gives the last status, or the error."""
        with self.daemon.client() as http:
            told = http.post(f"/api/{verb}", json={"model": name, "stream": False}).json()
        return str(told.get("error", told.get("status")))

    def own(self, repository: str) -> str:
        """The model echo, under a name in the registry."""
        name = f"{self.address}/{repository}"
        with self.daemon.client() as http:
            http.post("/api/copy", json={"source": "echo", "destination": name})
        return name

    def drop(self, name: str) -> None:
        """Remove a model from the store, with its blobs: the model echo has them too."""
        with self.daemon.client() as http:
            for removed in (name, "echo"):
                http.request("DELETE", "/api/delete", json={"model": removed})


@pytest.fixture
def guarded(tmp_path: Path, start_daemon: StartDaemon) -> Iterator[Guarded]:
    """A daemon and the registry that it is to talk to."""
    folder = tmp_path / "registry"
    folder.mkdir()
    service = TokenService(folder)
    with front() as before:
        line = service.configuration(f"http://{before.address}{token_service.PATH}")
        with docker_registry(folder, line) as address:
            before.upstream = address
            before.routes[token_service.PATH] = service.answer
            daemon = start_daemon(env={"HEARTH_OFFLINE": "0"})
            yield Guarded(before.address, address, service, daemon, of_daemon(daemon))


def test_a_model_is_pushed_and_pulled_with_tokens_for_what_is_asked(guarded: Guarded) -> None:
    url = f"http://{guarded.address}/v2/team/model/tags/list"
    forged = httpx.get(url, headers={"Authorization": "Bearer a.b.c"}, trust_env=False)
    assert forged.status_code == 401, "the registry looks at the tokens"
    name = guarded.own("team/model:v1")
    assert guarded.login(USER, PASSWORD) == (0, "")
    pushed = hearth(guarded.env, "push", name)
    assert (pushed.returncode, pushed.stdout) == (0, f"pushed '{name}'\n"), pushed.stderr
    guarded.drop(name)
    pulled = hearth(guarded.env, "pull", name)
    assert pulled.returncode == 0, pulled.stderr
    answer = hearth(guarded.env, "run", name, "hello")
    assert answer.stdout == "hello\n", answer.stderr
    asked = {scope for user, scopes in guarded.service.asked for scope in scopes if user == USER}
    assert {scope.rpartition(":")[0] for scope in asked} == {"repository:team/model"}
    assert "repository:team/model:pull" in asked
    assert PASSWORD not in "".join(guarded.daemon.lines)


def test_a_wrong_password_is_refused_and_not_kept(guarded: Guarded) -> None:
    code, error = guarded.login(USER, "wrong")
    assert code != 0
    assert f"{guarded.address} rejected the credentials of '{USER}'" in error
    assert guarded.service.refused > 0
    assert not (guarded.daemon.home / "auth.json").exists()
    guarded.do("pull", f"{guarded.address}/public/none")
    assert [user for user, _ in guarded.service.asked] == [None]


def test_what_is_public_is_pulled_without_a_login_and_the_rest_names_the_command(
    guarded: Guarded,
) -> None:
    public, private = guarded.own("public/model"), guarded.own("team/model")
    assert f"hearth login {guarded.address}" in guarded.do("push", public)
    guarded.login(USER, PASSWORD)
    assert {guarded.do("push", name) for name in (public, private)} == {"success"}
    hearth(guarded.env, "logout", guarded.address)
    guarded.drop(public)
    assert guarded.do("pull", public) == "success"
    assert f"hearth login {guarded.address}" in guarded.do("pull", private)


def test_one_who_may_only_pull_is_told_that_the_registry_refuses_the_push(
    guarded: Guarded,
) -> None:
    name = guarded.own("team/model")
    assert guarded.login(READER, PASSWORD) == (0, "")
    refused = guarded.do("push", name)
    assert "denied access" in refused
    assert "401" in refused
    guarded.login(USER, PASSWORD)
    assert guarded.do("push", name) == "success"


def test_a_token_service_at_another_origin_is_sent_no_credentials(guarded: Guarded) -> None:
    args = ("login", guarded.registry, "-u", USER, "--password-stdin")
    refused = hearth(guarded.env, *args, stdin=PASSWORD.encode())
    assert refused.returncode != 0
    assert "another origin; no credentials were sent there" in refused.stderr
    assert (guarded.service.asked, guarded.service.refused) == ([], 0)
