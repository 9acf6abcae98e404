"""Stands in the place of the binary llama-server: takes its options, and runs hearth with settings
and a Modelfile of the same meaning, or llama-server itself, on the substituted models.

python -m tests.conformance.llama_server.stand_in hearth|BINARY OPTIONS
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.llama_server.suite import KNOWN

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>"
    "assistant<|end_header_id|>\n\n{% endif %}"
)
COMMAND_R = (
    "{% for message in messages %}<|START_OF_TURN_TOKEN|>{% if message.role == 'system' %}"
    "<|SYSTEM_TOKEN|>{% elif message.role == 'user' %}<|USER_TOKEN|>{% else %}<|CHATBOT_TOKEN|>"
    "{% endif %}{{ message.content }}<|END_OF_TURN_TOKEN|>{% endfor %}"
    "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "command-r": COMMAND_R}
_VALUES = (
    *("host", "port", "model", "hf-repo", "hf-file", "model-draft", "alias", "tags", "api-key"),
    *("ctx-size", "batch-size", "ubatch-size", "parallel", "n-predict", "temp", "seed", "threads"),
    *("chat-template", "chat-template-file", "reasoning", "reasoning-format", "pooling"),
    *("slot-save-path", "spec-type", "spec-draft-n-max", "spec-draft-n-min", "sleep-idle-seconds"),
    *("models-max", "cors-origins", "cache-ram", "n-gpu-layers", "tools", "media-path"),
)
_FLAGS = (
    *("offline", "jinja", "no-jinja", "cont-batching", "embedding", "reranking", "metrics"),
    *("slots", "no-slots", "kv-unified", "swa-full", "context-shift", "verbose", "no-ui"),
    *("backend_sampling", "no-mmproj", "no-models-autoload", "no-cache-idle-slots"),
)
_ROUTER_MODELS = ("tinygemma3-GGUF:Q8_0", "test-model-stories260K:F32",
                  "test-model-stories260K-infill:F32")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Substitute:
    """A model's file, with its projector."""

    model: Path
    projector: Path | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A model as hearth gets it."""

    name: str
    files: Substitute
    template: str | None
    parameters: dict[str, Any]
    adapters: tuple[Path, ...] = ()
    draft: Path | None = None


def main() -> None:
    """Become the server."""
    program, options = sys.argv[1], sys.argv[2:]
    if program == "hearth":
        _run_hearth(_parsed(options))
    else:
        os.execv(program, [program, *_substituted(options)])


def _substituted(options: list[str]) -> list[str]:
    """The options of llama-server, with files in the place of repositories."""
    given = list(options)
    repo, file = _take(given, "--hf-repo"), _take(given, "--hf-file")
    while "--offline" in given:
        given.remove("--offline")
    if repo is None:
        router = "--model" not in given
        return [*given, *(("--models-preset", str(_preset())) if router else ())]
    found = _substitute(f"{repo}/{file or ''}")
    if found.projector is not None and "--no-mmproj" not in given:
        given += ["--mmproj", str(found.projector)]
    return [*given, "--model", str(found.model)]


def _take(options: list[str], name: str) -> str | None:
    if name not in options:
        return None
    at = options.index(name)
    value = options[at + 1]
    del options[at : at + 2]
    return value


def _preset() -> Path:
    """The models of llama-server as a router."""
    lines = []
    for name in _ROUTER_MODELS:
        found = _substitute(name)
        lines += [f"[ggml-org/{name}]", f"model = {found.model}"]
        if found.projector is not None:
            lines.append(f"mmproj = {found.projector}")
    path = Path(tempfile.mkdtemp(prefix="llama-server-")) / "models.ini"
    path.write_text("\n".join(lines) + "\n")
    return path


def _substitute(asked: str) -> Substitute:
    for part, files in json.loads(KNOWN.read_text()).items():
        if part in asked:
            return Substitute(*map(Path, files))
    sys.exit(f"no substitute for {asked}")


def _parsed(options: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hearth for llama-server", allow_abbrev=False)
    for name in _VALUES:
        parser.add_argument(f"--{name}")
    for name in _FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--lora", action="append", default=[])
    parser.add_argument("-fa", "-ctk", "-ctv", dest="ignored")
    parsed, unknown = parser.parse_known_args(options)
    if unknown:
        sys.exit(f"hearth has nothing for {' '.join(unknown)}")
    return parsed


def _run_hearth(options: argparse.Namespace) -> None:
    home = Path(tempfile.mkdtemp(prefix="hearth-llama-server-"))
    slots = int(options.parallel or 4)
    served = _served(options, slots)
    hosts = str(options.host or "127.0.0.1").split(",")
    addresses = [
        f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}" for host in hosts
    ]
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HEARTH_HOME": str(home),
        "HEARTH_HOST": addresses[0],
        "HEARTH_LISTEN": ",".join(addresses[1:]),
        "HEARTH_OFFLINE": "1",
        "HEARTH_NUM_PARALLEL": str(slots),
        "HEARTH_MAX_LOADED_MODELS": str(options.models_max or 0),
        "HEARTH_MODELS": str(_store(served)),
        "HEARTH_DRAIN_TIMEOUT": "1",
    }
    if len(served) == 1:
        environment["HEARTH_DEFAULT_MODEL"] = served[0].name
    if options.sleep_idle_seconds:
        environment["HEARTH_KEEP_ALIVE"] = f"{options.sleep_idle_seconds}s"
    # llama-server lets every page in, and those of this machine only where it has tools.
    origins = options.cors_origins or ("localhost" if options.tools else "*")
    if origins != "localhost":
        environment["HEARTH_ORIGINS"] = origins
    if options.media_path:
        environment["HEARTH_MEDIA_PATH"] = str(Path(options.media_path).absolute())
    if options.verbose:
        environment["HEARTH_LOG_LEVEL"] = "debug"
    if options.no_models_autoload:
        environment["HEARTH_AUTOLOAD"] = "0"
    if options.slot_save_path:
        environment["HEARTH_SLOT_SAVE_PATH"] = str(Path(options.slot_save_path).absolute())
    if options.context_shift:
        environment["HEARTH_CONTEXT_SHIFT"] = "1"
    if options.api_key:
        _write_key(home, options.api_key)
    os.execve(sys.executable, [sys.executable, "-P", "-m", "runner.server"], environment)


def _served(options: argparse.Namespace, slots: int) -> list[Served]:
    if not options.hf_repo and not options.model:
        names = [f"ggml-org/{name}" for name in _ROUTER_MODELS]
        return [_one(name, name, options, slots) for name in names]
    asked = f"{options.hf_repo}/{options.hf_file or ''}"
    return [_one(sorted((options.alias or "model").split(","))[0], asked, options, slots)]


def _one(name: str, asked: str, options: argparse.Namespace, slots: int) -> Served:
    found = _substitute(asked)
    if options.no_mmproj:
        found = Substitute(found.model)
    context = int(options.ctx_size or 2048)
    parameters = {
        "num_ctx": context if options.kv_unified else context // slots,
        "num_parallel": slots,
        "top_p": 0.95,
        "min_p": 0.05,
        "temperature": float(options.temp),
        "seed": int(options.seed),
    }
    if options.batch_size:
        parameters["num_batch"] = int(options.batch_size)
    if options.n_predict:
        parameters["num_predict"] = int(options.n_predict)
    if options.spec_draft_n_max:
        parameters["draft_num_predict"] = int(options.spec_draft_n_max)
    if options.reasoning in ("on", "off"):
        parameters["think"] = "true" if options.reasoning == "on" else "false"
    if options.pooling:
        parameters["pooling"] = options.pooling
    return Served(
        name,
        found,
        _template(options),
        parameters,
        tuple(Path(path).absolute() for path in options.lora),
        Path(options.model_draft).absolute() if options.model_draft else None,
    )


def _template(options: argparse.Namespace) -> str | None:
    if options.embedding or options.reranking:
        return None
    if options.chat_template_file:
        return Path(options.chat_template_file).read_text()
    given = options.chat_template or "chatml"
    return TEMPLATES.get(given, given)


def _write_key(home: Path, key: str) -> None:
    digest = hashlib.sha256(key.encode()).hexdigest()
    created = "2026-01-01T00:00:00.000000+00:00"
    entry = {"name": "suite", "scopes": ["admin"], "sha256": digest, "created_at": created}
    (home / "keys.json").write_text(json.dumps([entry]))


def _store(served: list[Served]) -> Path:
    """A store with these models. It is kept for the next server of the same options."""
    from modelfile.build import build
    from modelfile.description import Description
    from modelfile.parameters import PARAMETERS
    from registry.formats.gguf.merge import merge
    from registry.names import Name
    from registry.store import Store

    root = Path(os.environ["HEARTH_SUITE_STORES"])
    key = hashlib.sha256(repr(served).encode()).hexdigest()[:24]
    folder = root / key
    if not folder.exists():
        part = Path(tempfile.mkdtemp(dir=root))
        store = Store.open(part)
        try:
            store.write_state("builtin.json", _without_builtin())
            for model in served:
                parameters = {k: v for k, v in model.parameters.items() if k in PARAMETERS}
                description = Description(
                    name=Name.parse(model.name.replace("+", "-")),
                    files={"model.gguf": _put(store, _whole(model.files.model, part, merge))},
                    template=model.template,
                    parameters=parameters,
                    adapters=tuple(_put(store, path) for path in model.adapters) or None,
                    draft=_put(store, model.draft) if model.draft else None,
                    projector=_put(store, model.files.projector) if model.files.projector else None,
                )
                for _ in build(store, description):
                    pass
        finally:
            store.close()
        part.rename(folder)
    return folder


def _whole(path: Path, folder: Path, merge: Any) -> Path:
    parts = sorted(path.parent.glob(path.name.replace("-00001-", "-*-")))
    if "-00001-of-" not in path.name:
        return path
    target = folder / "merged.gguf"
    merge(parts, target, lambda done, total: None)
    return target


def _without_builtin() -> bytes:
    """The store's memory of the bundled model: seen once, and removed by the user."""
    return json.dumps({"ember": {"stamp": "", "model": None}}).encode()


def _put(store: Any, path: Path) -> Any:
    with store.blob_writer(size_bytes=path.stat().st_size) as writer:
        writer.write(path.read_bytes())
        digest, _ = writer.commit()
    return digest


if __name__ == "__main__":
    main()
