"""A Hugging Face Hub for tests: it describes repositories, and redirects to another origin for
the content of their large files, which are in xet storage, as the real one does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.registry_server import FakeRegistry, Handler, fake_registry

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = (".gguf", ".safetensors")


def hub_environment(url: str, folder: Path) -> dict[str, str]:
    """Variables of a daemon whose Hub is at url. folder: for what huggingface-hub keeps."""
    return {
        "HEARTH_OFFLINE": "0",
        "HF_ENDPOINT": url,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


class Hub:
    """The Hub: repositories with files, and tags. mirror: where the content of large files comes
    from."""

    def __init__(self, server: FakeRegistry, mirror: FakeRegistry) -> None:
        self.server = server
        self.mirror = mirror
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.tags: dict[str, list[str]] = {}

    def add(self, repo: str, files: Mapping[str, bytes]) -> None:
        """Put files into a repository."""
        known = self.repositories.setdefault(repo, {})
        known.update(files)
        for path, content in files.items():
            self.server.special[f"/{repo}/resolve/{COMMIT}/{path}"] = self._answer(path, content)
        for question in (f"/api/models/{repo}", f"/api/models/{repo}/revision/v1"):
            self.server.special[question] = lambda handler: self._describe(handler, repo)

    def _answer(self, path: str, content: bytes) -> Any:
        if not path.endswith(_LARGE):
            return lambda handler: _whole(handler, content)
        digest = self.mirror.add_blob(content)
        target = f"{self.mirror.url}/v2/cdn/blobs/{digest}?signature=canary"
        headers = _xet_headers(self.server.url, content)
        return lambda handler: handler.reply(302, b"", Location=target, **headers)

    def _describe(self, handler: Handler, repo: str) -> None:
        siblings = [_sibling(path, data) for path, data in self.repositories[repo].items()]
        value = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}
        value["tags"] = self.tags.get(repo, [])
        handler.reply(200, json.dumps(value).encode(), Content_Type="application/json")


def _xet_headers(url: str, content: bytes) -> dict[str, str]:
    """What the Hub says of a file in xet storage beside the address of its content."""
    token, digest = f"{url}/api/models/x/xet-read-token/main", hashlib.sha256(content).hexdigest()
    parts = f"{url}/v1/reconstructions/x"
    return {
        "X_Xet_Hash": hashlib.sha256(b"xet" + content).hexdigest(),
        "X_Xet_Refresh_Route": token,
        "X_Linked_Size": str(len(content)),
        "X_Linked_ETag": f'"{digest}"',
        "Link": f'<{token}>; rel="xet-auth", <{parts}>; rel="xet-reconstruction-info"',
    }


def _whole(handler: Handler, content: bytes) -> None:
    """A small file, which the Hub sends itself and without ranges."""
    handler.reply(200, content)


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    git_id = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    value: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": git_id}
    if path.endswith(_LARGE):
        digest = hashlib.sha256(content).hexdigest()
        value["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
    return value


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A running Hub without repositories."""
    with fake_registry() as server, fake_registry() as mirror:
        yield Hub(server, mirror)
