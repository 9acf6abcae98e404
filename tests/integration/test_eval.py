"""hearth eval: the bundled model measured through the daemon."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from cli.connection import new_client
from cli.eval_state import EvalState
from runner.settings import load
from tests.conftest import StartDaemon
from tests.integration.cli_process import hearth, of_daemon

TEXT = "The hearth keeps the house warm. What is the capital of France? It is Paris. " * 40


def test_eval_measures_and_compares_models(start_daemon: StartDaemon, tmp_path: Path) -> None:
    env, text = of_daemon(start_daemon()), tmp_path / "text.txt"
    text.write_text(TEXT)
    done = hearth(env, "eval", "ember", "ember", "--text", str(text), "--context", "64", "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["results"]
    assert first == second
    assert first["perplexity"] > 1
    assert first["standard_error"] > 0
    assert (first["ratio"], first["context"]) == (1.0, 64)
    assert first["tokens"] == 31 * first["chunks"]


def test_an_interrupted_eval_goes_on_where_it_was(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    daemon = start_daemon()
    env, text = of_daemon(daemon), tmp_path / "text.txt"
    text.write_text(TEXT)
    body = {"model": "ember", "text": TEXT, "context": 64}
    client = new_client(load(env))
    *_, whole = client.evaluate(body)
    with closing(client.evaluate(body)) as lines:
        state = next(line["state"] for line in lines if line["completed"] >= 1)
    saved = EvalState(load(env).state_dir / "eval", "ember", text, TEXT, 64)
    saved.save(state)
    command = ("eval", "ember", "--text", str(text), "--context", "64", "--json")
    done = hearth(env, *command)
    assert f"ember: continuing after {state['chunks']} of {whole['chunks']} chunks" in done.stderr
    assert json.loads(done.stdout)["results"][0]["perplexity"] == whole["perplexity"]
    assert not list(saved.file.parent.iterdir())

    saved.save({**state, "digest": "sha256:0", "total": 1e9})
    done = hearth(env, *command)
    assert "ember: the saved state is from another model: starting again" in done.stderr
    assert json.loads(done.stdout)["results"][0]["perplexity"] == whole["perplexity"]


def test_eval_tells_what_is_wrong_with_a_text(start_daemon: StartDaemon, tmp_path: Path) -> None:
    env, text = of_daemon(start_daemon()), tmp_path / "text.txt"
    text.write_text("too short")
    short = hearth(env, "eval", "ember", "--text", str(text))
    assert short.returncode != 0
    assert "give more text or a smaller context" in short.stderr
    text.write_bytes(b"\xff\xfe")
    garbled = hearth(env, "eval", "ember", "--text", str(text))
    assert "is not UTF-8: invalid byte at position 0" in garbled.stderr
