"""The secret of a cluster: Ray's own token, from which that of the bundle server is derived.

Whoever has it may run code on every node; it is kept in a file for this user only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from runner.errors import Conflict
from runner.settings import load

FILE_NAME = "cluster-token"
_PATH = "RAY_AUTH_TOKEN_PATH"
_TOKEN = "RAY_AUTH_TOKEN"


def token_path() -> Path:
    """Where the token of this machine is."""
    given = os.environ.get(_PATH)
    return Path(given) if given else load().data_dir / FILE_NAME


def make_token() -> Path:
    """The file of the token, made where there is none."""
    from registry.atomic import write_private

    path = token_path()
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, secrets.token_urlsafe(32).encode())
    return path


def read_token() -> str:
    """Raises Conflict where there is none."""
    if given := os.environ.get(_TOKEN):
        return given
    path = token_path()
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError):
        raise Conflict(
            f"{path} holds no cluster token; copy that file from the head of the cluster"
        ) from None


def bundle_token() -> str:
    """What the server of bundles wants to see. It opens nothing else."""
    return hmac.new(read_token().encode(), b"hearth bundles", hashlib.sha256).hexdigest()
