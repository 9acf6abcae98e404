"""hearth eval: the bundled model measured through the daemon."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_eval_tells_what_is_wrong_with_a_text(start_daemon: StartDaemon, tmp_path: Path) -> None:
    env, text = of_daemon(start_daemon()), tmp_path / "text.txt"
    text.write_text("too short")
    short = hearth(env, "eval", "ember", "--text", str(text))
    assert short.returncode != 0
    assert "give more text or a smaller context" in short.stderr
    text.write_bytes(b"\xff\xfe")
    garbled = hearth(env, "eval", "ember", "--text", str(text))
    assert "is not UTF-8: invalid byte at position 0" in garbled.stderr
