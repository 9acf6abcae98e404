from __future__ import annotations

import pytest

from runner.server.sockets import ListenError, PortTaken, listen
from runner.setting_values import Address


def test_port_0_becomes_the_real_port() -> None:
    sock, address = listen(Address("127.0.0.1", 0), guarded=False)
    with sock:
        assert address.port == sock.getsockname()[1] > 0


def test_a_taken_port_is_told_with_another_to_try() -> None:
    sock, address = listen(Address("127.0.0.1", 0), guarded=False)
    with sock, pytest.raises(PortTaken, match=f"127.0.0.1:{address.port + 1}"):
        listen(address, guarded=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "box.example"])
def test_addresses_beyond_this_machine_are_refused(host: str) -> None:
    with pytest.raises(ListenError, match="HEARTH_INSECURE_PUBLIC"):
        listen(Address(host, 0), guarded=False)


def test_an_address_that_is_not_here_is_told() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1"):
        listen(Address("192.0.2.1", 0), guarded=True)
