"""The Hub's description of a repository: its files, its commit and its tags, every field checked.
Sends no requests. Source: huggingface.co/docs/hub/api, GET /api/models/{repo}?blobs=true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.errors import RemoteRefused
from registry.hosts.selection.variants import RepositoryFile

MAX_FILES = 20_000
_MAX_NAME_CHARS = 1024
_MAX_TAGS = 1000
_COMMIT = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RepositoryListing:
    """A repository at one commit."""

    files: list[RepositoryFile]
    commit: str
    tags: list[str]


def read_listing(repo: str, content: bytes) -> RepositoryListing:
    """The Hub's answer. Files whose names are no paths within the repository, or whose sizes are
    none, are left out. Raises RemoteRefused."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise RemoteRefused(f"what the Hub says of {repo} is not JSON") from None
    siblings = value.get("siblings") if isinstance(value, dict) else None
    if not isinstance(siblings, list):
        raise RemoteRefused(f"what the Hub says of {repo} holds no list of files")
    if len(siblings) > MAX_FILES:
        raise RemoteRefused(f"{repo} has {len(siblings)} files; at most {MAX_FILES} are allowed")
    commit, tags = value.get("sha"), value.get("tags")
    if commit is not None and not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
        raise RemoteRefused(f"what the Hub calls the commit of {repo} is none")
    known = tags[:_MAX_TAGS] if isinstance(tags, list) else []
    return RepositoryListing(
        list(_files(siblings)), commit or "main", [tag for tag in known if isinstance(tag, str)]
    )


def _files(siblings: list[Any]) -> Iterator[RepositoryFile]:
    for item in siblings:
        if not isinstance(item, dict):
            continue
        path, size, lfs = item.get("rfilename"), item.get("size"), item.get("lfs")
        if isinstance(path, str) and _is_path(path) and type(size) is int and size >= 0:
            digest = lfs.get("sha256") if isinstance(lfs, dict) else None
            git_id = item.get("blobId")
            yield RepositoryFile(
                path,
                size,
                None if digest is None else str(digest),
                git_id if isinstance(git_id, str) else None,
            )


def _is_path(path: str) -> bool:
    """Whether it names a file within a repository, on every system."""
    parts = path.split("/")
    return (
        len(path) <= _MAX_NAME_CHARS
        and path.isprintable()
        and "\\" not in path
        and not {"", ".", ".."} & set(parts)
    )
