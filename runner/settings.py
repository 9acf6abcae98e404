"""The settings of hearth: one frozen object, each field one HEARTH_* variable.

A bad value stops the start and names the variable. Where hearth's own variable is not set, the
OLLAMA_* one of the same meaning is read, so that an existing set-up keeps working. Plain
dataclasses: importing pydantic would cost the CLI a third of its start-up time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from modelfile.cache_types import CACHE_TYPES, TORCH_ONLY
from runner.origins import host_name, origin_pattern

SECRETS = frozenset({"HEARTH_API_KEY"})  # variables whose texts are shown to nobody
LOG_FILE = "daemon.log"  # in the state folder: of a daemon in the background
DEFAULT_PORT = 4327  # H-E-A-R on a telephone


_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class SettingsError(Exception):
    """A variable holds a value that cannot be used. The message names it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon listens, and where clients find it."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def reachable(self) -> Address:
        """Where to connect to: a daemon that listens everywhere is reached on this machine."""
        return replace(self, host=_WILDCARD.get(self.host, self.host))


def parse_address(text: str) -> Address:
    """An address from host, host:port, :port, [v6]:port or a URL. Raises ValueError."""
    given = text.strip().strip("\"'")
    scheme, rest = given.split("://", 1) if "://" in given else ("http", given)
    if scheme not in ("http", "https"):
        raise ValueError("the scheme must be http or https")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"
    parts = urlsplit(f"//{rest}")
    fallback = DEFAULT_PORT if "://" not in given else {"http": 80, "https": 443}[scheme]
    port = fallback if parts.port is None else parts.port  # 0: any free port
    return Address(parts.hostname or "127.0.0.1", port, scheme)


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(parse_address(word) for word in _words(text))


