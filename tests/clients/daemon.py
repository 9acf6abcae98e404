"""The daemon that the clients are tried against: ember, an echo model that embeds, one that
reasons before it repeats and one that takes its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry.store import Store
from tests.conftest import RunningDaemon, running_daemon
from tests.echo_models import install_echo

THINKING_TEMPLATE = (
    "<|im_start|>user\n{{ messages[-1].content }}<|im_end|>\n<|im_start|>assistant\n"
    "{# its reasoning ends at </think> #}{{ '' if enable_thinking else '' }}"
)
SLOW_TEMPLATE = "<|slow|>{{ messages[-1].content }}"


@contextmanager
def serving(home: Path) -> Iterator[RunningDaemon]:
    """A daemon with ember, echo, thinker and slow, stopped afterwards."""
    store = Store.open(home / "models")
    try:
        install_echo(store, "thinker", template=THINKING_TEMPLATE)
        install_echo(store, "slow", template=SLOW_TEMPLATE)
    finally:
        store.close()
    with running_daemon(home, ("echo",)) as daemon:
        yield daemon
