"""The archive for a report: what doctor found, settings, versions, names of models, and the end of
the log, without prompts, keys and passwords.

Nothing that may hold a prompt is read: no blob, no saved prompt, no stored response. Of the log,
lines that have its form, without what they quote; of a traceback, the places.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from cli.daemon import log_file
from cli.doctor.finding import Finding
from cli.private_files import read_regular
from runner.settings import Settings, SettingsError, explain

_LOG_BYTES, _LOG_LINES, _MESSAGE_LIMIT = 1 << 20, 500, 300
_MIN_SECRET = 6  # shorter ones would blacken half of the text
_LINE = re.compile(r"(\d{4}-\d\d-\d\d [\d:,]+) (INFO|WARNING|ERROR|CRITICAL) ([\w.]+): (.*)")
_PLACE = re.compile(r'  File "[^"]+", line \d+, in [\w.<>]+')
_RAISED = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Failed))(?::.*)?")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_HARMLESS = re.compile(r"[\w.:/@+-]{1,80}")  # a name, a path, an address
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_SECRET = re.compile(
    r"(?P<scheme>://)[^/\s@]+@"
    r"|\bBearer\s++\S+|\b(?:hf_|sk-|hearth_|ghp_|xox[bp]-|eyJ)[\w.-]{8,}"
    r"|-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|$)"
    r"|(?P<name>(?:key|token|secret|password)[\"']?\s*+[=:]\s*+)[^\s,;]+"
    r"|(?<=\S)\?\S+",  # the query of an address
    re.IGNORECASE | re.DOTALL,
)
_GONE = "…"

Redact = Callable[[str], str]


def write_bundle(path: Path, findings: list[Finding], settings: Settings) -> list[str]:
    """Write the archive, for this user only; gives the names in it. Raises OSError, also where
    there is something at path already."""
    redact = redaction(settings)
    told = {
        "findings": [vars_of(each) for each in findings],
        "versions": _versions(),
        "settings": _settings(),
        "models": sorted(_models(settings.models_dir / "manifests")),
    }
    files = {
        "hearth/doctor.json": json.dumps(_mapped(told, redact), indent=2, ensure_ascii=False),
        "hearth/daemon.log": "\n".join(map(redact, log_lines(_log_end(log_file(settings))))),
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode("utf-8", "replace")
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), int(time.time()), 0o600
            archive.addfile(info, io.BytesIO(content))
    return list(files)


def vars_of(finding: Finding) -> dict[str, str | None]:
    """A finding as JSON."""
    return {"level": finding.level, "area": finding.area, "text": finding.text,
            "mend": finding.mend}  # fmt: skip


def redaction(settings: Settings) -> Redact:
    """Removes from a text all secrets that are known here, and what looks like one."""
    secrets = sorted(_known_secrets(settings), key=len, reverse=True)
    home = str(Path.home())

    def redact(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, _GONE)
        text = _SECRET.sub(_blackened, text)
        return text.replace(home, "~") if len(home) > 1 else text

    return redact


def _blackened(found: re.Match[str]) -> str:
    if found["scheme"]:
        return f"://{_GONE}@"
    return f"{found['name'] or ''}{_GONE}"


def _known_secrets(settings: Settings) -> set[str]:
    found: set[str] = set()
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name):
            found.add(value)
        for user_info in re.findall(r"://([^/\s@]+)@", value):
            found.update(user_info.split(":"))
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    for path in (
        settings.data_dir / "keys.json",
        settings.data_dir / "auth.json",
        settings.config_dir / "mcp.json",
        settings.state_dir / "daemon.json",
        Path(os.environ.get("HF_TOKEN_PATH") or hub / "token"),
    ):
        with suppress(OSError, RecursionError):
            found.update(_secret_texts(read_regular(path).decode(errors="replace")))
    return {text.strip() for text in found if len(text.strip()) >= _MIN_SECRET}


def _secret_texts(content: str) -> Iterator[str]:
    """The texts under keys that name secrets, and all below "env", "headers" and "auths"; of what
    is not JSON every word."""
    try:
        value = json.loads(content)
    except ValueError:
        yield from re.split(r"[\s\"',]+", content)
        return
    pending: list[tuple[Any, bool]] = [(value, False)]
    while pending:
        item, is_secret = pending.pop()
        if isinstance(item, dict):
            for name, below in item.items():
                named = name in ("env", "headers", "auths") or bool(_SECRET_NAME.search(name))
                pending.append((below, is_secret or named))
        elif isinstance(item, list):
            pending += [(below, is_secret) for below in item]
        elif is_secret and isinstance(item, str):
            yield from (item, item.removeprefix("Bearer "))


def log_lines(lines: Iterable[str]) -> list[str]:
    """The lines of a log, of either form, that may leave the machine."""
    kept, left_out = [], 0
    for line in lines:
        told = _log_line(line)
        if told is None:
            left_out += 1
        else:
            kept.append(told)
    return [*kept[-_LOG_LINES:], f"({left_out} other lines left out)"]


def _log_line(line: str) -> str | None:
    found = _LINE.fullmatch(line)
    words = found.groups() if found else _json_line(line)
    if words is not None:
        when, level, logger, message = words
        return f"{when} {level} {logger}: {_harmless(message)}"
    if _PLACE.fullmatch(line):
        return line
    raised = _RAISED.fullmatch(line)
    return raised[1] if raised else None


def _json_line(line: str) -> tuple[str, str, str, str] | None:
    try:
        item = json.loads(line)
        level = str(item["level"]).upper()
        words = str(item["time"]), level, str(item["logger"]), str(item["message"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return words if level in ("INFO", "WARNING", "ERROR", "CRITICAL") else None


def _harmless(message: str) -> str:
    """A message without what it quotes, and without what a child process wrote."""
    text = message.partition(" wrote:")[0]
    text = _QUOTED.sub(lambda m: m[0] if _HARMLESS.fullmatch(m[0][1:-1]) else _GONE, text)
    return text[:_MESSAGE_LIMIT]


def _log_end(path: Path) -> list[str]:
    """Its last part, of at most the size at which the daemon begins a new one."""
    try:
        return read_regular(path)[-_LOG_BYTES:].decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _settings() -> dict[str, str]:
    """Those that are set, and where; none where one is wrong, which is a finding then."""
    with suppress(SettingsError):
        return {each.variable: f"{each.value} ({each.source})" for each in explain()
                if each.source != "default"}  # fmt: skip
    return {}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    with suppress(OSError):
        found["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    names = {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in requires("hearth") or ()}
    for name in ("hearth", *sorted(names)):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _models(manifests: Path) -> Iterator[str]:
    for folder, _, names in os.walk(manifests):
        yield from (str(Path(folder, name).relative_to(manifests)) for name in names)


def _mapped(value: Any, redact: Redact) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(below, redact) for name, below in value.items()}
    if isinstance(value, list):
        return [_mapped(below, redact) for below in value]
    return redact(value) if isinstance(value, str) else value
