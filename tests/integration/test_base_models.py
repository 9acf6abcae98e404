"""A model without a chat template, ember's weights here, from its file to each surface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from registry.builtin import ember
from tests.conftest import RunningDaemon, StartDaemon
from tests.integration.cli_process import hearth, of_daemon

KEY = b"tokenizer.chat_template"
TEXT = "Once upon a time"
OPTIONS = {"temperature": 0, "num_predict": 8}


@pytest.fixture
def daemon(start_daemon: StartDaemon, tmp_path: Path) -> RunningDaemon:
    """A daemon with the model base."""
    pytest.importorskip("llama_cpp")
    content = (Path(ember.__file__).parent / "ember.gguf").read_bytes()
    assert KEY in content
    (tmp_path / "base.gguf").write_bytes(content.replace(KEY, b"unknown." + KEY[8:]))
    (tmp_path / "Modelfile").write_text("FROM ./base.gguf\n")
    daemon = start_daemon(names=())
    hearth(of_daemon(daemon), "create", "base", "-f", str(tmp_path / "Modelfile"))
    return daemon


def test_a_base_model_continues_the_text_on_every_surface(daemon: RunningDaemon) -> None:
    body: dict[str, Any] = {"model": "base", "stream": False, "options": OPTIONS}
    user = [{"role": "user", "content": TEXT}]
    with daemon.client() as http:
        raw = http.post("/api/generate", json={**body, "prompt": TEXT, "raw": True}).json()
        plain = http.post("/api/generate", json={**body, "prompt": TEXT}).json()
        chat = http.post("/api/chat", json={**body, "messages": user}).json()
        prompt = http.post("/apply-template", json={"model": "base", "messages": user}).json()
    assert raw["response"]
    assert plain["response"] == chat["message"]["content"] == raw["response"]
    assert plain["prompt_eval_count"] == raw["prompt_eval_count"]
    assert prompt["prompt"] == TEXT


def test_a_conversation_and_tools_are_refused(daemon: RunningDaemon) -> None:
    turns = [{"role": role, "content": "hi"} for role in ("user", "assistant", "user")]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    refusals = [
        (
            "/api/chat",
            {"messages": turns},
            "send one user message (this conversation has user, assistant, user)",
        ),
        ("/v1/chat/completions", {"messages": turns}, "create the model with a TEMPLATE"),
        ("/api/chat", {"messages": turns[:1], "tools": [tool]}, "base does not support tools"),
    ]
    with daemon.client() as http:
        for path, fields, message in refusals:
            answer = http.post(path, json={"model": "base", "stream": False, **fields})
            assert answer.status_code == 400
            assert "base model" in answer.text
            assert message in answer.text


def test_show_says_that_it_is_a_base_model(daemon: RunningDaemon) -> None:
    shown = hearth(of_daemon(daemon), "show", "base").stdout
    assert "base model: no chat template, continues a text" in shown
    assert "base model" not in hearth(of_daemon(daemon), "show", "ember").stdout
    with daemon.client() as http:
        answer = http.post("/api/show", json={"model": "base"}).json()
    assert (answer["capabilities"], answer["template"]) == (["completion"], "")


def test_turns_before_every_conversation_need_a_template(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "Turns"
    file.write_text("FROM base\nMESSAGE user hi\n")
    ran = hearth(of_daemon(daemon), "create", "turns", "-f", str(file))
    assert ran.returncode == 1
    assert "MESSAGE needs a chat template" in ran.stderr
    file.write_text(
        "FROM base\nMESSAGE user hi\nTEMPLATE {% for m in messages %}{{ m }}{% endfor %}"
    )
    assert hearth(of_daemon(daemon), "create", "turns", "-f", str(file)).returncode == 0
