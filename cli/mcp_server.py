"""hearth as an MCP server over stdin and stdout: its models as tools of other programs."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from cli.errors import CliError
from runner.client import ClientError

if TYPE_CHECKING:
    from runner.client import Client

MAX_TOKENS = 8192
_INSTRUCTIONS = "Language models that run on this machine. list first: it gives their names."


def serve(client: Client) -> None:
    """Answer until stdin ends. Raises CliError without the SDK."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise CliError("MCP is not installed: pip install 'hearth[mcp]'") from None
    version = importlib.metadata.version("hearth")
    server = MCPServer("hearth", instructions=_INSTRUCTIONS, version=version, log_level="ERROR")

    async def ask(call: Any, *given: Any) -> Any:
        try:
            return await asyncio.to_thread(call, *given)
        except ClientError as error:
            raise ToolError(error.message) from None

    @server.tool(name="list")
    async def list_models() -> str:
        """The models that are installed, as JSON, with their sizes in bytes."""
        fields = ("name", "size", "capabilities", "details")
        models = await ask(client.tags)
        return json.dumps([{key: model[key] for key in fields if key in model} for model in models])

    @server.tool()
    async def run(
        model: str, prompt: str, system: str = "", max_tokens: int = 1024, temperature: float = 0.7
    ) -> str:
        """What a model answers to a prompt. At most max_tokens tokens, up to 8192."""
        if not 1 <= max_tokens <= MAX_TOKENS:
            raise ToolError(f"max_tokens {max_tokens} is not from 1 to {MAX_TOKENS}")
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        options = {"num_predict": max_tokens, "temperature": temperature}
        body = {"model": model, "messages": messages, "options": options}
        chunks = await ask(lambda: list(client.chat(body)))
        return "".join(chunk["message"]["content"] for chunk in chunks)

    @server.tool()
    async def embed(model: str, texts: list[str]) -> str:
        """The vectors of texts, as JSON, by an embedding model."""
        reply = await ask(client.embed, {"model": model, "input": texts})
        return json.dumps(reply["embeddings"])

    server.run("stdio")
