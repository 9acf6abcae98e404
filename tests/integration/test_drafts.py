"""DRAFT and draft_num_predict, through the daemon, with llama.cpp and ember."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.gguf_files import llama_file
from tests.integration.cli_process import hearth, of_daemon

TOOL = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}},
    },
}
EMBER = Path(__file__).parents[2] / "registry/builtin/ember/ember.gguf"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RunningDaemon:
    return start_daemon(names=())


def create(
    daemon: RunningDaemon, folder: Path, lines: str, *options: str, name: str = "drafted"
) -> None:
    (folder / "Modelfile").write_text(f"FROM ember\n{lines}")
    ran = hearth(of_daemon(daemon), "create", name, *options, cwd=folder)
    assert ran.returncode == 0, ran.stderr


def create_plain(daemon: RunningDaemon, folder: Path) -> None:
    """plain: ember without drafts, a model to itself."""
    create(daemon, folder, "PARAMETER draft_num_predict 0\n", name="plain")


def answer(daemon: RunningDaemon, model: str, **options: Any) -> str:
    body = {
        "model": model,
        "prompt": "Tell me a story about a cat.",
        "stream": False,
        "options": {"temperature": 0, "num_predict": 120, **options},
    }
    with daemon.client() as http:
        told = http.post("/api/generate", json=body)
    assert told.status_code == 200, told.text
    return str(told.json()["response"])


def counted(daemon: RunningDaemon, name: str) -> float:
    with daemon.client() as http:
        lines = http.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith(f'{name}{{model_name="drafted"')]
    return float(line.rpartition(" ")[2])


def test_a_draft_model_changes_no_answer_and_its_tokens_are_counted(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    shutil.copy(EMBER, tmp_path / "small.gguf")
    create(
        daemon, tmp_path, "DRAFT ./small.gguf\n", "--draft-quantize", "Q4_0", "--allow-requantize"
    )
    with daemon.client() as http:
        shown = http.post("/api/show", json={"model": "drafted"}).json()
    assert shown["draft"]["quantization_level"] == "Q4_0"
    create_plain(daemon, tmp_path)
    assert answer(daemon, "drafted") == answer(daemon, "plain")
    hot = {"temperature": 0.9, "seed": 7}
    assert answer(daemon, "drafted", **hot) == answer(daemon, "plain", **hot)
    proposed = counted(daemon, "vllm:spec_decode_num_draft_tokens_total")
    confirmed = counted(daemon, "vllm:spec_decode_num_accepted_tokens_total")
    assert 0 < confirmed <= proposed


def test_a_draft_model_may_be_one_of_the_library(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "Modelfile").write_text("FROM ember\n")
    small = ("create", "small", "-q", "Q4_0", "--allow-requantize")
    assert hearth(of_daemon(daemon), *small, cwd=tmp_path).returncode == 0
    create(daemon, tmp_path, "DRAFT small\n")
    with daemon.client() as http:
        shown = http.post("/api/show", json={"model": "drafted"}).json()
        assert shown["draft"]["quantization_level"] == "Q4_0"
        create_plain(daemon, tmp_path)
        assert answer(daemon, "drafted") == answer(daemon, "plain")
        assert counted(daemon, "vllm:spec_decode_num_draft_tokens_total") > 0
        http.request("DELETE", "/api/delete", json={"model": "small"})
        http.post("/api/gc", json={"grace_s": 0})
    assert "draft model" in hearth(of_daemon(daemon), "show", "drafted").stdout
    assert answer(daemon, "drafted", num_predict=5)  # its file stays for those who use it


def test_the_draft_model_of_the_library_is_quantized_as_asked(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    create(daemon, tmp_path, "DRAFT ember\n", "--draft-quantize", "Q4_0", "--allow-requantize")
    with daemon.client() as http:
        shown = http.post("/api/show", json={"model": "drafted"}).json()
    assert shown["draft"]["quantization_level"] == "Q4_0"


def test_a_name_that_is_no_draft_model_is_refused(daemon: RunningDaemon, tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(llama_file())
    (tmp_path / "Modelfile").write_text("FROM ./other.gguf\n")
    assert hearth(of_daemon(daemon), "create", "other", cwd=tmp_path).returncode == 0
    for name, code, message in (
        ("nowhere", 3, "model 'nowhere' not found"),
        ("ember", 1, "DRAFT is the model itself; name a smaller model with the same vocabulary"),
        ("other", 1, "both need the same vocabulary"),
    ):
        (tmp_path / "Modelfile").write_text(f"FROM ember\nDRAFT {name}\n")
        ran = hearth(of_daemon(daemon), "create", "drafted", cwd=tmp_path)
        assert ran.returncode == code
        assert message in ran.stderr
    (tmp_path / "Modelfile").write_text("FROM ember\nDRAFT nowhere\n")
    checked = hearth(of_daemon(daemon), "check", "Modelfile", cwd=tmp_path)
    assert "nowhere is not installed; hearth create pulls it first" in checked.stderr


def test_many_clients_are_told_the_same_with_drafts_and_without(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    create(daemon, tmp_path, "")
    create_plain(daemon, tmp_path)
    question = {"role": "user", "content": "Say the colours of the rainbow, three times over."}
    thing = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    things = {"type": "array", "items": thing, "minItems": 3, "maxItems": 5}
    bodies = [
        {"temperature": 0},
        {"temperature": 0, "format": things},
        {"temperature": 0.9, "seed": 3, "format": things},
        {"temperature": 0, "repeat_penalty": 1.2, "tools": [TOOL]},
        *({"temperature": 1.1, "seed": seed} for seed in range(4)),
    ]

    def told(model: str, given: dict[str, Any]) -> Any:
        body = {"model": model, "messages": [question], "stream": False}
        body |= {name: given[name] for name in ("format", "tools") if name in given}
        options = {name: value for name, value in given.items() if name not in body}
        with daemon.client(120) as http:
            answer = http.post("/api/chat", json=body | {"options": options | {"num_predict": 96}})
        assert answer.status_code == 200, answer.text
        return answer.json()["message"]

    expected = [told("plain", given) for given in bodies]
    with ThreadPoolExecutor(len(bodies)) as clients:
        for _ in range(2):  # the second time the first answers are known
            assert list(clients.map(lambda given: told("drafted", given), bodies)) == expected
    assert counted(daemon, "vllm:spec_decode_num_accepted_tokens_total") > 100


def test_the_file_of_the_model_itself_is_no_draft(daemon: RunningDaemon, tmp_path: Path) -> None:
    shutil.copy(EMBER, tmp_path / "same.gguf")
    (tmp_path / "Modelfile").write_text("FROM ./same.gguf\nDRAFT ./same.gguf\n")
    ran = hearth(of_daemon(daemon), "create", "drafted", cwd=tmp_path)
    assert ran.returncode == 1
    assert "DRAFT ./same.gguf is the model itself; name a smaller model" in ran.stderr
