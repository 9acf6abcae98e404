"""Loaded by pytest beside the suites: dummies that a mock server takes and that name something in a
real one are replaced by real ones, and what each test came to is written down.

Replaced are the ids of files, batches, responses, conversations and vector stores, and the model
and the input of responses where a test sends none. All else is sent as it stands.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

MODEL = "gpt-4o-mini"
_TEXT = ("a.txt", b"Example data")
_KINDS = {
    ("batches", "batch_id"): "batch",
    ("batches", "input_file_id"): "questions",
    ("files", "file_id"): "file",
    ("uploads", "upload_abc123"): "upload",
    ("uploads", "string"): "part",
    ("vector_stores", "vector_store_id"): "store",
    ("vector_stores", "vs_abc123"): "store",
    ("vector_stores", "file-abc123"): "stored",
    ("vector_stores", "file_id"): "file",
    ("vector_stores", "string"): "file",
    ("vector_stores", "batch_id"): "store_batch",
    ("vector_stores", "vsfb_abc123"): "store_batch",
    ("conversations", "conv_123"): "conversation",
    ("conversations", "msg_abc"): "item",
    ("responses", "response_id"): "response",
    ("responses", "resp_123"): "response",
    ("responses", "resp_677efb5139a88190b512bc3fef8e535d"): "response",
    ("responses", "previous_response_id"): "response",
}
_SAID = {"model": MODEL, "input": "Hi."}
_DEFAULTS = {
    "/responses": _SAID,
    "/responses/compact": _SAID,
    "/responses/input_tokens": _SAID,
    "/vector_stores/vs_abc123/file_batches": {"file_ids": ["string"]},
}
_WORDS = frozenset(("metadata", "attributes", "filters", "name"))  # dummies there are only texts


class Prepared:
    """What the current test's dummies stand for, made when it is asked for."""

    def __init__(self) -> None:
        url = os.environ["TEST_API_BASE_URL"].removesuffix("/v1")
        self._http = httpx.Client(base_url=f"{url}/v1", timeout=60, trust_env=False)
        self._made: dict[str, str] = {}

    def begin(self) -> None:
        """Forget those of the test before."""
        self._made.clear()

    def replaced(self, value: Any, path: str) -> Any:
        """Value, with ids for the dummies in it."""
        if isinstance(value, dict):
            return {
                key: each if key in _WORDS else self.replaced(each, path)
                for key, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.replaced(each, path) for each in value]
        resource = path.strip("/").partition("/")[0].partition("?")[0]
        kind = _KINDS.get((resource, value)) if isinstance(value, str) else None
        if kind == "file" and "/files/" in path:
            kind = "stored"
        return value if kind is None else self._id_of(kind)

    def _id_of(self, kind: str) -> str:
        if kind not in self._made:
            self._made[kind] = getattr(self, f"_{kind}")()
        return self._made[kind]

    def _post(self, path: str, **sent: Any) -> dict[str, Any]:
        answer = self._http.post(path, **sent)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def _file(self) -> Any:
        return self._post("/files", files={"file": _TEXT}, data={"purpose": "user_data"})["id"]

    def _questions(self) -> Any:
        body = {"model": MODEL, "input": "Hi.", "max_output_tokens": 2}
        line = {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": body}
        file = ("a.jsonl", json.dumps(line).encode())
        return self._post("/files", files={"file": file}, data={"purpose": "batch"})["id"]

    def _batch(self) -> Any:
        asked = {"endpoint": "/v1/responses", "completion_window": "24h"}
        return self._post("/batches", json={**asked, "input_file_id": self._questions()})["id"]

    def _store(self) -> Any:
        return self._post("/vector_stores", json={})["id"]

    def _stored(self) -> Any:
        path = f"/vector_stores/{self._id_of('store')}/files"
        return self._post(path, json={"file_id": self._file()})["id"]

    def _store_batch(self) -> Any:
        path = f"/vector_stores/{self._id_of('store')}/file_batches"
        return self._post(path, json={"file_ids": [self._file()]})["id"]

    def _conversation(self) -> Any:
        return self._post("/conversations", json={})["id"]

    def _item(self) -> Any:
        path = f"/conversations/{self._id_of('conversation')}/items"
        item = {"type": "message", "role": "user", "content": "Hi."}
        return self._post(path, json={"items": [item]})["data"][0]["id"]

    def _response(self) -> Any:
        asked = {**_SAID, "max_output_tokens": 4, "background": True}
        return self._post("/responses", json=asked)["id"]

    def _upload(self) -> Any:
        file = {"filename": "a.txt", "purpose": "user_data", "bytes": 12, "mime_type": "text/plain"}
        return self._post("/uploads", json=file)["id"]

    def _part(self) -> Any:
        return self._post(f"/uploads/{self._id_of('upload')}/parts", files={"data": _TEXT})["id"]


prepared = Prepared()


def _with_real_ids(build: Callable[..., Any]) -> Callable[..., Any]:
    def build_request(client: Any, options: Any, **more: Any) -> Any:
        path = options.url
        sent = {**_DEFAULTS.get(path.partition("?")[0], {}), **(options.json_data or {})}
        options = options.model_copy()
        options.url = "".join(prepared.replaced(part, path) for part in re.split("([/?])", path))
        if sent:
            options.json_data = prepared.replaced(sent, path)
        return build(client, options, **more)

    return build_request


def pytest_configure() -> None:
    if "openai" in os.environ["SDK_SUITE"]:
        base: Any = importlib.import_module("openai._base_client").BaseClient
        base._build_request = _with_real_ids(base._build_request)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Those are left out whose answers are made up by the test, and the variants of another library
    that sends: to the daemon they are the same."""
    items[:] = [
        item
        for item in items
        if "[aiohttp]" not in item.name and not any("respx" in name for name in item.fixturenames)
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    prepared.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        entry = {"test": item.nodeid, "outcome": report.outcome}
        if call.excinfo is not None:
            error = call.excinfo.value
            entry |= {
                "error": type(error).__name__,
                "status": getattr(error, "status_code", None),
                "body": getattr(error, "body", None),
                "message": str(error)[:400],
            }
        with open(os.environ["SDK_SUITE_RESULTS"], "a") as file:
            file.write(json.dumps(entry, default=str) + "\n")
    return report
