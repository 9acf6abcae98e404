"""hearth bench."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cli import connection
from cli.commands.bench import client_counts
from cli.errors import CliError
from cli.main import execute
from runner.client import Client

MODEL = "ember"


class Handler(BaseHTTPRequestHandler):
    """A daemon with one model that answers in whole words; "busy" fails while it streams."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(200, {"hearth": "0.1.0", "name": "hearth", "pid": os.getpid()})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] not in (MODEL, "busy"):
            self.reply(404, {"error": "no model 'nope'", "code": "model_not_found"})
        elif not body.get("stream"):
            words = sum(len(turn["content"].split()) for turn in body.get("messages", []))
            self.reply(200, {"usage": {"prompt_tokens": words + 3}})
        elif body["model"] == "busy":
            self.reply(503, {"error": {"message": "the queue is full"}})
        else:
            events = [{"choices": [{"delta": {"content": "a "}}]}] * body["max_tokens"]
            self.send(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events))

    def reply(self, status: int, value: Any) -> None:
        self.send(status, json.dumps(value))

    def send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The daemon's address, known to the CLI."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{http.server_address[1]}"
        monkeypatch.setattr(connection, "new_client", lambda settings: Client(address))
        try:
            yield address
        finally:
            http.shutdown()
            thread.join()


SHORT = ["--clients", "1,2", "--output-tokens", "4", "--prompt-tokens", "9"]


@pytest.mark.usefixtures("url")
def test_each_number_of_clients_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", MODEL, *SHORT]) == 0
    printed = capsys.readouterr()
    header, one, two = printed.out.strip().splitlines()
    assert header.split("  ")[0] == "CLIENTS"
    assert {"TTFT P50", "PROMPT", "DECODE", "ERRORS"} <= {
        name.strip() for name in header.split("  ")
    }
    assert (one.split()[0], two.split()[0]) == ("1", "2")
    assert "1 client: 2 requests in" in printed.err
    assert "2 clients: 4 requests in" in printed.err


@pytest.mark.usefixtures("url")
def test_json_holds_the_machine_and_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--requests", "3", "--shared-prefix", "16"]
    assert execute(["bench", MODEL, *SHORT, *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == MODEL
    assert report["machine"]["cores"] >= 1
    assert report["memory_bytes"] > 0
    assert [run["workload"]["clients"] for run in report["runs"]] == [1, 2]
    assert [run["summary"]["output_tokens"] for run in report["runs"]] == [12, 12]
    assert report["runs"][0]["workload"]["shared_tokens"] == 16


@pytest.mark.usefixtures("url")
def test_an_unknown_model_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "nope"]) == 3
    assert "no model 'nope'" in capsys.readouterr().err


@pytest.mark.usefixtures("url")
def test_failed_requests_are_named_and_fail_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["bench", "busy", *SHORT]) == 1
    assert "6 of 6 requests failed; first error: the queue is full" in (capsys.readouterr().err)


@pytest.mark.parametrize("given", ["", "0", "1,,2", "two", "-1", "1.5", "2000"])
def test_a_bad_number_of_clients_is_wrong_usage(given: str) -> None:
    with pytest.raises(CliError, match="such as 1,4,8") as caught:
        client_counts(given)
    assert caught.value.exit_code == 2
