"""What a chat prints about a model before the first message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.answer import writer
from cli.errors import CliError
from cli.terminal import status

if TYPE_CHECKING:
    from cli.session import Session
    from runner.client import Client
    from runner.replies import JsonObject


def chat_model(client: Client, model: str) -> JsonObject:
    """What /api/show says of a model to chat with. Raises CliError for one that gives vectors
    only, ClientError."""
    shown = client.show(model)
    if "completion" not in shown.get("capabilities", ("completion",)):
        raise CliError(
            f"{model} is an embedding model and cannot chat; give it a text to get its vector: "
            f'hearth run {model} "some text"'
        )
    return shown


def introduce(session: Session, shown: JsonObject) -> None:
    """Say what is special about this model, and show its own messages, which the session adopts.
    Requested thinking is turned off if the model has none."""
    from cli.commands.show import is_base

    if session.think and "thinking" not in shown.get("capabilities", ()):
        session.think = None
        status(f"({session.model} does not support thinking: it is off)")
    session.alone = session.raw or is_base(shown)
    if is_base(shown):
        status(
            f"({session.model} is a base model: it continues each text on its own and does not "
            "answer questions)"
        )
    session.own = [] if session.alone else shown.get("messages") or []
    for message in session.own:
        out = writer(session.word_wrap)
        if message["role"] == "user":
            out.write(f">>> {message['content']}\n")
        elif message["role"] == "assistant":
            out.write(f"{message['content']}\n\n")
