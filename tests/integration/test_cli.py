"""The hearth command against a real daemon."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.conftest import RunningDaemon, StartDaemon
from tests.echo_models import echo_gguf
from tests.integration.cli_process import (
    COMMAND,
    TIMEOUT_S,
    environment,
    free_address,
    hearth,
    of_daemon,
)


@pytest.fixture
def env(shared_daemon: RunningDaemon) -> dict[str, str]:
    """The environment of commands that talk to the shared daemon."""
    return of_daemon(shared_daemon)


def test_one_answer_is_printed_on_stdout_alone(env: dict[str, str]) -> None:
    ran = hearth(env, "run", "echo", "one", "two")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "one two\n", "")


def test_a_pipe_comes_before_the_prompt_and_utf8_survives(env: dict[str, str]) -> None:
    ran = hearth(env, "run", "echo", "— und mehr", stdin="naïve 漢字 🦊\n".encode())
    assert ran.stdout == "naïve 漢字 🦊 — und mehr\n"


def test_parameters_reach_the_model(env: dict[str, str]) -> None:
    assert hearth(env, "run", "echo", "abcdef", "-p", "num_predict=3").stdout == "abc\n"
    assert hearth(env, "run", "echo", "abcdef", "-p", "stop=d").stdout == "abc\n"


def test_json_is_the_whole_answer_with_its_counts(env: dict[str, str]) -> None:
    ran = hearth(env, "run", "echo", "abcdef", "--json", "-p", "num_predict=3")
    answer = json.loads(ran.stdout)
    assert (answer["response"], answer["eval_count"], answer["limit"]) == ("abc", 3, "num_predict")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_limit_of_the_model_is_said(start_daemon: StartDaemon, tmp_path: Path) -> None:
    env = of_daemon(start_daemon(names=("echo",)))
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text("FROM echo\nPARAMETER num_predict 3\n")
    assert hearth(env, "create", "short", "-f", str(modelfile)).returncode == 0
    ran = hearth(env, "run", "short", "abcdef")
    assert (ran.returncode, ran.stdout) == (0, "abc\n")
    assert "the answer was cut off at num_predict, 3 tokens" in ran.stderr


def test_an_answer_cut_by_a_limit_that_nobody_set_says_so_and_ends_with_4(
    env: dict[str, str],
) -> None:
    options = ("-p", "repeat_limit=200", "-p", "num_ctx=2048")
    ran = hearth(env, "run", "echo", "--raw", "again " * 100, *options)
    assert ran.returncode == 4
    assert ran.stdout.startswith("again again ")
    assert "the answer was cut off because it only repeated itself" in ran.stderr


def test_what_a_context_left_out_and_a_smaller_one_are_said(env: dict[str, str]) -> None:
    letters = "abcdefghij" * 20
    ran = hearth(env, "run", "echo", letters, "-p", "num_ctx=256")
    assert ran.returncode == 0
    assert "the context was full: the answer continued without the oldest" in ran.stderr
    ran = hearth(env, "run", "echo", "hi", "-p", "num_ctx=99999")
    assert (ran.returncode, ran.stdout) == (0, "hi\n")
    assert ran.stderr == "(num_ctx=99999 is more than the model has: 4096 is used)\n"


def test_the_same_seed_gives_the_same_answer(env: dict[str, str]) -> None:
    options = ("--temperature", "1", "--seed", "7")
    first, second = (hearth(env, "run", "echo", "a" * 60, *options).stdout for _ in range(2))
    assert first == second != "a" * 60 + "\n"


def test_a_raw_prompt_has_no_template(env: dict[str, str]) -> None:
    counts = [
        json.loads(hearth(env, "run", "echo", "abc", "--json", *raw).stdout)["prompt_eval_count"]
        for raw in ((), ("--raw",))
    ]
    assert counts[0] > counts[1] == len("abc") + 1  # the token that begins every prompt


def test_a_model_file_is_run_by_its_path(start_daemon: StartDaemon, tmp_path: Path) -> None:
    env = of_daemon(start_daemon(names=()))
    (tmp_path / "my.gguf").write_bytes(echo_gguf())
    ran = hearth(env, "run", "./my.gguf", "hello", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "hello\n")
    again = hearth(env, "run", "local/my", "again")
    assert (again.returncode, again.stdout, again.stderr) == (0, "again\n", "")
    assert hearth(env, "run", "./none.gguf", "x", cwd=tmp_path).returncode == 1


def test_text_of_another_encoding_is_shown_as_far_as_it_goes(env: dict[str, str]) -> None:
    ran = hearth(env | {"PYTHONIOENCODING": "latin-1"}, "run", "echo", "a 漢 b")
    assert (ran.returncode, ran.stdout) == (0, "a ? b\n")


def test_verbose_prints_the_timings_on_stderr(env: dict[str, str]) -> None:
    ran = hearth(env, "run", "echo", "hi", "--verbose")
    assert ran.stdout == "hi\n"
    labels = [line.partition(":")[0] for line in ran.stderr.split("\n") if line]
    assert labels[0] == "total duration"
    assert labels[-3:] == ["eval count", "eval duration", "eval rate"]


def test_loading_listing_and_stopping_a_model(start_daemon: StartDaemon) -> None:
    env = of_daemon(start_daemon(names=("echo",)))
    assert hearth(env, "run", "echo", "", "--keepalive", "10m").returncode == 0
    loaded = json.loads(hearth(env, "ps", "--json").stdout)["models"]
    assert [model["name"] for model in loaded] == ["echo:latest"]
    assert "minutes from now" in hearth(env, "ps").stdout
    assert hearth(env, "stop", "echo").returncode == 0
    assert json.loads(hearth(env, "ps", "--json").stdout) == {"models": []}


def test_a_model_is_created_copied_shown_listed_and_removed(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    env = of_daemon(start_daemon(names=()))
    (tmp_path / "weights.gguf").write_bytes(echo_gguf())
    (tmp_path / "Modelfile").write_text(
        'FROM ./weights.gguf\nPARAMETER num_predict 4\nSYSTEM """Be\nbrief."""\n'
    )
    created = hearth(env, "create", "mine", cwd=tmp_path)
    assert (created.returncode, created.stdout) == (0, "created 'mine'\n"), created.stderr
    assert created.stderr.endswith("success\n")
    assert hearth(env, "run", "mine", "abcdefg").stdout == "abcd\n"
    assert hearth(env, "show", "mine", "--system").stdout == "Be\nbrief.\n"
    assert "num_predict" in hearth(env, "show", "mine", "--parameters").stdout
    (tmp_path / "Child").write_text("FROM mine\nPARAMETER num_predict 2\n")
    assert hearth(env, "create", "child", "-f", str(tmp_path / "Child")).returncode == 0
    assert hearth(env, "run", "child", "abcdefg").stdout == "ab\n"
    assert hearth(env, "cp", "mine", "copy:v1").returncode == 0
    names = [model["name"] for model in json.loads(hearth(env, "ls", "--json").stdout)["models"]]
    assert {"mine:latest", "child:latest", "copy:v1"} <= set(names)
    removed = hearth(env, "rm", "mine", "copy:v1", "nowhere")
    assert (removed.returncode, removed.stdout) == (3, "deleted 'mine'\ndeleted 'copy:v1'\n")
    assert hearth(env, "run", "child", "abcdefg").stdout == "ab\n"


def test_the_modelfile_of_a_model_creates_it_again(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    env = of_daemon(start_daemon(names=("echo",)))
    (tmp_path / "Modelfile").write_text("FROM echo\nPARAMETER num_predict 2\nSYSTEM Brief.\n")
    hearth(env, "create", "first", cwd=tmp_path)
    (tmp_path / "Modelfile").write_text(hearth(env, "show", "first", "--modelfile").stdout)
    again = hearth(env, "create", "second", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert hearth(env, "run", "second", "abcdefg").stdout == "ab\n"
    assert hearth(env, "show", "second", "--system").stdout == "Brief.\n"


def test_an_unknown_model_ends_with_3_and_a_near_name(env: dict[str, str]) -> None:
    for args in (("run", "ecko", "hi"), ("show", "ecko"), ("rm", "ecko"), ("cp", "ecko", "x")):
        ran = hearth(env, *args)
        assert (ran.returncode, ran.stdout) == (3, ""), args
        assert ran.stderr.startswith("Error: ")
        assert "did you mean echo" in ran.stderr


def test_a_truncated_model_file_is_refused_and_nothing_is_installed(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    env = of_daemon(start_daemon(names=()))
    before = hearth(env, "list", "--json").stdout
    (tmp_path / "cut.gguf").write_bytes(echo_gguf()[:40])
    (tmp_path / "Modelfile").write_text("FROM ./cut.gguf\n")
    ran = hearth(env, "create", "mine", cwd=tmp_path)
    assert ran.returncode == 1
    assert "Error: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert hearth(env, "list", "--json").stdout == before


def test_without_a_daemon_one_is_not_started_when_unwanted(tmp_path: Path) -> None:
    address = free_address()
    ran = hearth(environment(tmp_path, address), "list")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"Error: no hearth daemon answers at http://{address} (HEARTH_HOST); "
        "start it with: hearth serve\n"
    )


class OtherProgram(BaseHTTPRequestHandler):
    """A web server that is not hearth."""

    server_version = "Other/1.0"

    def do_GET(self) -> None:
        """Knows no page."""
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def other_program() -> Iterator[str]:
    """The address of another program."""
    with HTTPServer(("127.0.0.1", 0), OtherProgram) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_program_at_the_address_is_named_and_left_alone(
    other_program: str, tmp_path: Path
) -> None:
    ran = hearth(environment(tmp_path, other_program, HEARTH_NO_AUTOSTART="0"), "list")
    assert ran.returncode == 1
    assert 'calls itself "Other/1.0' in ran.stderr
    assert "HEARTH_HOST" in ran.stderr
    assert not (tmp_path / "state").exists()


def test_a_program_that_hangs_up_is_no_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ran = hearth(environment(tmp_path, address), "list")
        thread.join()
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"Error: the connection to http://{address}")
    assert ran.stderr.count("\n") == 1


def test_ctrl_c_stops_a_running_answer_with_130(env: dict[str, str]) -> None:
    command = [*COMMAND, "run", "echo", "<|slow|>" + "abc " * 500]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stdout.read().endswith(b"\n")
        assert process.stderr.read() == b""


def test_a_reader_that_leaves_early_is_no_error_message(env: dict[str, str]) -> None:
    command = [*COMMAND, "run", "echo", "<|slow|>" + "abc " * 50]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        process.wait(TIMEOUT_S)
        assert process.stderr.read() == b""


def test_serve_becomes_the_daemon_and_ends_on_sigterm(tmp_path: Path) -> None:
    address = free_address()
    env = environment(tmp_path, address)
    with subprocess.Popen([*COMMAND, "serve"], env=env, stderr=-1, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if address in line:
                break
        assert hearth(env, "list").returncode == 0
        process.terminate()
        process.stderr.read()
        assert process.wait(TIMEOUT_S) == 0


def test_a_crashing_worker_is_told_in_one_line(start_daemon: StartDaemon) -> None:
    env = of_daemon(start_daemon())
    ran = hearth(env, "run", "echo", "abc<|crash|>def")
    assert ran.returncode == 1
    said = ran.stdout.rstrip()
    assert said
    assert "abc".startswith(said)  # what the step that crashes had computed is lost
    assert ran.stderr.startswith("Error: ")
    assert hearth(env, "run", "echo", "again").stdout == "again\n"
