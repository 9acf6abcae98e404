"""The settings of hearth: one frozen object, each field one HEARTH_* variable and one name in
config.toml.

A bad value stops the start and names where it stands. Where hearth's own variable is not set, the
OLLAMA_* one of the same meaning is read, so that an existing set-up keeps working; then the file.
Plain dataclasses: importing pydantic would cost the CLI a third of its start-up time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from runner.config_file import FILE_NAME, FileError, read_config
from runner.setting_values import (
    DEFAULT_PORT,
    KV_CACHE_TYPES,
    Address,
    choice,
    parse_address,
    parse_addresses,
    parse_auto_flag,
    parse_count,
    parse_duration,
    parse_flag,
    parse_host_names,
    parse_hosts,
    parse_optional_count,
    parse_origins,
    parse_path,
    parse_silence,
    parse_size,
)

SECRETS = frozenset({"api_key"})  # settings whose texts are shown to nobody
HIDDEN = "(set, not shown)"  # in place of such a text
LOG_FILE = "daemon.log"  # in the state folder: of a daemon in the background


class SettingsError(Exception):
    """A setting holds a value that cannot be used, or config.toml is not sound. The message says
    where it stands."""


def _list(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _setting(parse: Callable[[str], Any], default: Any, doc: str, alias: str | None = None) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc, "alias": alias})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a user can set. The doc of each field is user documentation."""

    host: Address = _setting(
        parse_address,
        Address("127.0.0.1", DEFAULT_PORT),
        "address that the daemon listens on",
        "OLLAMA_HOST",
    )
    listen: tuple[Address, ...] = _setting(
        parse_addresses,
        (),
        "more addresses that the daemon listens on, comma-separated, such as [::1]:4327",
    )
    home: Path | None = _setting(parse_path, None, "folder for all of hearth's files")
    config: Path | None = _setting(
        parse_path,
        None,
        f"settings file to use instead of {FILE_NAME} in the configuration folder; "
        f"{os.devnull}: none",
    )
    models: Path | None = _setting(
        parse_path, None, "folder in which models are stored", "OLLAMA_MODELS"
    )
    default_model: str | None = _setting(
        str.strip,
        None,
        "model for requests to /v1 and llama-server's routes that name no model, or one that is "
        "not installed",
    )
    autoload: bool = _setting(
        parse_flag,
        True,
        "0: requests to /v1 and llama-server's routes do not load models; POST /models/load does",
    )
    keep_alive: float | None = _setting(
        parse_duration,
        300.0,
        "how long an idle model stays loaded; negative: forever",
        "OLLAMA_KEEP_ALIVE",
    )
    context_length: int | None = _setting(
        parse_optional_count,
        None,
        "default context length; 0: what the model and the memory allow",
        "OLLAMA_CONTEXT_LENGTH",
    )
    num_parallel: int = _setting(
        parse_count,
        16,
        "maximum number of concurrent requests of a model",
        "OLLAMA_NUM_PARALLEL",
    )
    max_loaded_models: int | None = _setting(
        parse_optional_count,
        None,
        "maximum number of loaded models; those that share weights count once; 0: as many as fit "
        "in memory",
        "OLLAMA_MAX_LOADED_MODELS",
    )
    context_shift: bool = _setting(
        parse_flag,
        False,
        "1: on llama-server's routes, answers continue when the context is full, by dropping its "
        "oldest tokens",
    )
    agent_rules: bool = _setting(
        parse_flag,
        True,
        "0: do not undo what coding agents change in their prompts with every request; each prompt "
        "is then computed again",
    )
    max_queue: int = _setting(
        parse_count, 512, "maximum number of waiting requests", "OLLAMA_MAX_QUEUE"
    )
    rate_limit: int | None = _setting(
        parse_optional_count,
        None,
        "requests per minute for each API key (without keys: for each user of this machine and "
        "each other address); 0: no limit",
    )
    media_path: Path | None = _setting(
        parse_path,
        None,
        "folder with images that chats may name as file://NAME; every API key can read them",
    )
    adapter_path: Path | None = _setting(
        parse_path,
        None,
        "folder with LoRA adapters that POST /v1/load_lora_adapter may install; by default it only "
        "loads installed ones",
    )
    slot_save_path: Path | None = _setting(
        parse_path,
        None,
        "folder where POST /slots/ID?action=save stores computed prompts, readable only by the "
        "daemon's user; by default they are not stored",
    )
    max_file_size: int = _setting(
        parse_size, 512 << 20, "maximum size of an uploaded file, such as 1GiB"
    )
    embedding_model: str | None = _setting(
        str,
        None,
        "embedding model for vector stores that name none; by default the first installed "
        "embedding model",
    )
    max_files_size: int = _setting(
        parse_size,
        8 << 30,
        "maximum total size of uploaded files; further uploads are rejected. Half of it is the "
        "limit for the files of one key, and for its responses, of which the oldest are removed. "
        "It is also the limit for saved slots",
    )
    cache_dir: Path | None = _setting(
        parse_path,
        None,
        "folder for computed prompts that outlive the loaded model and the daemon, readable only "
        "by the daemon's user",
    )
    cache_size: int | None = _setting(
        parse_size,
        None,
        "maximum size of the folder for computed prompts, such as 20GiB; by default 10 GiB, or 5 % "
        "of the disk if that is less; 0: nothing is stored",
    )
    kv_cache_type: str = _setting(
        choice(*KV_CACHE_TYPES),
        "f16",
        f"type of the KV cache: {_list(KV_CACHE_TYPES)}",
        "OLLAMA_KV_CACHE_TYPE",
    )
    flash_attention: bool | None = _setting(
        parse_auto_flag,
        None,
        "flash attention: 1, 0 or auto",
        "OLLAMA_FLASH_ATTENTION",
    )
    num_threads: int | None = _setting(
        parse_optional_count,
        None,
        "CPU threads per model; 0: one per physical core, but fewer with llama.cpp while other "
        "programs slow them down",
    )
    native_kernels: bool = _setting(
        parse_flag, True, "0: use the CPU kernels of llama.cpp and torch instead of hearth's"
    )
    sandbox: bool = _setting(
        parse_flag, True, "0: let workers and jobs open all your files and the network (Linux)"
    )
    memory_limit: int | None = _setting(
        parse_size, None, "maximum memory for all models together, such as 8GiB"
    )
    adapter_memory: int = _setting(
        parse_size,
        1 << 30,
        "maximum memory for the LoRA adapters that a worker holds at once, such as 512MiB; those "
        "not in use make room for others",
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
        "maximum time for one engine step, after which the worker is ended, and for preparing an "
        "image",
    )
    cluster_silence: float = _setting(
        parse_silence,
        1.25,
        "how long a replica of a cluster may be silent before its streams end with an error, at "
        "least 0.5 s; use more on machines so busy that live replicas are given up",
    )
    drain_timeout: float | None = _setting(
        parse_duration, 30.0, "how long a stopping daemon waits for streams to finish"
    )
    origins: tuple[str, ...] = _setting(
        parse_origins,
        (),
        "web origins whose pages may use the daemon, in addition to those of this machine, "
        "comma-separated; * stands for a part: https://*.example.com, chrome-extension://*",
        "OLLAMA_ORIGINS",
    )
    hosts: tuple[str, ...] = _setting(
        parse_host_names,
        (),
        "more host names by which the daemon is reached, comma-separated, such as that of a Docker "
        "Compose service",
    )
    insecure_public: bool = _setting(
        parse_flag,
        False,
        "1: listen beyond this machine without API keys; anyone who can reach it has full access",
    )
    insecure_local: bool = _setting(
        parse_flag,
        False,
        "1: without API keys, every user and program of this machine has full access",
    )
    private_registries: tuple[str, ...] = _setting(
        parse_hosts,
        (),
        "hosts at private addresses, comma-separated, such as registry.lan:5000, from which API "
        "keys with the scope pull may pull, and where MCP servers named in requests may be",
    )
    daemon_user: str | None = _setting(
        str.strip,
        None,
        "another user of this machine whose daemon the hearth commands may use",
    )
    api_key: str | None = _setting(
        str.strip, None, "API key that the hearth commands send to the daemon"
    )
    tls_cert: Path | None = _setting(
        parse_path, None, "PEM file with the TLS certificate of the daemon; enables HTTPS"
    )
    tls_key: Path | None = _setting(
        parse_path, None, "PEM file with the private key of tls_cert, if it is not in that file"
    )
    offline: bool = _setting(parse_flag, False, "1: do not pull or push anything")
    transfer_rate: int | None = _setting(
        parse_size,
        None,
        "maximum total rate of pulls and pushes in bytes per second, such as 10MB",
    )
    no_autostart: bool = _setting(
        parse_flag, False, "1: the CLI does not start the daemon automatically"
    )
    notifications: bool = _setting(
        parse_flag,
        True,
        "0: no desktop notification when a pull of more than a minute has ended",
    )
    nohistory: bool = _setting(
        parse_flag, False, "1: the chat saves no history file", "OLLAMA_NOHISTORY"
    )
    log_level: str = _setting(
        choice("debug", "info", "warning", "error"), "info", "log level of the daemon"
    )
    access_log: bool = _setting(
        parse_flag,
        False,
        "1: write a line of JSON for each request, without its texts, to access.log in the state "
        "folder",
    )
    log_format: str = _setting(
        choice("text", "json"), "text", "log format of the daemon: text or json"
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
        """Where config.toml, mcp.json and the folder prompts are looked for."""
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


class Given(NamedTuple):
    """What a variable or a line of config.toml sets. source: which one. short: the same without the
    folder, for messages to clients. in_file: it is a line."""

    source: str
    text: str
    short: str
    in_file: bool = False


def given(environ: Mapping[str, str] | None = None) -> dict[str, tuple[Given, ...]]:
    """Of each field that environ (the process's own by default) or the file sets: what is given,
    that which counts first. Raises SettingsError for a file that is not sound."""
    texts = os.environ if environ is None else environ
    parsers = {item.name: item.metadata["parse"] for item in fields(Settings)}
    parsers.pop("config")
    try:
        path = config_path(texts)
        lines = read_config(path, parsers, SECRETS)
    except FileError as error:
        raise SettingsError(f"{error}. HEARTH_CONFIG={os.devnull} leaves the file out") from None
    found = {}
    for item in fields(Settings):
        names = filter(None, (variable(item.name), item.metadata["alias"]))
        ways = [Given(name, texts[name], name) for name in names if texts.get(name, "").strip()]
        line, text = lines.get(item.name, (0, ""))
        if text.strip():
            short = f"{path.name}: {item.name}"
            ways.append(Given(f"{path}, line {line}", text, short, in_file=True))
        if ways:
            found[item.name] = tuple(ways)
    return found


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Where config.toml is looked for. Raises SettingsError when HEARTH_CONFIG names no file."""
    texts = os.environ if environ is None else environ
    try:
        named, home = (
            parse_path(text).absolute() if (text := texts.get(name, "").strip()) else None
            for name in ("HEARTH_CONFIG", "HEARTH_HOME")
        )
    except ValueError as error:
        raise SettingsError(f"HEARTH_CONFIG or HEARTH_HOME is invalid: {error}") from None
    if named is not None and not named.exists():
        raise SettingsError(f"HEARTH_CONFIG={named}: there is no such file")
    return named or Settings(home=home).config_dir / FILE_NAME


def source(name: str) -> str:
    """What sets a field in this process, for messages; hearth's variable where nothing does."""
    ways = given().get(name)
    return ways[0].short if ways else variable(name)


def host_source() -> str:
    """What has given the address, for messages: " (HEARTH_HOST)"; "" where nothing has."""
    return f" ({source('host')})" if "host" in given() else ""


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of environ (the process's own by default) and the file. Raises SettingsError."""
    parsers = {item.name: item.metadata["parse"] for item in fields(Settings)}
    values: dict[str, Any] = {}
    for name, ways in given(environ).items():
        origin, text, *_ = ways[0]
        try:
            values[name] = parsers[name](text)
        except ValueError as error:
            where = f"{origin}: {name} = " if ways[0].in_file else f"{origin}="
            raise SettingsError(f"{where}{text!r} is invalid: {error}") from None
    return Settings(**values)


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting as it is in this process. source: a variable, a line of config.toml, or "default";
    overrides: what it takes precedence over, as (source, value). Secrets are not in it."""

    name: str
    variable: str
    value: str
    source: str
    default: str
    description: str
    overrides: tuple[tuple[str, str], ...]


def explain(environ: Mapping[str, str] | None = None) -> tuple[Explained, ...]:
    """Every setting, where its value comes from, and what that overrides. Raises SettingsError for
    a file that is not sound."""
    found, rows = given(environ), []
    for item, (name, doc, default) in zip(fields(Settings), describe(), strict=True):
        ways = [
            (way.source, HIDDEN if item.name in SECRETS else way.text)
            for way in found.get(item.name, ())
        ]
        (where, value), *others = [*ways, ("default", default)]
        rows.append(Explained(item.name, name, value, where, default, doc, tuple(others)))
    return tuple(rows)


def describe() -> list[tuple[str, str, str]]:
    """(variable, doc, default as one would write it into the environment) of every setting."""
    return [
        (variable(item.name), item.metadata["doc"], _written(item.default))
        for item in fields(Settings)
    ]


def _written(default: object) -> str:
    match default:
        case None | ():
            return ""
        case Address():
            return default.url
        case bool():
            return str(int(default))
        case _:
            return str(default).removesuffix(".0")
