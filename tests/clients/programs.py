"""The clients of other people that are tried against a daemon: where each lives and how its checks
are started. `make clients` makes their environments, which this only looks at.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "tests" / "clients" / "node"
AGENTS = ROOT / "tests" / "clients" / "agents"
TIMEOUT_S = 100.0
# None may look beyond the daemon: not for telemetry, and not for lists of prices.
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "NO_PROXY": "127.0.0.1",
    "PYTHONPATH": str(ROOT),
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True)
class Client:
    """One client. made: what is there once its environment is whole. leaves_early: one of its
    checks ends a stream before the answer does."""

    name: str
    command: tuple[str, ...]
    made: Path
    leaves_early: bool = True

    @property
    def installed(self) -> bool:
        """Whether its environment was made."""
        return self.made.is_file()


def _python(environment: str, module: str, *, leaves_early: bool = True) -> Client:
    folder = ROOT / environment
    command = (str(folder / "bin" / "python"), "-P", "-m", f"tests.clients.python.{module}")
    made = folder / "installed.txt"
    return Client(module.replace("_", "-"), command, made, leaves_early)


def _node(script: str, folder: Path = NODE, *, leaves_early: bool = True) -> Client:
    made = folder / "node_modules" / ".package-lock.json"
    name = f"{script.replace('_', '-')} (npm)"
    return Client(name, ("node", str(folder / f"{script}.mjs")), made, leaves_early)


CLIENTS = (
    _node("openai"),
    _node("ollama"),
    _node("anthropic"),
    _node("ai_sdk"),
    _node("langchain_openai"),
    _node("langchain_ollama", leaves_early=False),  # it reads on by itself
    _node("claude_code", AGENTS, leaves_early=False),
    _node("codex", AGENTS, leaves_early=False),
    _python(".venv-clients-openai3", "langchain_openai"),
    _python(".venv-clients-openai3", "langchain_ollama"),
    _python(".venv-clients-openai3", "llm_ollama", leaves_early=False),
    _python(".venv-clients-openai3", "llm_openai", leaves_early=False),
    _python(".venv-clients-openai3", "pydantic_ai"),
    _python(".venv-clients-openai2", "litellm"),
    _python(".venv-clients-openai2", "instructor", leaves_early=False),
    _python(".venv-clients-openai2", "llama_index"),
)


def ask(client: Client, url: str) -> subprocess.CompletedProcess[str]:
    """Run its checks against the daemon at this URL; what it printed, both streams together.
    Raises subprocess.TimeoutExpired after TIMEOUT_S."""
    return subprocess.run(
        [*client.command, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **ENVIRONMENT},
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )
