"""hearth distill: a student of ember, trained for some steps, through the daemon."""

from __future__ import annotations

import importlib.util
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli.connection import new_client
from runner.settings import load
from tests.conftest import StartDaemon
from tests.integration.cli_process import hearth, of_daemon

TEXT = "<|endoftext|>".join(
    f"<|im_start|>user\nWhat is {a} plus {b}?<|im_end|>\n<|im_start|>assistant\n"
    f"{a} + {b} = {a + b}<|im_end|>\n"
    for a in range(8)
    for b in range(8)
)
ANSWER = ("<|im_start|>assistant\n", "<|im_end|>")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: make torch"
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A config and a text."""
    config, text = tmp_path / "config.json", tmp_path / "text.txt"
    config.write_text(json.dumps({"num_hidden_layers": 2, "intermediate_size": 128}))
    text.write_text(TEXT)
    return config, text


def command(files: tuple[Path, Path], *more: str) -> tuple[str, ...]:
    config, text = files
    return ("distill", "ember", "--student", str(config), "--text", str(text),
            "--answer", *ANSWER, "--steps", "20", "--threads", "1", *more)  # fmt: skip


@pytest.mark.slow
def test_a_student_is_trained_and_answers(
    start_daemon: StartDaemon, files: tuple[Path, Path], tmp_path: Path
) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon)
    plot = tmp_path / "loss.svg"
    done = hearth(env, *command(files, "--name", "pupil", "--plot", str(plot)))
    assert done.returncode == 0, done.stderr
    assert "pupil has 1." in done.stdout
    assert "was trained for 20 steps" in done.stdout
    assert "of its most likely tokens are the teacher's" in done.stdout
    assert plot.read_text().startswith("<svg")
    assert not list((daemon.home / "state" / "distill").iterdir())
    with daemon.client() as client:
        body = {"model": "pupil", "messages": [{"role": "user", "content": "1 + 1"}]}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        shown = client.post("/api/show", json={"model": "pupil"}).json()
        assert shown["model_info"]["llama.block_count"] == 2
        assert "im_start" in shown["template"]


@pytest.mark.slow
def test_an_interrupted_training_goes_on_and_ends_as_a_whole_one(
    start_daemon: StartDaemon, files: tuple[Path, Path]
) -> None:
    daemon = start_daemon()
    env = of_daemon(daemon)
    whole = hearth(env, *command(files, "--name", "whole", "--json"))
    assert whole.returncode == 0, whole.stderr
    expected = json.loads(whole.stdout.splitlines()[-1])

    client = new_client(load(env))
    digest = client_upload(client, files[1])
    body: dict[str, Any] = {
        "model": "ember", "name": "parts", "text": digest, "answer": ANSWER, "threads": 1,
        "steps": 20, "student": json.loads(files[0].read_text()),
    }  # fmt: skip
    with closing(client.distill(body)) as lines:
        first = next(line for line in lines if line["status"] == "training")
    assert 1 <= first["completed"] < 20
    assert first["state"]["loss"] > 0
    (kept,) = (daemon.home / "state" / "distill").iterdir()
    assert (kept / "targets").is_file()
    *_, again = client.distill(body)
    assert again["losses"] == expected["losses"]
    assert again["divergence"] == expected["divergence"]


def client_upload(client: Any, path: Path) -> str:
    """The digest of a file that the store has from now on."""
    from cli.upload import uploader

    with uploader(client, as_json=True) as delivery:
        return delivery.bring(path)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"hidden_size": 250}', "hidden_size is 250"),
        ('{"vocab_size": 3}', "vocab_size is 3"),
        ("[1]", "holds no JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_a_config_that_cannot_be_is_refused(
    start_daemon: StartDaemon, files: tuple[Path, Path], config: str, said: str
) -> None:
    files[0].write_text(config)
    refused = hearth(of_daemon(start_daemon()), *command(files))
    assert refused.returncode != 0
    assert said in refused.stderr


def test_a_text_without_answers_is_refused(
    start_daemon: StartDaemon, files: tuple[Path, Path]
) -> None:
    files[1].write_text("no answers here")
    refused = hearth(of_daemon(start_daemon()), *command(files))
    assert refused.returncode != 0
    assert "the text teaches nothing" in refused.stderr
