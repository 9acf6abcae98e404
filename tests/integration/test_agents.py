"""Coding agents' conversations of 20 turns: what was computed for a turn is not computed again for
the next, though they change more than they add."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from modelfile.templates import renderers
from registry.store import Store
from tests.agents.claude_code import ClaudeCode
from tests.agents.codex import Codex
from tests.agents.opencode import OpenCode
from tests.agents.session import Session, Size, Turn, least_share
from tests.conftest import StartDaemon, running_daemon
from tests.echo_models import install_echo

TURNS = 20
CONTEXT = 65536
FORMATS = {"hermes": "qwen3-vl-instruct", "qwen3": "qwen3", "glm": "glm-4.7"}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a daemon whose models repeat their prompts, a byte a token, in real formats."""
    home, folder = tmp_path_factory.mktemp("agents"), Path(renderers.__path__[0])
    store = Store.open(home / "models")
    for name, file in FORMATS.items():
        template = (folder / f"{file}.jinja").read_text()
        parameters = {"num_ctx": CONTEXT}
        install_echo(store, name, context_length=CONTEXT, template=template, parameters=parameters)
    store.close()
    with running_daemon(home) as daemon, daemon.client() as client:
        yield client


def replay(session: Session, client: httpx.Client, turns: int = TURNS) -> list[Turn]:
    found = [session.ask(client) for _ in range(turns)]
    print(type(session).__name__, session.model, [f"{turn.share:.3f}" for turn in found])
    return found


@pytest.mark.parametrize(
    ("agent", "model"), [(ClaudeCode, "qwen3"), (Codex, "hermes"), (OpenCode, "glm")]
)
def test_a_turn_computes_what_is_new(
    agents: httpx.Client, agent: type[Session], model: str
) -> None:
    found = replay(agent(model, 1), agents)
    assert least_share(found) >= 0.95


def test_the_rules_that_made_it_so_are_told(agents: httpx.Client) -> None:
    assert replay(ClaudeCode("hermes", 2), agents, 2)[1].normalized == (
        "claude-code-tool-order",
        "claude-code-billing-header",
    )
    assert replay(Codex("hermes", 2), agents, 2)[1].normalized == ()


def test_switched_off_each_turn_is_computed_anew(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(("tools",), {"HEARTH_AGENT_RULES": "0"})
    size = Size(system=100, tools=2)
    with daemon.client() as client:
        found = replay(ClaudeCode("tools", 1, size), client, 3)
    assert max(turn.share for turn in found) < 0.1
    assert found[-1].normalized == ()


def test_agents_side_by_side_keep_what_is_computed(agents: httpx.Client) -> None:
    sessions: list[Session] = [agent("hermes", 3) for agent in (ClaudeCode, Codex, OpenCode)]
    turns = [[session.ask(agents) for session in sessions] for _ in range(6)]
    for found in zip(*turns, strict=True):
        assert least_share(found) >= 0.95