_DURATION = re.compile(r"(?<!\d)(\d++(?:\.\d++)?+)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float | None:
    """Seconds of "300", "5m", "1h30m", "250ms"; negative means forever (None).
    Raises ValueError."""
    given = text.strip()
    if given.startswith("-"):
        parse_duration(given[1:])
        return None
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return float(given)
    parts = _DURATION.findall(given)
    if not parts or "".join(n + u for n, u in parts) != given:
        raise ValueError('use a duration such as 300, "5m" or "1h30m"; negative for forever')
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


_CACHE_TYPES = tuple(name for name in CACHE_TYPES if name not in TORCH_ONLY)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of "8GiB", "8G", "500MB", "1000". Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError('use a size such as "8GiB" or "500MB"')
    number, prefix, suffix = match.groups()
    base = 1000 if (suffix or "").upper() == "B" and prefix else 1024
    return int(float(number) * base ** " KMGT".index(prefix.upper() or " "))


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("use 1 or 0")


def _auto_flag(text: str) -> bool | None:
    return None if text.strip().lower() == "auto" else _flag(text)


def _count(text: str) -> int:
    if not re.fullmatch(r"\s*\d{1,15}\s*", text):
        raise ValueError("use a whole number of at least 0")
    return int(text)


def _optional_count(text: str) -> int | None:
    return _count(text) or None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _hosts(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        parts = urlsplit(f"//{word}")
        bare = parts.netloc == word and "@" not in word and parts.hostname
        if not bare or parts.port == 0 or word.endswith(":"):
            raise ValueError("use hosts such as registry.lan:5000, [fd00::1]:5000 or 10.0.0.5")
    return words


def _origins(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        origin_pattern(word)
    return words


def _host_names(text: str) -> tuple[str, ...]:
    return tuple(map(host_name, _words(text)))


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise ValueError(f"use one of {', '.join(allowed)}")
        return word

    return parse


def _list(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name of a user that there is not
        raise ValueError("there is no such user, so no home folder") from None


def _setting(parse: Callable[[str], Any], default: Any, doc: str, alias: str | None = None) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc, "alias": alias})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a user can set by environment. The doc of each field is user documentation."""

    host: Address = _setting(
        parse_address,
        Address("127.0.0.1", DEFAULT_PORT),
        "address that the daemon listens on",
        "OLLAMA_HOST",
    )
    listen: tuple[Address, ...] = _setting(
        _addresses,
        (),
        "further addresses that the daemon listens on, comma-separated, such as [::1]:4327",
    )
    home: Path | None = _setting(_path, None, "folder for all of hearth's files")
    models: Path | None = _setting(
        _path, None, "folder in which models are stored", "OLLAMA_MODELS"
    )
    default_model: str | None = _setting(
        str.strip,
        None,
        "model of requests to /v1 and to llama-server's paths that name none, or one that is not "
        "installed",
    )
    autoload: bool = _setting(
        _flag,
        True,
        "0: requests to /v1 and to llama-server's paths are for loaded models only, and "
        "POST /models/load loads one",
    )
    keep_alive: float | None = _setting(
        parse_duration,
        300.0,
        "how long an idle model stays loaded; negative: forever",
        "OLLAMA_KEEP_ALIVE",
    )
    context_length: int | None = _setting(
        _optional_count,
        None,
        "default context length; 0: what the model and the memory allow",
        "OLLAMA_CONTEXT_LENGTH",
    )
    num_parallel: int = _setting(
        _count,
        16,
        "maximum number of concurrent requests of a model",
        "OLLAMA_NUM_PARALLEL",
    )
    max_loaded_models: int | None = _setting(
        _optional_count,
        None,
        "maximum number of loaded models, shared weights once; 0: as many as fit in memory",
        "OLLAMA_MAX_LOADED_MODELS",
    )
    context_shift: bool = _setting(
        _flag,
        False,
        "1: answers of llama-server's paths continue when the context is full, by dropping its "
        "oldest tokens",
    )
    agent_rules: bool = _setting(
        _flag,
        True,
        "0: keep in prompts what coding agents are known to change with every request; each prompt "
        "is computed anew then",
    )
    max_queue: int = _setting(_count, 512, "maximum number of waiting requests", "OLLAMA_MAX_QUEUE")
    rate_limit: int | None = _setting(
        _optional_count,
        None,
        "requests per minute for each API key; without keys for each user of this machine and each "
        "other address; 0: no limit",
    )
    media_path: Path | None = _setting(
        _path,
        None,
        "folder whose pictures chats may name as file://NAME; every API key can read them",
    )
    slot_save_path: Path | None = _setting(
        _path,
        None,
        "folder in which POST /slots/ID?action=save stores computed prompts, readable by the "
        "daemon's user only; by default they are not stored",
    )
    max_file_size: int = _setting(
        parse_size, 512 << 20, "maximum size of an uploaded file, such as 1GiB"
    )
    embedding_model: str | None = _setting(
        str,
        None,
        "model whose embeddings vector stores have unless they name one; else the first installed "
        "embedding model",
    )
    max_files_size: int = _setting(
        parse_size,
        8 << 30,
        "maximum total size of uploaded files; further uploads are rejected. Half of it for the "
        "files of one key, and as much for its responses: the oldest ones go; likewise the size of "
        "saved slots",
    )
    cache_dir: Path | None = _setting(
        _path,
        None,
        "folder in which computed prompts outlive their model's time in memory and the daemon, "
        "readable by the daemon's user only",
    )
    cache_size: int | None = _setting(
        parse_size,
        None,
        "maximum size of that folder, such as 20GiB; by default 10 GiB, or 5 % of the disk where "
        "that is less; 0: nothing is stored there",
    )
    kv_cache_type: str = _setting(
        _choice(*_CACHE_TYPES),
        "f16",
        f"type of the KV cache: {_list(_CACHE_TYPES)}",
        "OLLAMA_KV_CACHE_TYPE",
    )
    flash_attention: bool | None = _setting(
        _auto_flag,
        None,
        "flash attention: 1, 0 or auto",
        "OLLAMA_FLASH_ATTENTION",
    )
    num_threads: int | None = _setting(
        _optional_count, None, "CPU threads per model; 0: one per physical core"
    )
    native_kernels: bool = _setting(
        _flag, True, "0: use the CPU kernels of llama.cpp and torch instead of hearth's"
    )
    sandbox: bool = _setting(
        _flag, True, "0: let workers and jobs open any file of yours, and connections (Linux)"
    )
    memory_limit: int | None = _setting(
        parse_size, None, "maximum memory for all models together, such as 8GiB"
    )
    load_timeout: float | None = _setting(
        parse_duration,
        300.0,
        "maximum time without progress while a model loads",
        "OLLAMA_LOAD_TIMEOUT",
    )
    step_timeout: float | None = _setting(
        parse_duration,
        120.0,
        "maximum time for one engine step before the worker is ended, and for preparing an image",
    )
    drain_timeout: float | None = _setting(
        parse_duration, 30.0, "how long a stopping daemon waits for streams to finish"
    )
    origins: tuple[str, ...] = _setting(
        _origins,
        (),
        "web origins whose pages may use the daemon, besides those of this machine, "
        "comma-separated; a * stands for a part: https://*.example.com, chrome-extension://*",
        "OLLAMA_ORIGINS",
    )
    hosts: tuple[str, ...] = _setting(
        _host_names,
        (),
        "further names that the daemon is reached by, comma-separated, such as that of a service "
        "of Docker Compose",
    )
    insecure_public: bool = _setting(
        _flag,
        False,
        "1: listen beyond this machine without API keys; anyone who can reach it has full access",
    )
    insecure_local: bool = _setting(
        _flag,
        False,
        "1: without API keys, every user and program of this machine has full access",
    )
    private_registries: tuple[str, ...] = _setting(
        _hosts,
        (),
        "hosts at private addresses that API keys with the scope pull may pull from, and where "
        "MCP servers of requests may be, comma-separated, such as registry.lan:5000",
    )
    daemon_user: str | None = _setting(
        str.strip,
        None,
        "user of this machine whose daemon the hearth commands use, besides your own and root's",
    )
    api_key: str | None = _setting(
        str.strip, None, "API key that the hearth commands send to the daemon"
    )
    tls_cert: Path | None = _setting(
        _path, None, "PEM file with the TLS certificate of the daemon; enables HTTPS"
    )
    tls_key: Path | None = _setting(
        _path, None, "PEM file with the private key of tls_cert, if it is not in that file"
    )
    offline: bool = _setting(_flag, False, "1: do not pull or push anything")
    transfer_rate: int | None = _setting(
        parse_size,
        None,
        "maximum total rate of pulls and pushes in bytes per second, such as 10MB",
    )
    no_autostart: bool = _setting(
        _flag, False, "1: the CLI does not start the daemon automatically"
    )
    nohistory: bool = _setting(
        _flag, False, "1: the chat saves no history file", "OLLAMA_NOHISTORY"
    )
    log_level: str = _setting(
        _choice("debug", "info", "warning", "error"), "info", "log level of the daemon"
    )
    log_format: str = _setting(
        _choice("text", "json"), "text", "log format of the daemon: text or json"
    )

    @property
    def address(self) -> Address:
        """host, with the scheme that the daemon speaks."""
        return self.host if self.tls_cert is None else replace(self.host, scheme="https")

    @property
    def data_dir(self) -> Path:
        """Where the store lives unless models says otherwise."""
        return self.home if self.home is not None else _platform_dir("data")

    @property
    def state_dir(self) -> Path:
        """Logs, history, the daemon's pid file."""
        return self.home / "state" if self.home is not None else _platform_dir("state")

    @property
    def config_dir(self) -> Path:
        """Where mcp.json and the folder prompts are looked for."""
        return self.home if self.home is not None else _platform_dir("config")

    @property
    def prefixes_dir(self) -> Path:
        """Where computed prompts are kept."""
        if self.cache_dir is not None:
            return self.cache_dir
        return (
            self.home / "cache" if self.home is not None else _platform_dir("cache")
        ) / "prefixes"

    @property
    def models_dir(self) -> Path:
        """The root of the store."""
        return self.models if self.models is not None else self.data_dir / "models"


def _platform_dir(kind: str) -> Path:
    import platformdirs

    of = {
        "data": platformdirs.user_data_path,
        "state": platformdirs.user_state_path,
        "config": platformdirs.user_config_path,
        "cache": platformdirs.user_cache_path,
    }[kind]
    return of("hearth", appauthor=False)


def variable(name: str) -> str:
    """The environment variable of a field."""
    return f"HEARTH_{name.upper()}"


def set_variables(environ: Mapping[str, str] | None = None) -> dict[str, tuple[str, str]]:
    """What environ (the process's own by default) sets: for the variable of a field the one that
    counts, which is that or Ollama's, and its text."""
    texts = os.environ if environ is None else environ
    found = {}
    for item in fields(Settings):
        for source in filter(None, (variable(item.name), item.metadata["alias"])):
            if texts.get(source, "").strip():
                found[variable(item.name)] = (source, texts[source])
                break
    return found


def source(name: str) -> str:
    """The variable that sets a field in this process; hearth's own where none does."""
    return set_variables().get(variable(name), (variable(name), ""))[0]


def host_source() -> str:
    """The variable that has given the address, for messages: " (HEARTH_HOST)"; "" where none."""
    found = set_variables().get("HEARTH_HOST")
    return f" ({found[0]})" if found else ""


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings in environ (the process's own by default). Raises SettingsError."""
    found = set_variables(environ)
    values: dict[str, Any] = {}
    for item in fields(Settings):
        origin, text = found.get(variable(item.name), ("", ""))
        if not origin:
            continue
        try:
            values[item.name] = item.metadata["parse"](text)
        except ValueError as error:
            raise SettingsError(f"{origin}={text!r} is invalid: {error}") from None
    return Settings(**values)


def describe() -> list[tuple[str, str, str]]:
    """(variable, doc, default as text) of every setting, for help and documentation."""
    rows = []
    for item in fields(Settings):
        value = item.default.url if isinstance(item.default, Address) else item.default
        rows.append(
            (variable(item.name), item.metadata["doc"], "" if value is None else str(value))
        )
    return rows
