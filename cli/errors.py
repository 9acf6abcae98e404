"""The exception with which a verb ends with a message, and the exit code for each kind of error."""

from __future__ import annotations

import os
import sys

OK = 0
ERROR = 1
USAGE = 2
MODEL_NOT_FOUND = 3
NOT_RUNNING = 3  # of status, as systemctl and the LSB have it
CUT = 4
INTERRUPTED = 130
_WITHOUT_NETWORK = (
    "Without the network you can run the models that are installed (`hearth list`) and model files "
    "(`hearth run ./model.gguf`)"
)


class CliError(Exception):
    """Ends the command: message on stderr, exit_code to the shell."""

    def __init__(self, message: str, exit_code: int = ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def report(error: BaseException) -> int:
    """Print one line about error on stderr, never a traceback; returns the exit code."""
    message, exit_code = explain(error)
    if os.environ.get("HEARTH_LOG_LEVEL", "").lower() == "debug":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    print(f"Error: {message}", file=sys.stderr)
    return exit_code


def explain(error: BaseException) -> tuple[str, int]:
    """The message and the exit code of an error."""
    from runner.settings import SettingsError

    if isinstance(error, CliError):
        return error.message, error.exit_code
    if isinstance(error, SettingsError):
        return str(error), ERROR
    client = sys.modules.get("runner.client")
    if client is not None and isinstance(error, client.ClientError):
        return _of_daemon(error.message, error.code, error.details)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", ERROR
    return (
        f"internal error ({type(error).__name__}: {error}): please report it with the output of "
        "HEARTH_LOG_LEVEL=debug",
        ERROR,
    )


def _of_daemon(message: str, code: str | None, details: dict[str, object]) -> tuple[str, int]:
    if code == "registry_unreachable":
        return f"{_sentence(message)} {_WITHOUT_NETWORK}", ERROR
    if code == "remote_model_not_found":
        return message, MODEL_NOT_FOUND
    if "errno" in details:
        return f"{_sentence(message)}{_models_place()}", ERROR
    if code != "model_not_found":
        return message, ERROR
    names = details.get("suggestions")
    near = [str(name) for name in names] if isinstance(names, list | tuple) else []
    if near and not any(name in message for name in near):
        message = f"{message}. Did you mean {' or '.join(near)}?"
    if "hearth list" not in message:
        message = f"{_sentence(message)} `hearth list` shows the installed models"
    return message, MODEL_NOT_FOUND


def _models_place() -> str:
    """Where the daemon keeps its models, which it tells no client; "" for another user's."""
    from cli.addresses import daemon_facts
    from runner.settings import load

    settings = load()
    folder = daemon_facts(settings, settings.address.reachable.url).get("models")
    return f" The models are in {folder}" if folder else ""


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text.rstrip('.')}."
