from __future__ import annotations

import json
import logging

import pytest

from modelfile.errors import BuildError
from registry import errors as registry
from runner import errors as runner
from runner.server.errors import HttpError, OllamaErrors, OpenAIErrors, failure_of


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (runner.InvalidRequest("x"), 400, "invalid_value"),
        (runner.ModelNotFound("x"), 404, "model_not_found"),
        (runner.ModelInvalid("x"), 400, "model_invalid"),
        (runner.ContextOverflow("x"), 400, "context_length_exceeded"),
        (runner.Unsupported("x"), 400, "unsupported"),
        (runner.Conflict("x"), 409, "conflict"),
        (runner.QueueFull("x"), 503, "queue_full"),
        (runner.InsufficientMemory("x"), 503, "insufficient_memory"),
        (runner.ShuttingDown("x"), 503, "shutting_down"),
        (runner.WorkerCrashed("x"), 500, "worker_crashed"),
        (runner.WorkerTimeout("x"), 504, "worker_timeout"),
        (runner.ModelLoadFailed("x"), 500, "model_load_failed"),
        (registry.InvalidName("a b", "no"), 400, "invalid_value"),
        (registry.InvalidDigest("x"), 400, "invalid_value"),
        (registry.InvalidGguf("x"), 400, "model_invalid"),
        (registry.ModelMissing("x", ("y",)), 404, "model_not_found"),
        (registry.StoreReadOnly("write"), 409, "conflict"),
        (registry.StoreFault("write", 5), 500, "storage_failed"),
        (registry.StoreFull("write", 28, 2, 1), 507, "storage_failed"),
        (BuildError("x"), 400, "invalid_value"),
        (HttpError(413, "body_too_large", "x"), 413, "body_too_large"),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int, code: str) -> None:
    failure = failure_of(error, "req_1")
    assert (failure.status, failure.code) == (status, code)


def test_every_error_of_the_tree_has_a_status() -> None:
    def leaves(kind: type[runner.HearthError]) -> list[type[runner.HearthError]]:
        return [kind, *(leaf for sub in kind.__subclasses__() for leaf in leaves(sub))]

    for kind in leaves(runner.HearthError):
        assert 400 <= failure_of(kind("x"), "req_1").status < 600


def test_a_fault_nobody_foresaw_tells_the_client_nothing_but_an_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        failure = failure_of(KeyError("/secret/path"), "req_1")
    assert failure.status == 500
    assert "secret" not in failure.message
    assert failure.details["request_id"] in failure.message
    assert failure.details["request_id"] in caplog.text
    assert "/secret/path" in caplog.text


def test_retry_after_is_a_header() -> None:
    assert failure_of(runner.QueueFull("x", retry_after_s=7), "req_1").headers == {
        "retry-after": "7"
    }


def test_bodies_of_both_surfaces() -> None:
    failure = failure_of(runner.InvalidRequest("bad n", param="n"), "req_1")
    assert json.loads(OpenAIErrors().body(failure)) == {
        "error": {
            "message": "bad n",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }
    assert json.loads(OllamaErrors().body(failure)) == {
        "error": "bad n",
        "code": "invalid_value",
        "param": "n",
    }
    assert OpenAIErrors().event(failure).startswith(b"data: {")
    assert OllamaErrors().event(failure).endswith(b"}\n")
