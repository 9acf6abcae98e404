"""hearth check and hearth render as processes, without a daemon and beside one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.integration.cli_process import environment, free_address, hearth, of_daemon

FAULTY = """\
FROM ./missing.gguf
PARAMETER temprature 1
PARAMETER top_k many
TEMPLATE {{ if }}
ADAPTER ./lora
REQUIRES 99.0
"""
BY_ROLE = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"


@pytest.fixture
def modelfile(tmp_path: Path) -> Path:
    return tmp_path / "Modelfile"


def test_all_errors_are_found_without_a_daemon(modelfile: Path, tmp_path: Path) -> None:
    env = environment(tmp_path / "home", free_address())
    modelfile.write_text(FAULTY)
    ran = hearth(env, "check", str(modelfile))
    assert ran.returncode == 1
    assert ran.stdout == ""
    for line in range(1, 7):
        assert f"line {line}, column 1: " in ran.stderr
    assert ran.stderr.endswith("Modelfile: 6 errors\n")
    modelfile.write_text("FROM echo\nPARAMETER top_k 5\n")
    ran = hearth(env, "check", str(modelfile))
    assert (ran.returncode, ran.stdout) == (0, f"{modelfile}: 2 commands, no errors\n")
    assert "not checked whether echo is installed" in ran.stderr


def test_a_daemon_says_which_models_it_has(start_daemon: StartDaemon, modelfile: Path) -> None:
    env = of_daemon(start_daemon(names=("echo",)))
    modelfile.write_text("FROM echo\n")
    ran = hearth(env, "check", str(modelfile))
    assert (ran.returncode, ran.stderr) == (0, "")
    modelfile.write_text("FROM absent\n")
    ran = hearth(env, "check", str(modelfile))
    assert ran.returncode == 0
    assert "absent is not installed; hearth create pulls it first" in ran.stderr


def test_create_refuses_what_check_finds(start_daemon: StartDaemon, modelfile: Path) -> None:
    daemon = start_daemon(names=("echo",))
    modelfile.write_text("FROM echo\nPARAMETER top_k many\nREQUIRES 0.33\n")
    ran = hearth(of_daemon(daemon), "create", "mine", "-f", str(modelfile))
    assert ran.returncode == 1
    assert "line 2, column 1: parameter top_k is 'many'" in ran.stderr
    assert "line 3, column 1: REQUIRES 0.33 is newer than Ollama 0.32" in ran.stderr
    with daemon.client() as http:
        body = {"model": "mine", "from": "echo", "requires": "0.33", "stream": False}
        assert "REQUIRES 0.33 is newer" in http.post("/api/create", json=body).text


def test_render_refuses_a_role_that_the_models_template_drops(
    start_daemon: StartDaemon, modelfile: Path, tmp_path: Path
) -> None:
    env = of_daemon(start_daemon(names=("echo",)))
    modelfile.write_text(f"FROM echo\nTEMPLATE {BY_ROLE}\n")
    assert hearth(env, "create", "mine", "-f", str(modelfile)).returncode == 0
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    assert hearth(env, "render", "mine", "--messages", str(messages)).stdout == "hi"
    messages.write_text(json.dumps([{"role": "wizard", "content": "Abra"}]))
    ran = hearth(env, "render", "mine", "--messages", str(messages))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "the template has no place for the role 'wizard'" in ran.stderr
