"""What doctor says of proxies and registries."""

from __future__ import annotations

import socket

import pytest

from cli.doctor.network import check_network
from runner.settings import Settings


def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@{address}")
        monkeypatch.delenv("https_proxy", raising=False)
        proxy, *registries = check_network(Settings())
    assert f"https: http://{address}" in proxy.text
    assert len(registries) == 2
    for each in registries:
        assert each.level == "problem"
        assert each.text.endswith(f"through the proxy http://{address}: Connection refused")
        assert str(each.mend).startswith("correct the proxy, or unset it (HTTPS_PROXY")
        assert "secret" not in each.text + str(each.mend)
