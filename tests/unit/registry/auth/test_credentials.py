from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from registry.auth.credentials import Credential, Credentials, docker_config
from registry.errors import StoreFault


def docker(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def pair(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_what_is_saved_is_found_for_that_host_only_and_forgotten(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "deep" / "auth.json", None)
    credentials.save("a.example:5000", Credential("anna", "pass:word"))
    assert credentials.find("a.example:5000") == Credential("anna", "pass:word")
    assert credentials.find("a.example") is None
    assert credentials.find("b.example") is None
    assert (tmp_path / "deep" / "auth.json").stat().st_mode & 0o777 == 0o600
    assert credentials.remove("a.example:5000") is True
    assert credentials.remove("a.example:5000") is False
    assert credentials.find("a.example:5000") is None


def test_the_configuration_of_docker_is_read(tmp_path: Path) -> None:
    config = docker(
        tmp_path / "config.json",
        {
            "auths": {
                "a.example": {"auth": pair("anna:one")},
                "https://b.example/v2/": {"auth": pair("bert:two")},
                "c.example": {"identitytoken": "token"},
                "https://index.docker.io/v1/": {"auth": pair("dora:three")},
            }
        },
    )
    credentials = Credentials(tmp_path / "none.json", config)
    assert credentials.find("a.example") == Credential("anna", "one")
    assert credentials.find("b.example") == Credential("bert", "two")
    assert credentials.find("c.example") == Credential("<token>", "token", identity=True)
    assert credentials.find("registry-1.docker.io") == Credential("dora", "three")


def test_a_credential_helper_of_docker_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        '#!/bin/sh\nread host\nprintf \'{"Username":"anna","Secret":"for %s"}\' "$host"\n'
    )
    helper.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    config = docker(tmp_path / "config.json", {"credHelpers": {"a.example": "test"}})
    credentials = Credentials(tmp_path / "none.json", config)
    assert credentials.find("a.example") == Credential("anna", "for a.example")
    assert credentials.find("b.example") is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"auths": []},
        {"auths": {"a.example": "text"}},
        {"auths": {"a.example": {"auth": "%%%"}}},
        {"auths": {"a.example": {"auth": pair("no colon")}}},
        {"credHelpers": {"a.example": "../../bin/sh"}},
        {"credHelpers": {"a.example": "there-is-no-such-helper"}},
    ],
)
def test_strange_configurations_hold_nothing(value: object, tmp_path: Path) -> None:
    config = docker(tmp_path / "config.json", value)
    assert Credentials(tmp_path / "none.json", config).find("a.example") is None


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    credentials = Credentials(tmp_path / "file" / "auth.json", None)
    with pytest.raises(StoreFault, match="credentials"):
        credentials.save("a.example", Credential("anna", "one"))


def test_a_password_is_not_in_the_text_of_a_credential() -> None:
    assert "secret" not in repr(Credential("anna", "secret"))


def test_docker_config_may_lie_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", "/elsewhere")
    assert docker_config() == Path("/elsewhere/config.json")
    monkeypatch.delenv("DOCKER_CONFIG")
    assert docker_config().name == "config.json"
