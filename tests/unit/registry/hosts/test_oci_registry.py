from __future__ import annotations

import pytest

from registry.hosts.oci_registry import base_url


@pytest.mark.parametrize(
    ("host", "plain", "url"),
    [
        ("registry.example.com", False, "https://registry.example.com"),
        ("registry.example.com:5000", True, "http://registry.example.com:5000"),
        ("localhost:5000", False, "http://localhost:5000"),
        ("127.0.0.1:5000", False, "http://127.0.0.1:5000"),
        ("docker.io", False, "https://registry-1.docker.io"),
        ("Index.Docker.io", False, "https://registry-1.docker.io"),
    ],
)
def test_a_host_has_its_registry_at_an_address(host: str, plain: bool, url: str) -> None:
    assert str(base_url(host, plain)) == url
