"""The daemon that the clients are tried against: ember, an echo model that embeds, one that
reasons before it repeats, one that takes its time, and one that calls tools and reads much."""

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
# It repeats the last message that is not the system's, so that a tool's result ends a turn.
AGENT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>system\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% set said = messages | rejectattr('role', 'equalto', 'system') | list %}"
    "<|im_start|>user\n{{ said[-1].content }}<|im_end|>\n"
    "{% if tools %}{# calls are written as <tool_call> JSON #}{% endif %}<|im_start|>assistant\n"
)
AGENT_CONTEXT = 1 << 17  # the prompts of coding agents take 80,000 tokens of a letter each


@contextmanager
def serving(home: Path) -> Iterator[RunningDaemon]:
    """A daemon with ember, echo, thinker, slow and agent, stopped afterwards."""
    store = Store.open(home / "models")
    try:
        install_echo(store, "thinker", template=THINKING_TEMPLATE)
        install_echo(store, "slow", template=SLOW_TEMPLATE)
        long = {"context_length": AGENT_CONTEXT, "parameters": {"num_ctx": AGENT_CONTEXT}}
        install_echo(store, "agent", template=AGENT_TEMPLATE, **long)
    finally:
        store.close()
    with running_daemon(home, ("echo",)) as daemon:
        yield daemon
