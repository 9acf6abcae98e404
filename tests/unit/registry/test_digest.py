"""Digests: one form only."""

from __future__ import annotations

import hashlib

import pytest

from registry.digest import Digest
from registry.errors import InvalidDigest

HEX = hashlib.sha256(b"x").hexdigest()


def test_a_digest_prints_as_it_was_read() -> None:
    digest = Digest.parse(f"sha256:{HEX}")
    assert (str(digest), digest.hex, digest.file_name) == (
        f"sha256:{HEX}",
        HEX,
        f"sha256-{HEX}",
    )
    assert digest == Digest.of(b"x")
    assert digest.short == HEX[:12]


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEX,
        f"sha256-{HEX}",
        f"SHA256:{HEX}",
        f"sha256:{HEX.upper()}",
        f"sha512:{HEX}",
        f"sha256:{HEX[:-1]}",
        f"sha256:{HEX}0",
        f"sha256:{HEX}\n",
        f"sha256: {HEX[1:]}",
        "sha256:" + "٠" * 64,
        "sha256:../../../../tmp/x",
        "sha256:%2e%2e%2f" + HEX[:55],
        f"sha256:{HEX[:-1]}\x00",
    ],
)
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidDigest):
        Digest.parse(text)
