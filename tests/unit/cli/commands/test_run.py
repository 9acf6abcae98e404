"""hearth run, one answer at a time."""

from __future__ import annotations

import io
import json

import httpx
import pytest

from cli.main import execute
from tests.unit.cli.conftest import FakeDaemon

DONE = {"done": True, "done_reason": "stop", "total_duration": 1_000_000_000}


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """What stdin holds; empty unless a test writes to it."""
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(buffer))
    return buffer


def fill(pipe: io.BytesIO, data: bytes) -> None:
    pipe.write(data)
    pipe.seek(0)


def test_the_answer_goes_to_stdout_and_nothing_to_stderr(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.stream("/api/generate", {"response": "a "}, {"response": "b"}, DONE)
    assert execute(["run", "m", "say", "something"]) == 0
    assert capsys.readouterr() == ("a b\n", "")
    assert daemon.asked("/api/generate") == [
        {"model": "m", "prompt": "say something", "stream": True}
    ]


def test_text_from_a_pipe_comes_before_the_prompt(daemon: FakeDaemon, pipe: io.BytesIO) -> None:
    fill(pipe, "\ufeffnötes\n".encode())
    daemon.stream("/api/generate", DONE)
    execute(["run", "m", "sum", "up"])
    assert daemon.asked("/api/generate")[0]["prompt"] == "nötes sum up"


def test_a_pipe_alone_is_the_prompt(daemon: FakeDaemon, pipe: io.BytesIO) -> None:
    fill(pipe, b"question\n")
    daemon.stream("/api/generate", DONE)
    execute(["run", "m"])
    assert daemon.asked("/api/generate")[0]["prompt"] == "question"


def test_a_pipe_that_is_not_utf8_is_refused_with_the_byte(
    daemon: FakeDaemon, pipe: io.BytesIO, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(pipe, b"caf\xe9")
    assert execute(["run", "m"]) == 1
    assert "byte 0xe9 at position 3" in capsys.readouterr().err
    assert daemon.requests == []


def test_a_prompt_that_is_not_utf8_is_refused(daemon: FakeDaemon) -> None:
    assert execute(["run", "m", "caf\udce9"]) == 2


def test_nothing_to_ask_is_wrong_usage(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["run", "m"]) == 2
    assert "no prompt: write one" in capsys.readouterr().err


def test_an_empty_prompt_loads_the_model(daemon: FakeDaemon) -> None:
    daemon.reply("POST", "/api/generate", {"done": True, "done_reason": "load"})
    assert execute(["run", "m", "", "--keepalive", "10m"]) == 0
    assert daemon.asked("/api/generate") == [
        {"model": "m", "prompt": "", "stream": False, "keep_alive": "10m"}
    ]


def test_options_travel_with_the_request(daemon: FakeDaemon) -> None:
    daemon.stream("/api/generate", DONE)
    arguments = ["-p", "temperature=0", "-p", "stop=a", "-p", "stop=b", "-p", "seed=7"]
    execute(["run", "m", "x", "--system", "Be brief.", "--format", "json", *arguments])
    assert daemon.asked("/api/generate") == [
        {
            "model": "m",
            "prompt": "x",
            "system": "Be brief.",
            "format": "json",
            "options": {"temperature": 0.0, "stop": ["a", "b"], "seed": 7},
            "stream": True,
        }
    ]


def test_devices_are_the_parameter_of_that_name(daemon: FakeDaemon) -> None:
    daemon.stream("/api/generate", DONE)
    execute(["run", "m", "x", "--devices", "1,3", "-p", "tensor_parallel=2"])
    options = daemon.asked("/api/generate")[0]["options"]
    assert options == {"tensor_parallel": 2, "devices": [1, 3]}


def test_a_json_schema_is_sent_as_json(daemon: FakeDaemon) -> None:
    daemon.stream("/api/generate", DONE)
    execute(["run", "m", "x", "--format", '{"type": "object"}'])
    assert daemon.asked("/api/generate")[0]["format"] == {"type": "object"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-p", "temperature"], "NAME=VALUE"),
        (["-p", "temperature=hot"], "temperature"),
        (["-p", "temperature=nan"], "temperature"),
        (["-p", "temprature=1"], "temperature"),
        (["--format", "{"], "--format"),
        (["--keepalive", "soon"], "--keepalive soon"),
        (["--seed", "x"], "seed"),
        (
            ["--devices", "1,x"],
            "expected at most 64 numbers from 0 to 63",
        ),
        (["--temperature", "hot"], "temperature"),
        (["--quantize", "int3"], "one of none, int8, int4, fp8"),
        (["--raw", "--system", "s"], "--system"),
        (["--think=very"], "minimal"),
    ],
)
def test_a_bad_value_is_refused_before_the_daemon_is_asked(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert execute(["run", "m", "x", *arguments]) == 2
    assert named in capsys.readouterr().err
    assert daemon.requests == []


def test_an_unknown_model_ends_with_3_and_near_names(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"error": "model 'embr' not found", "code": "model_not_found", "suggestions": ["ember"]}
    daemon.reply("POST", "/api/generate", body, 404)
    absent = {"error": "registry.ollama.ai has no model", "code": "remote_model_not_found"}
    daemon.reply("POST", "/api/pull", absent, 404)
    assert execute(["run", "embr", "x"]) == 3
    assert "Did you mean ember?" in capsys.readouterr().err


def test_an_error_after_some_text_ends_the_line_and_the_command(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.stream("/api/generate", {"response": "half"}, {"error": "the worker crashed"})
    assert execute(["run", "m", "x"]) == 1
    assert capsys.readouterr() == ("half\n", "Error: the worker crashed\n")


def test_verbose_prints_timings_on_stderr(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.stream("/api/generate", {"response": "a"}, DONE)
    execute(["run", "m", "x", "--verbose"])
    assert capsys.readouterr() == ("a\n", "\ntotal duration:       1s\n")


def test_an_interrupt_ends_with_130(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    monkeypatch.setitem(daemon.answers, ("POST", "/api/generate"), interrupt)
    assert execute(["run", "m", "x"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "wish"), [("--think", True), ("--think=false", False), ("--think=high", "high")]
)
def test_the_wish_to_think_travels_with_the_request(
    daemon: FakeDaemon, option: str, wish: object
) -> None:
    daemon.stream("/api/generate", DONE)
    assert execute(["run", option, "m", "hi"]) == 0
    (asked,) = daemon.asked("/api/generate")
    assert (asked["think"], asked["prompt"]) == (wish, "hi")


def test_thinking_is_framed_or_hidden(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.stream("/api/generate", {"response": "", "thinking": "hm"}, {"response": "yes"}, DONE)
    assert execute(["run", "m", "hi"]) == 0
    assert capsys.readouterr().out == "Thinking...\nhm\n...done thinking.\n\nyes\n"
    assert execute(["run", "--hidethinking", "m", "hi"]) == 0
    assert capsys.readouterr().out == "yes\n"


def test_after_two_dashes_words_are_the_prompt(daemon: FakeDaemon) -> None:
    daemon.stream("/api/generate", DONE)
    assert execute(["run", "m", "--", "--think"]) == 0
    assert daemon.asked("/api/generate")[0]["prompt"] == "--think"


def test_short_options_are_parameters(daemon: FakeDaemon) -> None:
    daemon.stream("/api/generate", DONE)
    flags = ["--seed", "7", "--temperature", "0", "--quantize", "int8"]
    assert execute(["run", "m", "x", *flags]) == 0
    expected = {"seed": 7, "temperature": 0.0, "quantize": "int8"}
    assert daemon.asked("/api/generate")[0]["options"] == expected


def test_a_raw_prompt_goes_as_it_is(daemon: FakeDaemon, pipe: io.BytesIO) -> None:
    daemon.stream("/api/generate", DONE)
    fill(pipe, b"  def f(\n")
    assert execute(["run", "m", "--raw"]) == 0
    (asked,) = daemon.asked("/api/generate")
    assert (asked["raw"], asked["prompt"]) == (True, "  def f(\n")


def test_json_is_one_object_with_the_whole_answer(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    parts: list[dict[str, object]] = [
        {"thinking": "hm"},
        {"response": "a "},
        {"response": "b"},
        {**DONE, "response": "", "context": [1, 2], "eval_count": 2},
    ]
    daemon.stream("/api/generate", *parts)
    assert execute(["run", "m", "x", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {**DONE, "eval_count": 2, "response": "a b", "thinking": "hm"}
    assert printed.err == ""


def test_an_embedding_model_prints_the_vector(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {"error": "m is an embedding model", "code": "unsupported"}
    daemon.reply("POST", "/api/generate", refused, 400)
    daemon.reply("POST", "/api/show", {"capabilities": ["embedding"]})
    daemon.reply("POST", "/api/embed", {"model": "m", "embeddings": [[0.5, -1.0]]})
    assert execute(["run", "m", "some", "text"]) == 0
    assert capsys.readouterr() == ("[0.5, -1.0]\n", "")
    (asked,) = daemon.asked("/api/embed")
    assert (asked["input"], asked["truncate"]) == ("some text", False)
    assert execute(["run", "m", "text", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": "m", "embeddings": [[0.5, -1.0]]}
    assert execute(["run", "m", "text", "--system", "s"]) == 2
    assert "--system cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "arguments", "code", "said"),
    [
        ("generation", [], 4, "default limit of 2 tokens"),
        ("context", [], 4, "the context of 7 tokens is full"),
        ("repetition", [], 4, "repeated itself"),
        ("num_predict", [], 0, "num_predict, 2 tokens"),
        ("num_predict", ["-p", "num_predict=2"], 0, ""),
    ],
)
def test_an_answer_that_was_cut_says_so_and_fails_where_nobody_set_the_limit(
    daemon: FakeDaemon,
    capsys: pytest.CaptureFixture[str],
    limit: str,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    counts = {"prompt_eval_count": 5, "eval_count": 2}
    daemon.stream("/api/generate", {"response": "a"}, {**DONE, **counts, "limit": limit})
    assert execute(["run", "m", "x", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == "a\n"
    assert said in printed.err
    assert bool(printed.err) is bool(said)
